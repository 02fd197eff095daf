"""manyview: image representations without labels, from many views and many positives."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyview import data, diagnose, embeddings, encoders, evaluate, losses, memories, methods, report, views
    from manyview.comparison.compare import compare
    from manyview.core.negatives import Negatives, Triple
    from manyview.methods.contrast import contrast
    from manyview.training.launch import pretrain
    from manyview.training.load import load
    from manyview.training.run import Run

__version__ = "0.1.0"
__all__ = [
    "Negatives",
    "Run",
    "Triple",
    "__version__",
    "compare",
    "contrast",
    "data",
    "diagnose",
    "embeddings",
    "encoders",
    "evaluate",
    "load",
    "losses",
    "memories",
    "methods",
    "pretrain",
    "report",
    "views",
]

_HOMES = {
    "Negatives": "manyview.core.negatives",
    "Run": "manyview.training.run",
    "Triple": "manyview.core.negatives",
    "compare": "manyview.comparison.compare",
    "contrast": "manyview.methods.contrast",
    "load": "manyview.training.load",
    "pretrain": "manyview.training.launch",
}


def __getattr__(name: str) -> Any:
    """Imports a part when it is first asked for: `manyview --help` need not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'manyview' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name) if name in _HOMES else import_module(f"manyview.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
