"""The embedded copies of a batch that topologies pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embedded copies, or views, of the same N images in the same order.

    queries        V tensors (N, d), or one (V, N, d)
    ids            (N,) name the images; without them each row is an image of its own
    keys           K tensors (N, d) of other copies or another tower, or (N, P, d) at the positions of feature maps, for
                   a topology that takes these; none: the queries are each other's keys
    index          (N,) the images' rows in the data, for a bank; without it the ids
    present        V masks (N,): which queries exist; what stands in the place of a missing one is never read
    keys_present   K masks (N,): which keys exist; with either of the two, the other is all of them if not given
    gather         joins the rows of all processes (`manyview.core.distributed.gather`)
    step           the number of the training step, which a bank's draws depend on
    labels         (N,) the images' classes, -1 where there is none, for a topology that goes by them
    """

    queries: Sequence[Tensor]
    ids: Tensor = None  # type: ignore[assignment]
    keys: Sequence[Tensor] = ()
    index: Tensor = None  # type: ignore[assignment]
    present: Sequence[Tensor] | None = None
    keys_present: Sequence[Tensor] | None = None
    gather: Gather = no_gather
    step: int = 0
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        queries, keys = list(self.queries), list(self.keys)
        check_shapes("queries", queries)
        if vectors := [key for key in keys if key.dim() <= 2]:
            check_shapes("keys", vectors, tuple(queries[0].shape))
        ids = _checked_ids(self.ids, queries[0], self.gather)
        _check_masks("present", self.present, len(queries), len(ids))
        _check_masks("keys_present", self.keys_present, len(keys), len(ids))
        settled = {"queries": queries, "keys": keys, "ids": ids, "index": ids if self.index is None else self.index}
        if self.present is not None or self.keys_present is not None:
            there = torch.ones_like(ids, dtype=torch.bool)
            settled["present"] = [there] * len(queries) if self.present is None else list(self.present)
            settled["keys_present"] = [there] * len(keys) if self.keys_present is None else list(self.keys_present)
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @property
    def alone(self) -> bool:
        """Says whether there is no other process, so that rows need not be looked for elsewhere."""
        return self.gather(self.ids) is self.ids

    def needs_all(self, copies: int = 1) -> None:
        """Refuses missing ones, and fewer copies than that."""
        check_shapes("queries", self.queries, least=copies)
        if self.present is not None:
            raise UserError("present", "needs all copies of all images; view_pairs and query_against_keys do without")


def _check_tensors(name: str, *given: object) -> None:
    for each in given:
        if not isinstance(each, Tensor):
            raise UserError(name, f"expected tensors, got {type(each).__name__}")


def check_shapes(
    name: str,
    given: Sequence[Tensor],
    shape: tuple[int, ...] | None = None,
    *,
    least: int = 1,
    count: int | None = None,
) -> None:
    _check_tensors(name, *given)
    shapes = [tuple(each.shape) for each in given]
    alike = len(set(shapes)) == 1 and len(shapes[0]) == 2 and (shape is None or shapes[0] == shape)
    if not alike or len(given) < least or (count is not None and len(given) != count):
        got = ", ".join(str(each) for each in shapes[:3]) + (", ..." if len(shapes) > 3 else "")
        wanted = f"{least} or more" if count is None else count
        raise UserError(name, f"expected {wanted} of one shape {shape or '(N, d)'}, got {len(given)} of shapes {got}")


def _checked_ids(ids: Tensor | None, like: Tensor, gather: Gather) -> Tensor:
    if ids is None:
        ids = torch.arange(len(like), device=like.device)
        if gather is not no_gather and gather(ids) is not ids:
            raise UserError("ids", "needed with several processes, whose rows would otherwise pass for the same images")
    _check_tensors("ids", ids)
    if ids.shape != (len(like),):
        raise UserError("ids", f"expected ({len(like)},) for embeddings {tuple(like.shape)}, got {tuple(ids.shape)}")
    return ids


def _check_masks(name: str, masks: Sequence[Tensor] | None, count: int, images: int) -> None:
    shapes = [] if masks is None else [(each.dtype, tuple(each.shape)) for each in masks]
    if masks is not None and shapes != [(torch.bool, (images,))] * count:
        raise UserError(name, f"expected {count} masks of bool ({images},), got {shapes}")
