"""dshift clusters histograms at any scale, without choosing how many clusters.

    result = dshift.fit("histograms.zarr", bandwidth=4)

Names load on first use, so that importing dshift is quick and starts nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOM_OF_NAME = {
    "fit": "api",
    "plan": "api",
    "histogram": "histograms",
    "predict": "predicting",
    "report": "reporting",
    "sweep": "sweeping",
    "stack": "stacks",
    "unstack": "stacks",
    "MedianShift": "estimator",
    "Forecast": "planning",
    "Metric": "metrics",
    "BlockFailed": "errors",
    "ClusterLost": "errors",
    "DshiftError": "errors",
    "InvalidInput": "errors",
    "InvalidType": "errors",
    "MissingData": "errors",
    "PlanRefused": "errors",
    "StoreFailed": "errors",
    "StoreInUse": "errors",
    "UnreadableData": "errors",
}
_ROOMS = ("demo", "engine")

# Without `MedianShift`: a star import must not need scikit-learn.
__all__ = [
    "BlockFailed",
    "ClusterLost",
    "DshiftError",
    "Forecast",
    "InvalidInput",
    "InvalidType",
    "Metric",
    "MissingData",
    "PlanRefused",
    "StoreFailed",
    "StoreInUse",
    "UnreadableData",
    "__version__",
    "fit",
    "histogram",
    "plan",
    "predict",
    "report",
    "stack",
    "sweep",
    "unstack",
]

if TYPE_CHECKING:
    from dshift.api import fit, plan
    from dshift.errors import (
        BlockFailed,
        ClusterLost,
        DshiftError,
        InvalidInput,
        InvalidType,
        MissingData,
        PlanRefused,
        StoreFailed,
        StoreInUse,
        UnreadableData,
    )
    from dshift.estimator import MedianShift as MedianShift
    from dshift.histograms import histogram
    from dshift.metrics import Metric
    from dshift.planning import Forecast
    from dshift.predicting import predict
    from dshift.reporting import report
    from dshift.stacks import stack, unstack
    from dshift.sweeping import sweep


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"dshift.{name}")
    if name not in _ROOM_OF_NAME:
        raise AttributeError(f"module 'dshift' has no attribute {name!r}")
    value = getattr(import_module(f"dshift.{_ROOM_OF_NAME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
