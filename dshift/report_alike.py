"""What is near to what: modes in an order, and samples on a plane."""

from __future__ import annotations

import numpy as np

from dshift.metrics import Float, Int
from dshift.report_ruler import Ruler


def alike_order(distances: Float) -> Int:
    """Order rows so that neighbours are alike: a short path through all, found by reversals."""
    count = len(distances)
    order = np.argsort(distances[int(distances.sum(axis=1).argmax())], kind="stable")
    for _ in range(50 if count > 2 else 0):
        before = order.copy()
        for i in range(-1, count - 2):  # reverse order[i + 1 : j + 1] where that shortens the path
            j = np.arange(i + 1, count)
            head, tail = order[i + 1], order[j]
            after = order[np.minimum(j + 1, count - 1)]
            last = j == count - 1
            gain = np.where(last, 0.0, distances[tail, after] - distances[head, after])
            if i >= 0:
                gain += distances[order[i], head] - distances[order[i], tail]
            best = int(gain.argmax())
            if gain[best] > 1e-9 * distances.max():
                order[i + 1 : j[best] + 1] = order[i + 1 : j[best] + 1][::-1].copy()
        if (order == before).all():
            break
    return order if np.argmin(order) <= count // 2 else order[::-1]


def place_on_plane(ruler: Ruler, landmarks: Float, points: Float) -> tuple[Float, float] | None:
    """Place points by classical scaling of their distances to landmarks.

    Returns the places (n, 2), and how much of the landmarks' spread the plane keeps.
    """
    squares = ruler.squared(ruler.table(landmarks, landmarks))
    means = squares.mean(axis=0)
    centered = -0.5 * (squares - means - means[:, None] + squares.mean())
    values, vectors = np.linalg.eigh((centered + centered.T) / 2)
    if not values[-1] > 1e-12 * max(float(squares.max()), 1e-300):
        return None
    values_2, axes = values[:-3:-1], vectors[:, :-3:-1]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1][: axes.shape[1]]] < 0, -1, 1)
    scale = np.where(values_2 > 1e-9 * values_2[0], values_2, np.inf)
    places = -0.5 * (ruler.squared(ruler.table(points, landmarks)) - means) @ axes
    kept = float(np.maximum(values_2, 0).sum() / np.abs(values).sum())
    return places / np.sqrt(scale), kept
