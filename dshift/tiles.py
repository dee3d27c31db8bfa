"""Compiled loops over tiles of the index, and nothing else.

Vocabulary: a *tile* is 64 rows of uint16 codes, in vectors of eight rows by four columns:
`codes[tile, lane // 8, column // 4, lane % 8, column % 4]`, filled up with columns of zeros. A
*word* is a uint64 with one bit per lane of a tile; `slots` number the lanes of all tiles (slot = 64
tile + lane). A *code* is a coordinate rounded to a multiple of a unit, and bounds distances; exact
int64 coordinates decide what the codes leave open. `held` is the index (`index.Held`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inlined, inner, jit
from dshift.simd import (
    EIGHT,
    LANES,
    LARGEST_CODE,
    QUAD,
    QUERIES,
    lowest_bit,
    popcount,
    prefetch,
    whole_quads,
)
from dshift.simd_distances import l1_tile, l1_tile_of_one, lanes_inside, lanes_outside

SIXTEEN = QUERIES * QUERIES  # points
A_LINE = 8  # coordinates of a cache line
FETCHED = 8 * A_LINE  # of a row; the machine goes on by itself
MANY_DOUBTS = 192  # rows in doubt that wait to be decided, and those of one more tile
TRIED = 32  # tiles after which it shows whether points are near enough to be looked at together

_ONE = np.uint64(1)
_NONE = np.uint64(0)


# ---------------------------------------------------------------- exact arithmetic


@inner
def exact_distance(point, row):
    """L1 distance of two int64 vectors."""
    total = 0
    for k in range(point.shape[0]):
        total += abs(point[k] - row[k])
    return total


# ---------------------------------------------------------------- codes


@jit
def encode_tiles(coords, rows, lows, unit, first, last, codes, residuals):
    """Codes of `coords[rows[first:last]]` in tiles, and what each row loses to rounding.

    Any code near the value will do, since the loss is exact: a product takes half the time of a
    division.
    """
    a_unit, n_columns = 1.0 / unit, coords.shape[1]
    row_codes = np.zeros((codes.shape[2], QUAD), np.uint16)
    in_line = row_codes.reshape(codes.shape[2] * QUAD)
    for slot in range(first, last):
        tile, eight, row = slot // LANES, slot % LANES // EIGHT, slot % EIGHT
        lost, source = 0, rows[slot]
        for k in range(n_columns):
            value = coords[source, k] - lows[k]
            code = np.int64(value * a_unit + 0.5)
            in_line[k] = code
            lost += abs(value - code * unit)
        residuals[slot] = lost
        for quad in range(codes.shape[2]):
            for k in range(QUAD):
                codes[tile, eight, quad, row, k] = row_codes[quad, k]


@inner
def encode_points(held, points, first, last, codes, slack):
    """Codes of points first..last - 1, clipped to their range, and the loss in units, up."""
    a_unit = 1.0 / held.unit
    for j in range(first, last):
        lost = 0
        for k in range(points.shape[1]):
            value = points[j, k] - held.lows[k]
            code = min(max(np.int64(value * a_unit + 0.5), 0), LARGEST_CODE)
            codes[j - first, k] = code
            lost += abs(value - code * held.unit)
        slack[j - first] = min((lost + held.unit - 1) // held.unit, 65535)


# ---------------------------------------------------------------- distances


class Alike(NamedTuple):
    """Columns in which some points have one code, by fours: a row has one distance to all there."""

    differ: Any  # (p,) uint16: bits in which codes of points differ
    others: Any  # (p / 4 + 1,) int64: fours of columns in which they do
    quads: Any  # (p / 4 + 1,) int64: fours in which they do not
    n: Any  # (2,) int64: how many there are of each
    base: Any  # (1, 64) uint16: distances of a tile's rows in these
    none: Any  # (1, 64) uint16: zeros


def make_alike(n_columns: int) -> Alike:
    """Return scratch that takes points to differ in all columns."""
    width = whole_quads(n_columns)
    return Alike(
        differ=np.zeros(width, np.uint16),
        others=np.arange(width // QUAD + 1),
        quads=np.zeros(width // QUAD + 1, np.int64),
        n=np.array([width // QUAD, 0]),
        base=np.zeros((1, LANES), np.uint16),
        none=np.zeros((1, LANES), np.uint16),
    )


@inner
def find_alike(alike, codes, n_points):
    """List the fours of columns in which points are alike, and the others, at least one."""
    differ, others, quads = alike.differ, alike.others, alike.quads
    for k in range(differ.shape[0]):
        differ[k] = 0
    for j in range(1, n_points):
        for k in range(differ.shape[0]):
            differ[k] |= codes[j, k] ^ codes[0, k]
    n, n_alike = 0, 0
    for quad in range(differ.shape[0] // QUAD):
        some = np.uint16(0)
        for k in range(quad * QUAD, quad * QUAD + QUAD):
            some |= differ[k]
        others[n] = quads[n_alike] = quad  # stays in the list that counts it
        same = np.int64(some == 0)
        n, n_alike = n + 1 - same, n_alike + same
    if n == 0:
        n, n_alike = 1, n_alike - 1
        others[0] = quads[n_alike]
    alike.n[0], alike.n[1] = n, n_alike
    if n_alike == 0:
        for lane in range(LANES):
            alike.base[0, lane] = 0


@inlined
def _measure_alike(held, tile, word, codes, alike):
    """Set the distances of the rows of `word` in the columns where all points are alike."""
    if alike.n[1] > 0:
        l1_tile_of_one(
            held.codes, tile, word, codes, 0, alike.quads, alike.n[1], alike.none, alike.base
        )


@inner
def classify(held, which, words, n_listed, points, slack, alike, distances, inside, unsure):
    """Words of the open rows surely inside their threshold for each of four points, and unsure.

    Returns how many distances were evaluated.
    Open rows are those of `words[i]` in the tiles `which[i]`, i < n_listed. `points` (4, p) are
    codes; each stands for everything within `slack` units of it. `distances` (4, 64) is scratch,
    and nothing is `alike`: centres of groups seldom are.
    """
    n_pairs = 0
    for i in range(n_listed):
        tile, word = np.int64(which[i]), words[i]
        n_pairs += l1_tile(
            held.codes, tile, word, points, 0, alike.others, alike.n[0], alike.base, distances
        )
        for q in range(QUERIES):
            sure = lanes_inside(distances, q, held.reach_in, tile, slack[q]) & word
            never = lanes_outside(distances, q, held.reach_out, tile, slack[q])
            inside[q, i] = sure
            unsure[q, i] = word & ~sure & ~never
    return n_pairs


@inlined
def _look(held, tile, word, codes, slack, first, batch, inside, unsure):
    """Words of the rows of `word` in a tile that are inside for four codes from `first`; unsure.

    Returns how many distances were evaluated.
    """
    alike, distances = batch.alike, batch.distances
    n_pairs = l1_tile(
        held.codes, tile, word, codes, first, alike.others, alike.n[0], alike.base, distances
    )
    for q in range(QUERIES):
        sure = lanes_inside(distances, q, held.reach_in, tile, slack[first + q]) & word
        never = lanes_outside(distances, q, held.reach_out, tile, slack[first + q])
        inside[q], unsure[q] = sure, word & ~sure & ~never
    return n_pairs


@inlined
def _list_doubts(held, which, batch, n_words, n_rows):
    """List the rows in doubt, which come from memory meanwhile: where they begin, and so whole.

    One loop over the rows of all words: where it ends is foreseen wrongly as a rule.
    """
    words, whose = batch.doubts, batch.doubtful
    slots, places = batch.doubt_slots, batch.doubt_places
    n_columns, i, word = held.coords.shape[1], 0, words[0]
    for row in range(n_rows):
        place = whose[i]
        slots[row] = np.int64(which[place // LANES]) * LANES + lowest_bit(word)
        places[row] = place
        source = held.rows[slots[row]] * n_columns
        for k in range(0, min(n_columns, FETCHED), A_LINE):
            prefetch(held.coords, source + k)
        word &= word - _ONE
        i += np.int64(word == _NONE)
        word = words[i] if word == _NONE else word


@inner
def _settle(held, which, points, batch, n_words, n_rows):
    """Decide the rows in doubt by exact distance."""
    _list_doubts(held, which, batch, n_words, n_rows)
    slots, places, members = batch.doubt_slots, batch.doubt_places, batch.members
    for doubt in range(n_rows):
        slot, i, lane = slots[doubt], places[doubt] // LANES, places[doubt] % LANES
        row = held.rows[slot]
        away = exact_distance(points[batch.start[0] + lane], held.coords[row])
        members[i, lane] |= np.uint64(away < held.thresholds[row]) << np.uint64(slot % LANES)


@inner
def decide(held, which, words, n_listed, points, batch):
    """Decide the open rows of a batch, listed as for `classify`, for each of its points.

    For sixteen points together, then for four, then for each: all of it while a tile is in the
    cache. Where sixteens or fours settle nothing of some tiles, others are decided without them.
    In columns where all points are alike, rows have one distance to all of them.
    `batch.fours` and so on hold the codes. Returns how many distances were evaluated.
    """
    members, common, n_lanes = batch.members, batch.common, batch.n_lanes[0]
    inside, unsure = batch.inside, batch.unsure
    doubts, doubtful = batch.doubts, batch.doubtful
    n_pairs, n_sixteens, n_fours = 0, 0, 0  # the last two: that settled all rows of a tile
    n_words, n_rows = 0, 0  # in doubt
    for i in range(n_listed):
        tile = np.int64(which[i])
        _measure_alike(held, tile, words[i], batch.codes, batch.alike)
        if n_lanes <= SIXTEEN or (i >= TRIED and n_sixteens == 0):
            for part in range(QUERIES):
                inside[0, part], unsure[0, part] = _NONE, words[i]
        else:
            codes, slack = batch.sixteens, batch.slack_of_sixteens
            n_pairs += _look(held, tile, words[i], codes, slack, 0, batch, inside[0], unsure[0])
        for sixteen in range(0, n_lanes, SIXTEEN):
            known = common[tile] | inside[0, sixteen // SIXTEEN]
            word = unsure[0, sixteen // SIXTEEN]
            if word == _NONE or (i >= TRIED and n_fours == 0):
                n_sixteens += np.int64(word == _NONE)
                for part in range(QUERIES):
                    inside[1, part], unsure[1, part] = _NONE, word
            else:
                codes, slack, first = batch.fours, batch.slack_of_fours, sixteen // QUERIES
                n_pairs += _look(held, tile, word, codes, slack, first, batch, inside[1], unsure[1])
            for four in range(sixteen, min(sixteen + SIXTEEN, n_lanes), QUERIES):
                part = (four - sixteen) // QUERIES
                open_rows = unsure[1, part]
                for lane in range(four, four + QUERIES):  # there is room for the last four
                    members[i, lane] = known | inside[1, part]
                if open_rows == _NONE:
                    n_fours += 1
                    continue
                codes, slack = batch.codes, batch.slack
                n_pairs += _look(
                    held, tile, open_rows, codes, slack, four, batch, inside[2], unsure[2]
                )
                for lane in range(four, min(four + QUERIES, n_lanes)):
                    sure, doubt = inside[2, lane - four], unsure[2, lane - four]
                    members[i, lane] |= sure
                    doubts[n_words], doubtful[n_words] = doubt, i * LANES + lane
                    n_words += np.int64(doubt != _NONE)
                    n_rows += np.int64(popcount(doubt))
        if n_rows > MANY_DOUBTS:
            _settle(held, which, points, batch, n_words, n_rows)
            n_words, n_rows = 0, 0
    _settle(held, which, points, batch, n_words, n_rows)
    return n_pairs


@inner
def enclose(held, points, bounds, low, high, centres, slack):
    """Code-exact centre and radius (in units, rounded up) of each of four segments of points.

    `low` and `high` (p,) are scratch.
    """
    n_columns, a_unit = points.shape[1], 1.0 / held.unit
    for s in range(bounds.shape[0] - 1):
        start, stop = bounds[s], bounds[s + 1]
        if start == stop:
            continue
        for k in range(n_columns):
            low[k] = high[k] = points[start, k]
        for j in range(start + 1, stop):
            for k in range(n_columns):
                low[k], high[k] = min(low[k], points[j, k]), max(high[k], points[j, k])
        for k in range(n_columns):
            middle = low[k] + (high[k] - low[k]) // 2 - held.lows[k]
            code = min(max(np.int64(middle * a_unit + 0.5), 0), LARGEST_CODE)
            centres[s, k] = code
            low[k] = held.lows[k] + code * held.unit  # the centre
        radius = 0
        for j in range(start, stop):
            radius = max(radius, exact_distance(points[j], low))
        slack[s] = min((radius + held.unit - 1) // held.unit, 65535)
