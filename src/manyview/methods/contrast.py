"""A contrastive loss over a topology: in one call for your own training loop, and the sums it is made of."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Triple
from manyview.losses import LOSSES, Loss, info_nce
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings, check_shapes
from manyview.methods.topologies import Topology, each_copy, every_copy

SHARED_OPTIONS = ("present", "reduction", "gather")  # which a topology or `contrast` gives a loss


def total(triples: Iterable[Triple], loss: Loss | str, *, gather: Gather = no_gather, **options: Any) -> Tensor:
    """The sum of weight * loss over the triples; 0 if there are none. Vectors are taken as they are, of any length."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise UserError("loss", f"expected one of {', '.join(LOSSES)}, got {loss!r}")
        loss = LOSSES[loss]
    if options.get("reduction", "mean") != "mean":
        raise UserError(
            "reduction", f"expected 'mean', got {options['reduction']!r}; for one value per query call the loss itself"
        )
    _check_options(loss, options)
    more = options if gather is no_gather else {**options, "gather": gather}  # a loss of one's own may know no gather
    parts = [triple.weight * triple.loss(loss, **more) for triple in triples]
    return torch.stack(parts).sum() if parts else torch.zeros((), requires_grad=True)


def _check_options(loss: Loss, options: Mapping[str, Any]) -> None:
    """Refuses what a loss does not take, such as a temperature for CACR, which has t_pos and t_neg."""
    given = loss.func if isinstance(loss, partial) else loss
    taken = inspect.signature(given).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return
    own = [name for name, each in taken.items() if each.kind is each.KEYWORD_ONLY and name not in SHARED_OPTIONS]
    for name in options:
        if name not in taken:
            what = getattr(given, "__name__", "the loss")
            raise UserError(name, f"{what} takes none; it takes {', '.join(own) or 'no options'}")


def contrast(
    views: Tensor | Sequence[Tensor],
    *,
    loss: Loss | str = info_nce,
    ids: Tensor | None = None,
    topology: Topology = every_copy,
    present: Tensor | Sequence[Tensor] | None = None,
    gather: Gather = no_gather,
    normalize: bool = True,
    **options: Any,
) -> Tensor:
    """A contrastive loss in one call, for your own training loop.

    views: a list of V embeddings (N, d) of the same N images, or a tensor (V, N, d), not (N, V, d); made unit length
    unless normalize=False. loss: a function of `manyview.losses` or its name, with its own arguments as `options`. ids
    (N,): the images' numbers in the data set; without them each row is an image of its own. topology: who is whose
    positive and negative; `every_copy` is SimCLR's and DCL's, `each_copy` CACR's, `view_pairs` CMC's. present (V, N):
    which views exist, for `view_pairs`. gather: `manyview.core.distributed.gather` in several processes.

    >>> contrast([z1, z2], loss="dcl", temperature=0.1)
    >>> contrast([z1, z2, z3], loss="cacr", topology=each_copy, t_neg=0.9)
    """
    views = list(views)
    check_shapes("views", views, least=2)
    if present is not None:
        if topology in (every_copy, each_copy):
            raise UserError("present", "every_copy and each_copy need all views; give topology=view_pairs")
        Embeddings(views, ids, present=present, gather=gather)  # type: ignore[arg-type]
        views = [view.masked_fill(~here[:, None], 0) for view, here in zip(views, present, strict=True)]
    views = [F.normalize(_wide(view), dim=-1) for view in views] if normalize else views
    embedded = Embeddings(views, ids, present=present, gather=gather)  # type: ignore[arg-type]
    return total(topology(embedded, Memory()), loss, gather=gather, **options)


def _wide(view: Tensor) -> Tensor:
    """Casts to float32 at least: half precision would round lengths, and lose the guard against a zero vector."""
    return view.to(torch.promote_types(view.dtype, torch.float32))
