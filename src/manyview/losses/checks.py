"""Checks of what a loss is given, and the average that it ends with.

What a GPU would have to be waited for, the values of its tensors, is checked on a CPU only.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyview.core.distributed import Gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives

Reduction = Literal["mean", "none"]


class Inputs(NamedTuple):
    """What a loss was given, after the checks, in float32 or wider."""

    query: Tensor  # (N, d)
    positives: Tensor  # (N, K, d)
    present: Tensor | None  # (N, K)

    def similarities(self) -> Tensor:
        """The inner products <q_i, k_im>, (N, K)."""
        return (self.query[:, None] * self.positives).sum(-1)  # not a matmul, which autocast would round

    def distances(self) -> Tensor:
        """The squares |q_i - k_im|^2, (N, K); by difference, so that coinciding points have gradient zero."""
        return (self.query[:, None] - self.positives).square().sum(-1)

    def over_positives(self, values: Tensor) -> Tensor:
        """The mean (N,) of values (N, K) over the positives that are there; 0 where there are none."""
        if self.present is None:
            return values.mean(1) if values.shape[1] > 1 else values[:, 0]
        here = self.present
        return values.masked_fill(~here, 0).sum(1) / here.sum(1).clamp_min(1)


def check_inputs(query: Tensor, positives: Tensor, present: Tensor | None, reduction: str) -> Inputs:
    for name, tensor in (("query", query), ("positives", positives)):
        if not isinstance(tensor, Tensor):
            raise UserError(name, f"expected a tensor, got {type(tensor).__name__}")
    if query.dim() != 2 or not query.is_floating_point():
        raise UserError("query", f"expected floats (N, d), got {query.dtype} {tuple(query.shape)}")
    n, d = query.shape
    fits = positives.dim() == 3 and positives.shape[0] == n and positives.shape[2] == d
    if not fits or not positives.is_floating_point():
        got = f"{positives.dtype} {tuple(positives.shape)}"
        hint = "; one positive each is positives[:, None]" if positives.shape == query.shape else ""
        raise UserError("positives", f"expected floats ({n}, K, {d}) for query {(n, d)}, got {got}{hint}")
    if positives.shape[1] == 0:
        raise UserError("positives", f"a query needs at least one, got K = 0 in {tuple(positives.shape)}")
    if present is not None and (present.shape != positives.shape[:2] or present.dtype != torch.bool):
        raise UserError(
            "present",
            f"expected bool {tuple(positives.shape[:2])} for positives {tuple(positives.shape)}, "
            f"got {present.dtype} {tuple(present.shape)}",
        )
    if reduction not in ("mean", "none"):
        raise UserError("reduction", f"expected 'mean' or 'none', got {reduction!r}")
    if present is not None and reduction == "none":
        raise UserError(
            "reduction", "'none' has no meaning with `present`, whose mean is over what is there; use 'mean'"
        )
    wide = torch.promote_types(torch.promote_types(query.dtype, positives.dtype), torch.float32)
    here = None if present is None else positives.masked_fill(~present[:, :, None], 0)  # what is absent may be NaN
    return Inputs(query.to(wide), (positives if here is None else here).to(wide), present)


def check_negatives(query: Tensor, negatives: Negatives) -> None:
    if not isinstance(negatives, Negatives):
        hint = "; a queue or a bank has .negatives(...)" if hasattr(negatives, "negatives") else ""
        raise UserError("negatives", f"expected Negatives(keys, ...), got {type(negatives).__name__}{hint}")
    n, d = query.shape
    for source in negatives.sources:
        if source.keys.shape[-1] != d:
            raise UserError("negatives", f"keys {tuple(source.keys.shape)} do not have the query's d = {d}")
        if source.keys.device != query.device:
            raise UserError("negatives", f"keys are on {source.keys.device}, the query is on {query.device}")
        if source.keys.dim() == 3 and len(source.keys) != n:
            raise UserError("negatives", f"keys {tuple(source.keys.shape)} are for another number of queries than {n}")
        if source.split is not None and source.split[0] > n:
            raise UserError("negatives", f"split: {source.split[0]} is beyond the {n} queries")
        for name, rows in (("index", source.index), ("query_ids", source.query_ids)):
            if rows is not None and len(rows) != n:
                raise UserError("negatives", f"{name} {tuple(rows.shape)} is for another number of queries than {n}")


def check_temperature(temperature: float | Tensor, like: Tensor) -> float | Tensor:
    """Checks a temperature, which may be a tensor that learns: a single number, then in the precision of `like`."""
    if isinstance(temperature, Tensor) and temperature.numel() != 1:
        raise UserError("temperature", f"expected one number, got shape {tuple(temperature.shape)}")
    check_positive("temperature", temperature.detach() if isinstance(temperature, Tensor) else temperature)
    return temperature.reshape(()).to(like) if isinstance(temperature, Tensor) else temperature


def check_positive(name: str, value: float | Tensor) -> None:
    if isinstance(value, Tensor) and value.requires_grad:
        raise UserError(name, "expected a number, got a tensor that requires gradient; only a temperature can learn")
    if not isinstance(value, int | float | Tensor):
        raise UserError(name, f"expected a number, got {value!r}")
    if readable(value) and not 0 < value < math.inf:
        raise UserError(name, f"expected a positive number, got {number(value)}")


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def readable(value: float | Tensor) -> bool:
    """Says whether a value can be read without waiting for a GPU."""
    return not isinstance(value, Tensor) or value.device.type == "cpu"


def number(value: float | Tensor) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else value


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise UserError(name, f"expected one of {', '.join(map(repr, choices))}, got {value!r}")


def check_pooled(reduction: str, why: str) -> None:
    if reduction == "none":
        raise UserError("reduction", f"'none' is not possible, {why}; use 'mean'")


def average(values: Tensor, present: Tensor | None, reduction: str, gather: Gather) -> Tensor:
    """The mean over the queries of all processes, leaving out those without any positive; or one value each."""
    if reduction == "none":
        return values
    values, here = gathered(values, present, gather)
    return values.mean() if here is None else values.masked_fill(~here, 0).sum() / here.sum()


def log_average_exp(logs: Tensor, counts: Tensor, present: Tensor | None, gather: Gather) -> Tensor:
    """Takes ln( sum_i exp(log_i) / sum_i count_i ) over the queries of all processes that `average` counts."""
    logs, here = gathered(logs, present, gather)
    counts = gather(counts)
    if here is not None:
        logs, counts = logs.masked_fill(~here, -torch.inf), counts.masked_fill(~here, 0)
    return logs.logsumexp(0) - counts.sum().log()


def gathered(values: Tensor, present: Tensor | None, gather: Gather) -> tuple[Tensor, Tensor | None]:
    """The per-query values of all processes and, with `present`, whether a query has any positive."""
    values = gather(values)
    here = None if present is None else gather(present.any(1))
    if not len(values) or (here is not None and readable(here) and not here.any()):
        raise UserError(
            "query", f"expected at least one with a positive, got {len(values)} queries, none with a positive"
        )
    return values, here
