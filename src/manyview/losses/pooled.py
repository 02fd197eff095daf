"""Which losses pool all queries before they are reduced, and so have no value per query."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from manyview.losses.align_uniform import align_uniform
from manyview.losses.cacr import cacr, repulsion
from manyview.losses.dcl import dcl


def is_pooled(loss: Callable[..., Any]) -> bool:
    """Whether a loss compares all queries: AU-CL's uniformity, CACR's RBF cost (Eq. 14), DCLW's weights."""
    function = loss
    while isinstance(function, partial):
        function = function.func
    if function in (cacr, repulsion):
        return bool(inspect.signature(loss).parameters["cost"].default == "rbf")
    if function is dcl:
        return inspect.signature(loss).parameters["sigma"].default is not None
    return function is align_uniform
