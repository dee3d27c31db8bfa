"""The scikit-learn face of dshift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dshift.api import fit
from dshift.arguments import check_bandwidth
from dshift.errors import InvalidInput
from dshift.metrics import Metric
from dshift.predicting import ASSIGNS, predict
from dshift.sources import open_samples
from dshift.sweeping import auto_bandwidth
from dshift.vectors import Ramp, make_ramp

if TYPE_CHECKING:
    import xarray as xr

try:
    from sklearn.base import BaseEstimator, ClusterMixin
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "dshift.MedianShift needs scikit-learn 1.6 or newer: pip install 'dshift[sklearn]'"
    ) from error


class MedianShift(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Median shift in scikit-learn's manner: on vectors, or on histograms.

    Parameters
    ----------
    bandwidth : float, "auto", or array of one float per sample
        How far a sample reaches, in the unit of the distance. "auto" takes the middle of the
        longest range of bandwidths over which clusters stay, and fails where there is none.
    metric : {"l1", "wasserstein"} or dshift.Metric
        "l1", the default, is median shift on the rows as they are: any real numbers.
        "wasserstein" is Wasserstein median shift: rows are histograms, without negative entries
        and with a total above zero, and are normalised: the default of `dshift.fit`.
    edges : array (n_features + 1,), optional
        Edges of the bins of histograms; by default neighbouring bins are 1 apart.
    valley : float in [0, 1) or None
        Modes are one cluster unless the density between them falls by more than this share of the
        lower peak. None keeps every mode a cluster of its own.
    min_cluster_size : float
        Clusters of less total weight get the label -1.
    assign : {"climb", "nearest"}
        How `predict` works: by the same walk as `fit`, or by the nearest mode. With "nearest" the
        estimator does not keep the samples that it was fitted to.

    Attributes
    ----------
    labels_ : array (n_samples,)
        Clusters, 0 the largest; -1 for none.
    cluster_centers_ : array (n_clusters, n_features)
        The densest mode of each cluster; of histograms, with a total of 1.
    n_iter_ : int
        Steps of the longest walk.
    bandwidth_ : float or array
        What was used.
    result_ : xarray.Dataset
        All that `dshift.fit` found, for the samples of positive weight. With "l1", its `modes` are
        on a ramp (see `dshift.vectors`).
    n_features_in_ : int
        Coordinates or bins.

    Notes
    -----
    Samples of weight 0 do not take part in `fit`; they are labelled by `predict`. With "l1",
    coordinates are rounded to about 12 digits of the widest column's span (fewer with hundreds of
    columns), and from there on everything is exact.

    Examples
    --------
    >>> import numpy as np, dshift
    >>> rows = np.array([[9, 1, 0], [8, 2, 0], [0, 1, 9]])
    >>> dshift.MedianShift(bandwidth=0.5, metric="wasserstein").fit(rows).labels_.tolist()
    [0, 0, 1]
    >>> dshift.MedianShift(bandwidth=3).fit(rows - 5).cluster_centers_.tolist()
    [[3.5, -3.5, -5.0], [-5.0, -4.0, 4.0]]
    """

    def __init__(
        self,
        bandwidth: Any = 1.0,
        *,
        metric: str | Metric = "l1",
        edges: Any = None,
        valley: float | None = 0.1,
        min_cluster_size: float = 1,
        assign: str = "climb",
    ) -> None:
        self.bandwidth = bandwidth
        self.metric = metric
        self.edges = edges
        self.valley = valley
        self.min_cluster_size = min_cluster_size
        self.assign = assign

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.metric == "wasserstein"
        return tags

    def fit(self, X: Any, y: object = None, sample_weight: Any = None) -> MedianShift:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array (n_samples, n_features)
        y : ignored
        sample_weight : array (n_samples,), optional
            A sample of weight k counts as k samples.
        """
        self._check_parameters()
        vectors = self._check(X, reset=True)
        part, weights, bandwidth = np.ones(len(vectors), dtype=bool), None, self.bandwidth
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, len(vectors))
            part = weights > 0
            weights = weights[part]
            if np.shape(bandwidth) == (len(vectors),):
                bandwidth = np.asarray(bandwidth)[part]
        options: dict[str, Any] = {"weights": weights, "valley": self.valley, "progress": False}
        bandwidth, said = self._place(vectors[part], bandwidth, options)
        rows = self._rows_of(vectors)
        self.result_: xr.Dataset = fit(
            rows[part],
            bandwidth,
            metric=self._metric,
            edges=self._edges,
            min_cluster_size=self.min_cluster_size,
            **options,
        )
        self.result_.attrs |= said
        self._fitted = rows[part] if self.assign == "climb" else None
        self._keep(part)
        if not part.all():
            self.labels_[~part] = self._predict(rows[~part])
        return self

    def _check_parameters(self) -> None:
        if self.assign not in ASSIGNS:
            raise InvalidInput(
                f"`assign` is {self.assign!r}; allowed are {' and '.join(map(repr, ASSIGNS))}."
            )
        if self.metric not in ("l1", "wasserstein") and not isinstance(self.metric, Metric):
            raise InvalidInput(
                f"`metric` is {self.metric!r}; allowed are 'l1' (vectors), 'wasserstein' "
                "(histograms) and a dshift.Metric made from your own distance and center."
            )
        if self.edges is not None and self.metric != "wasserstein":
            raise InvalidInput("`edges` are of histograms; give them with metric='wasserstein'.")

    def _place(
        self, vectors: NDArray[Any], bandwidth: Any, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Choose how vectors become rows for `fit`; return its bandwidth, chosen if need be."""
        self._ramp: Ramp | None = None
        self._metric, self._edges = self.metric, self.edges
        said: dict[str, Any] = {}
        if self.metric == "l1":
            self._metric = "wasserstein"
            self._put_on_ramp(vectors, 1.0)
        if isinstance(bandwidth, str):
            rows, how = self._rows_of(vectors), {"metric": self._metric, "edges": self._edges}
            bandwidth, said = auto_bandwidth(bandwidth, open_samples(rows), **how, **options)
        if self.metric == "l1":
            widths = check_bandwidth(bandwidth, (len(vectors),))
            self._put_on_ramp(vectors, float(widths.max()))
        return bandwidth, said

    def _put_on_ramp(self, vectors: NDArray[Any], bandwidth: float) -> None:
        self._ramp = make_ramp(vectors, bandwidth)
        self._edges = self._ramp.edges

    def _rows_of(self, vectors: NDArray[Any]) -> NDArray[Any]:
        return vectors if self._ramp is None else self._ramp.histograms(vectors)

    def _keep(self, part: NDArray[np.bool_]) -> None:
        """Set what scikit-learn's users look for."""
        result = self.result_
        self.labels_ = np.full(len(part), -1, dtype=np.int32)
        self.labels_[part] = result.label.values
        clusters = result.cluster_of_mode.values
        by_density = np.lexsort((np.arange(len(clusters)), -result.density.values))
        found, first = np.unique(clusters[by_density], return_index=True)
        centers = result.modes.values[by_density[first[found >= 0]]]
        self.cluster_centers_ = centers if self._ramp is None else self._ramp.vectors(centers)
        self.n_iter_ = int(result.n_iter.max())
        self.bandwidth_ = result.attrs.get("bandwidth")
        if self.bandwidth_ is None:
            self.bandwidth_ = result.bandwidth.values

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Return the cluster of each row of `X`, -1 where no fitted sample is in reach."""
        check_is_fitted(self)
        return self._predict(self._rows_of(self._check(X, reset=False)))

    def _predict(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        found = predict(
            self.result_,
            rows,
            fitted=self._fitted,
            assign=self.assign,
            metric=self.metric if isinstance(self.metric, Metric) else None,
            progress=False,
        )
        return np.asarray(found.label.values)

    def _check(self, X: Any, reset: bool) -> NDArray[Any]:
        histograms = self.metric == "wasserstein"
        return np.asarray(validate_data(self, X, reset=reset, ensure_non_negative=histograms))


def _check_sample_weight(sample_weight: Any, n_samples: int) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weights.shape != (n_samples,) or weights.min() < 0 or not weights.any():
        raise InvalidInput(
            f"`sample_weight` has shape {weights.shape} and values from {weights.min()} to "
            f"{weights.max()}; give one number per sample, shape ({n_samples},), none below zero "
            "and some above zero."
        )
    return weights
