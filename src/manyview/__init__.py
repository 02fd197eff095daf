"""manyview: image representations without labels, from many views and many positives."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyview import (
        data,
        diagnose,
        distributed,
        embeddings,
        encoders,
        evaluate,
        losses,
        methods,
        negatives,
        pairs,
        report,
        search,
        views,
    )
    from manyview.comparison import compare
    from manyview.contract import Negatives, Triple
    from manyview.launch import pretrain
    from manyview.pairs import contrast
    from manyview.run import Run, load

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
    "distributed",
    "embeddings",
    "encoders",
    "evaluate",
    "load",
    "losses",
    "methods",
    "negatives",
    "pairs",
    "pretrain",
    "report",
    "search",
    "views",
]

_MODULES = (
    "data", "diagnose", "distributed", "embeddings", "encoders", "evaluate", "losses", "methods", "negatives", "pairs",
    "report", "search", "views",
)  # fmt: skip
_HOMES = {
    "Negatives": "manyview.contract",
    "Run": "manyview.run",
    "Triple": "manyview.contract",
    "compare": "manyview.comparison.comparing",
    "contrast": "manyview.pairs",
    "load": "manyview.run",
    "pretrain": "manyview.launch",
}


def __getattr__(name: str) -> Any:
    """Imports a part when it is first asked for: `manyview --help` need not wait for torch."""
    if name in _MODULES:
        return import_module(f"manyview.{name}")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'manyview' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
