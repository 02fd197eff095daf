"""What a loss answers about itself, also when `functools.partial` has given it some of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from manyview.losses.align_uniform import align_uniform
from manyview.losses.cacr import cacr, repulsion
from manyview.losses.dcl import dcl
from manyview.losses.hard_negative import hard_negative
from manyview.losses.info_nce import info_nce
from manyview.losses.jcl import jcl
from manyview.losses.vicreg import vicreg

Loss = Callable[..., Tensor]


def option(loss: Loss, name: str) -> Any:
    """The value that a loss will use for an argument; None if it has no such argument, or no value for it yet.

    >>> option(partial(info_nce, temperature=0.07), "temperature")
    0.07
    """
    argument = inspect.signature(loss).parameters.get(name)
    return None if argument is None or argument.default is inspect.Parameter.empty else argument.default


def is_coupled(loss: Loss) -> bool:
    """Says whether DCL's q_B scales the gradient: the positive is in the denominator, so that easy tasks teach
    little."""
    return _function(loss) in (info_nce, jcl, hard_negative)


def needs_partition(loss: Loss) -> bool:
    """Says whether the loss wants NCE's `partition` and `population`, which only a memory bank keeps."""
    return "partition" in inspect.signature(loss).parameters


def bounds_information(loss: Loss) -> bool:
    """Says whether log k - L is a lower bound on the mutual information of query and key (CMC Eq. 6), k negatives a
    query.

    It is for the softmax that picks a positive out of k negatives and itself. NCE decides pair by pair, decoupled and
    reweighted losses are no likelihood of that choice: of them nothing follows.
    """
    return _function(loss) is info_nce


def is_pooled(loss: Loss) -> bool:
    """Says whether the loss is no mean over queries, so that it has no reduction="none".

    AU-CL's uniformity and CACR's RBF cost (Eq. 14) take the logarithm of a mean over all queries; DCLW's weights
    compare all pairs of the batch.
    """
    function = _function(loss)
    if function in (cacr, repulsion):
        return bool(option(loss, "cost") == "rbf")
    return function is align_uniform or (function is dcl and option(loss, "sigma") is not None)


def holds_std(loss: Callable[..., Tensor]) -> bool:
    """Says whether the loss holds the std of every dimension at 1, as VICReg does; others leave lengths as they are."""
    return _function(loss) is vicreg


def _function(loss: Loss) -> Loss:
    while isinstance(loss, partial):
        loss = loss.func
    return loss
