"""A stand-in for the paper's private flights: simulated altitudes of seven kinds of missions.

Nothing here is a measurement. Each mission is a list of legs: an altitude (with what varies from
flight to flight), and how long it lasts. Between legs the aircraft climbs or sinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dshift
from examples.common import COLORS, Page
from examples.paper.methods import (
    ADDED_SCALE,
    PEERS,
    WASSERSTEIN_PEERS,
    Labelled,
    mean_and_deviation,
    median_shift_scores,
    peer_scores,
)

Float = NDArray[np.float64]

N_EACH = 24  # flights of a mission
N_OUTLIERS = 12
N_SETS, N_STARTS = 2, 50  # a stochastic method runs 100 times
EDGES = np.arange(0, 3_300, 50.0)  # metres
CLIMB = 5.0  # metres a second, give or take
SECONDS = 5.0  # between two values
VALLEY = 0.1
BEST_AT_FIRST = f"best scale, without {ADDED_SCALE}"
BANDWIDTH = 2.0  # bins, for the table of missions: 100 metres


@dataclass(frozen=True)
class Leg:
    """A stretch of a flight."""

    altitude: float  # metres
    spread: float  # of that altitude, from flight to flight
    minutes: float
    wobble: float = 8.0  # within the flight


MISSIONS = {
    "hover over a site": (Leg(60, 15, 4), Leg(150, 30, 40, 5)),
    "patrol low": (Leg(350, 60, 70, 30),),
    "transit": (Leg(1_500, 150, 55, 15),),
    "mountain rescue": (Leg(900, 80, 15), Leg(2_300, 150, 20, 40), Leg(900, 80, 15)),
    "survey at two heights": (Leg(600, 60, 30), Leg(1_100, 80, 30)),
    "training circuits": tuple(Leg(h, 25, 4) for h in (300, 30) * 6),
    "climb and return": (Leg(2_800, 120, 3),),
}


def fly(legs: tuple[Leg, ...], rng: np.random.Generator) -> Float:
    """Return the altitudes of one flight, one every few seconds, from ground to ground."""
    parts, height = [np.zeros(int(rng.integers(10, 60)))], 0.0
    climb = CLIMB * rng.uniform(0.8, 1.3) * SECONDS
    longer = rng.uniform(0.6, 1.6)
    for leg in (*legs, Leg(0, 0, 1, 0)):
        target = max(0.0, rng.normal(leg.altitude, leg.spread))
        way = np.arange(height, target, np.copysign(climb, target - height))
        n_level = int(leg.minutes * longer * rng.uniform(0.8, 1.2) * 60 / SECONDS)
        level = target + np.cumsum(rng.normal(0, leg.wobble, n_level)) / 6
        parts += [way, level]
        height = target
    return np.clip(np.concatenate(parts), 0, EDGES[-1] - 1)


def stray(rng: np.random.Generator) -> tuple[Leg, ...]:
    """Return a mission of no kind."""
    n = int(rng.integers(1, 6))
    return tuple(Leg(rng.uniform(50, 3_000), 0, rng.uniform(2, 50)) for _ in range(n))


def simulate(seed: int, n_each: int = N_EACH, n_outliers: int = N_OUTLIERS) -> pd.DataFrame:
    """Return a long table: one row per value, with its flight and the flight's mission."""
    rng = np.random.default_rng(seed)
    plans = [(k, legs) for k, legs in enumerate(MISSIONS.values()) for _ in range(n_each)]
    plans += [(-1, stray(rng)) for _ in range(n_outliers)]
    flights = [fly(legs, rng) for _, legs in plans]
    lengths = [len(flight) for flight in flights]
    return pd.DataFrame(
        {
            "flight": np.repeat(np.arange(len(plans)), lengths),
            "mission": np.repeat([kind for kind, _ in plans], lengths),
            "altitude": np.concatenate(flights),
        }
    )


def count_altitudes(table: pd.DataFrame) -> Labelled:
    """Return one histogram per flight: flights of any length become comparable."""
    counts = dshift.histogram(table, EDGES, id="flight", value="altitude", units="m")
    truth = table.groupby("flight").mission.first().to_numpy()
    return Labelled(counts.values, truth)


def compare(page: Page, small: bool) -> None:
    """Fill in the table of methods, and draw what median shift finds."""
    sizes = {"n_each": 8, "n_outliers": 3} if small else {}
    tables = [simulate(seed, **sizes) for seed in range(1 if small else N_SETS)]
    sets = [count_altitudes(table) for table in tables]
    ours = median_shift_scores(sets, "auto", VALLEY)
    rows = [
        {
            "method": "**Wasserstein median shift**",
            "defaults": mean_and_deviation(ours.default),
            BEST_AT_FIRST: mean_and_deviation(ours.tuned_at_first),
            "best scale": mean_and_deviation(ours.tuned),
        }
    ]
    for method in (*(PEERS[1:] if small else PEERS), *WASSERSTEIN_PEERS):
        on_w1 = method in WASSERSTEIN_PEERS
        found = peer_scores(
            method,
            sets,
            2 if small else N_STARTS,
            (lambda one: one.cdfs) if on_w1 else (lambda one: one.shares),
            "cityblock" if on_w1 else "euclidean",
        )
        rows.append(
            {
                "method": method.name,
                "defaults": mean_and_deviation(found.default),
                BEST_AT_FIRST: mean_and_deviation(found.tuned_at_first) if found.scaled else "",
                "best scale": mean_and_deviation(found.tuned) if found.scaled else "",
            }
        )
    page.table("flights", rows)
    result = dshift.fit(sets[0].counts, BANDWIDTH, valley=VALLEY, progress=False)
    page.table("missions", _who_is_where(sets[0], result.label.values))
    _draw(page, tables[0], sets[0])


def _who_is_where(one: Labelled, labels: NDArray[np.int64]) -> list[dict[str, object]]:
    """Return for each mission how its flights were divided."""
    rows = []
    for kind, name in [*enumerate(MISSIONS), (-1, "outliers, each of no kind")]:
        found, sizes = np.unique(labels[one.truth == kind], return_counts=True)
        largest = int(found[sizes.argmax()])
        others = int((labels[one.truth != kind] == largest).sum())
        rows.append(
            {
                "mission": name,
                "flights": int(sizes.sum()),
                "clusters that hold them": len(found),
                "in the largest of these": int(sizes.max()),
                "flights of other missions there": others,
            }
        )
    return rows


def _draw(page: Page, table: pd.DataFrame, one: Labelled) -> None:
    """Draw a flight of each mission beside its histogram."""
    figure, axes = plt.subplots(len(MISSIONS), 2, figsize=(8, 8.5), width_ratios=(2, 1))
    for kind, (name, (left, right)) in enumerate(zip(MISSIONS, axes, strict=True)):
        flight = int(np.argmax(one.truth == kind))
        series = table.altitude[table.flight == flight].to_numpy()
        minutes = np.arange(len(series)) * SECONDS / 60
        left.plot(minutes, series, color=COLORS[kind], linewidth=1)
        left.set(ylim=(0, EDGES[-1]), xlim=(0, 200), title=name)
        right.barh(EDGES[:-1], one.shares[flight], 50, align="edge", color=COLORS[kind])
        right.set(ylim=(0, EDGES[-1]), yticklabels=[], xticks=[])
        left.tick_params(labelbottom=kind == len(MISSIONS) - 1)
    axes[-1][0].set(xlabel="minutes")
    axes[-1][1].set(xlabel="share of the time, own scale")
    figure.supylabel("simulated altitude in metres", fontsize=9)
    page.picture("flights.svg", figure)
