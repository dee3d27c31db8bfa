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

from dshift.kernels import code_distance, inlined, inner, jit
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
from dshift.simd_distances import (
    l1_tile,
    l1_tile_near,
    l1_tile_of_one,
    lanes_inside,
    lanes_outside,
    twice_larger,
)

SIXTEEN = QUERIES * QUERIES  # points
A_LINE = 8  # coordinates of a cache line
FETCHED = 8 * A_LINE  # of a row; the machine goes on by itself
MANY_DOUBTS = 192  # rows in doubt that wait to be decided, and those of one more tile
MODULUS = 2**16  # of sums of codes
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


class Coded(NamedTuple):
    """Points, or centres of some that are near each other, as codes."""

    codes: Any  # (m, p) uint16, filled up with columns of zeros
    sums: Any  # (m,) uint16: of a point's codes, modulo 2**16
    slack: Any  # (m,) uint16: units within which all lies that a point stands for


def make_coded(n_points: int, n_columns: int) -> Coded:
    """Return scratch."""
    return Coded(
        codes=np.zeros((n_points, whole_quads(n_columns)), np.uint16),
        sums=np.zeros(n_points, np.uint16),
        slack=np.zeros(n_points, np.uint16),
    )


@jit
def encode_tiles(coords, rows, lows, unit, first, last, codes, sums, residuals):
    """Codes of `coords[rows[first:last]]` in tiles, their sums, and what rows lose to rounding.

    Any code near the value will do, since the loss is exact: a product takes half the time of a
    division.
    """
    a_unit, n_columns = 1.0 / unit, coords.shape[1]
    row_codes = np.zeros((codes.shape[2], QUAD), np.uint16)
    in_line = row_codes.reshape(codes.shape[2] * QUAD)
    for slot in range(first, last):
        tile, eight, row = slot // LANES, slot % LANES // EIGHT, slot % EIGHT
        lost, total, source = 0, 0, rows[slot]
        for k in range(n_columns):
            value = coords[source, k] - lows[k]
            code = np.int64(value * a_unit + 0.5)
            in_line[k] = code
            total += code
            lost += abs(value - code * unit)
        residuals[slot], sums[tile, slot % LANES] = lost, total & 0xFFFF
        for quad in range(codes.shape[2]):
            for k in range(QUAD):
                codes[tile, eight, quad, row, k] = row_codes[quad, k]


@inner
def encode_points(held, points, coded):
    """Codes of points, clipped to their range, and what they lose to that in units, up."""
    codes, sums, slack = coded.codes, coded.sums, coded.slack
    a_unit = 1.0 / held.unit
    for j in range(points.shape[0]):
        lost, total = 0, 0
        for k in range(points.shape[1]):
            value = points[j, k] - held.lows[k]
            code = min(max(np.int64(value * a_unit + 0.5), 0), LARGEST_CODE)
            codes[j, k] = code
            total += code
            lost += abs(value - code * held.unit)
        slack[j] = min((lost + held.unit - 1) // held.unit, 65535)
        sums[j] = total & 0xFFFF


@inner
def enclose(points, first, last, centres, part, corners):
    """Make a centre that of the box around the coded points first..last - 1, with their radius."""
    codes, slack, low, high = points.codes, points.slack, corners[0], corners[1]
    for k in range(low.shape[0]):
        low[k] = high[k] = codes[first, k]
    for j in range(first + 1, last):
        for k in range(low.shape[0]):
            low[k], high[k] = min(low[k], codes[j, k]), max(high[k], codes[j, k])
    total = np.uint16(0)
    for k in range(low.shape[0]):
        centre = np.uint16(low[k] + np.uint16(high[k] - low[k]) // np.uint16(2))
        centres.codes[part, k] = centre
        total = np.uint16(total + centre)
    centres.sums[part] = total
    radius = np.int64(0)
    for j in range(first, last):
        # Points are within their slack of their codes.
        away = code_distance(codes[j], centres.codes[part]) + np.int64(slack[j])
        radius = max(radius, away)
    centres.slack[part] = min(radius, 65535)


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
def find_alike(alike, codes, first, last):
    """List the fours of columns in which points first..last - 1 are alike, and the others.

    At least one counts as another.
    """
    differ, others, quads = alike.differ, alike.others, alike.quads
    for k in range(differ.shape[0]):
        differ[k] = 0
    for j in range(first + 1, last):
        for k in range(differ.shape[0]):
            differ[k] |= codes[j, k] ^ codes[first, k]
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
def _measure_alike(held, tile, word, codes, first, alike, near):
    """Set what rows of `word` add to distances in the columns where all points are alike."""
    quads, n_quads, none, base = alike.quads, alike.n[1], alike.none, alike.base
    if n_quads > 0 and near:
        twice_larger(held.codes, tile, word, codes, first, quads, n_quads, none, base)
    elif n_quads > 0:
        l1_tile_of_one(held.codes, tile, word, codes, first, quads, n_quads, none, base)


@inlined
def _look(held, tile, word, coded, first, near, alike, distances, inside, unsure):
    """Words of the rows of `word` in a tile that are inside for four points from `first`; unsure.

    `near` says that no row of `word` is 2**16 units from them, or farther. Returns how many
    distances were evaluated.
    """
    quads, n_quads, base = alike.others, alike.n[0], alike.base
    codes, slack = coded.codes, coded.slack
    if near:
        n_pairs = l1_tile_near(
            held.codes,
            tile,
            word,
            codes,
            first,
            quads,
            n_quads,
            base,
            distances,
            held.sums,
            coded.sums,
        )
    else:
        n_pairs = l1_tile(held.codes, tile, word, codes, first, quads, n_quads, base, distances)
    for q in range(QUERIES):
        sure = lanes_inside(distances, q, held.reach_in, tile, slack[first + q]) & word
        never = lanes_outside(distances, q, held.reach_out, tile, slack[first + q])
        inside[q], unsure[q] = sure, word & ~sure & ~never
    return n_pairs


@inner
def classify(held, which, words, n_listed, centres, near, alike, distances, inside, unsure):
    """Words of the open rows surely inside their threshold for each of four centres, and unsure.

    Returns how many distances were evaluated.
    Open rows are those of `words[i]` in the tiles `which[i]`, i < n_listed. `near` says that none
    is 2**16 units from a centre, or farther. `distances` (4, 64) is scratch, and nothing is
    `alike`: centres of groups seldom are.
    """
    n_pairs = 0
    for i in range(n_listed):
        tile, word = np.int64(which[i]), words[i]
        n_pairs += _look(held, tile, word, centres, 0, near, alike, distances, inside[i], unsure[i])
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
def decide(held, which, words, n_listed, points, batch, near):
    """Decide the open rows of a batch, listed as for `classify`, for each of its points.

    For sixteen points together, then for four, then for each: all of it while a tile is in the
    cache. Where sixteens or fours settle nothing of some tiles, others are decided without them.
    In columns where all points are alike, rows have one distance to all of them.
    `batch.fours` and so on hold the codes, and `near` says that no open row is 2**16 units from any
    of them, or farther. Returns how many distances were evaluated.
    """
    members, common, start, n_lanes = batch.members, batch.common, batch.start[0], batch.n_lanes[0]
    inside, unsure, alike, distances = batch.inside, batch.unsure, batch.alike, batch.distances
    doubts, doubtful = batch.doubts, batch.doubtful
    n_pairs, n_sixteens, n_fours = 0, 0, 0  # the last two: that settled all rows of a tile
    n_words, n_rows = 0, 0  # in doubt
    for i in range(n_listed):
        tile, word = np.int64(which[i]), words[i]
        _measure_alike(held, tile, word, batch.points.codes, start, alike, near)
        if n_lanes <= SIXTEEN or (i >= TRIED and n_sixteens == 0):
            for part in range(QUERIES):
                inside[0, part], unsure[0, part] = _NONE, word
        else:
            n_pairs += _look(
                held, tile, word, batch.sixteens, 0, near, alike, distances, inside[0], unsure[0]
            )
        for sixteen in range(0, n_lanes, SIXTEEN):
            known = common[tile] | inside[0, sixteen // SIXTEEN]
            word = unsure[0, sixteen // SIXTEEN]
            if word == _NONE or (i >= TRIED and n_fours == 0):
                n_sixteens += np.int64(word == _NONE)
                for part in range(QUERIES):
                    inside[1, part], unsure[1, part] = _NONE, word
            else:
                coded, at = batch.fours, sixteen // QUERIES
                n_pairs += _look(
                    held, tile, word, coded, at, near, alike, distances, inside[1], unsure[1]
                )
            for four in range(sixteen, min(sixteen + SIXTEEN, n_lanes), QUERIES):
                part = (four - sixteen) // QUERIES
                open_rows = unsure[1, part]
                for lane in range(four, four + QUERIES):  # there is room for the last four
                    members[i, lane] = known | inside[1, part]
                if open_rows == _NONE:
                    n_fours += 1
                    continue
                coded, at = batch.points, start + four
                n_pairs += _look(
                    held, tile, open_rows, coded, at, near, alike, distances, inside[2], unsure[2]
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
def are_near(held, outer, coded, first, last):
    """Whether rows that are open for a group are all nearer than 2**16 units to some codes.

    They are within the reach, and `outer` units, of the centre of the group; and within `outer` are
    the points of the group, of each of which one of the codes is within its slack. Where distances
    saturated, rows are open that may be anywhere: reach and `outer` are what saturates then.
    """
    widest = np.int64(0)
    for i in range(first, last):
        widest = max(widest, np.int64(coded.slack[i]))
    return held.farthest + 2 * np.int64(outer) + widest < MODULUS - 1
