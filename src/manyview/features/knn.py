"""Nearest neighbours by cosine, exact and in bounded memory, and the class that they vote for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.features.gain import Share

QUERIES = 1024  # at a time
BANK = 16384  # rows at a time: a tile of similarities takes 64 MB


def knn(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, query_labels: Tensor, *, k: int = 20, temperature: float = 0.1
) -> Share:
    """The share of queries (n, d) whose class the k nearest of the bank (m, d) vote for, as `knn_votes` counts them.

    >>> knn(*features(encoder, train), *features(encoder, test))
    """
    _check_labels("query_labels", query_labels, queries)
    predicted = knn_predict(bank, bank_labels, queries, k=k, temperature=temperature)
    return Share.of(predicted == query_labels.to(predicted.device))


def knn_predict(bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int = 20, temperature: float = 0.1) -> Tensor:
    """(n,) the class with most of the votes."""
    return knn_votes(bank, bank_labels, queries, k=k, temperature=temperature).argmax(1)


@torch.no_grad()
def knn_votes(bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int = 20, temperature: float = 0.1) -> Tensor:
    """(n, classes) each class's share of the votes of the k bank vectors nearest by cosine.

    A neighbour votes for its class with weight exp(cosine / temperature) (Wu et al., CVPR 2018, section 3.4). Exact,
    and in pieces: beside the inputs it takes about 150 MB, however many they are.
    """
    _check(bank, bank_labels, queries, k, temperature)
    _check_labels("bank_labels", bank_labels, bank)
    near, rows = neighbours(bank, queries, k)
    return weighted_votes(near, bank_labels.to(rows.device)[rows], temperature, int(bank_labels.max()) + 1)


def weighted_votes(near: Tensor, voters: Tensor, temperature: float, classes: int) -> Tensor:
    weights = (near / temperature).softmax(1)  # shares, so that no temperature is too low for exp
    return weights.new_zeros(len(near), classes).scatter_add_(1, voters, weights)


@torch.no_grad()
def neighbours(bank: Tensor, queries: Tensor, k: int, *, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest cosines (n, k) of queries (n, d) with the bank (m, d), the largest first, and their rows there.

    own: (n,) the row of the bank that each query is itself, and that is no neighbour of it.
    """
    nobody = torch.full((len(queries),), -1, device=queries.device)
    selves = (nobody if own is None else own).split(QUERIES)
    parts = [_nearest(bank, part, k, self) for part, self in zip(queries.split(QUERIES), selves, strict=True)]
    near, rows = zip(*parts, strict=True)
    return torch.cat(near), torch.cat(rows)


def _nearest(bank: Tensor, queries: Tensor, k: int, own: Tensor) -> tuple[Tensor, Tensor]:
    """Merges the best so far with the best of each piece of the bank."""
    queries = F.normalize(queries.to(torch.promote_types(queries.dtype, torch.float32)), dim=1)
    best = queries.new_empty(len(queries), 0)
    rows = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for start in range(0, len(bank), BANK):
        products = queries @ F.normalize(bank[start : start + BANK].to(queries), dim=1).T
        here = ((own >= start) & (own < start + BANK)).nonzero()[:, 0]
        products[here, own[here] - start] = -torch.inf
        near, found = products.topk(min(k, products.shape[1]), dim=1)
        best, place = torch.cat([best, near], 1).topk(min(k, best.shape[1] + near.shape[1]), dim=1)
        rows = torch.cat([rows, found + start], 1).gather(1, place)
    return best, rows


def _check(bank: Tensor, bank_labels: Tensor, queries: Tensor, k: int, temperature: float) -> None:
    if bank.dim() != 2 or queries.dim() != 2 or bank.shape[1] != queries.shape[1] or not len(queries):
        got = f"{tuple(bank.shape)} and {tuple(queries.shape)}"
        raise UserError("bank and queries", f"expected (m, d) and (n, d) with n >= 1, got {got}")
    check_votes(k, temperature, len(bank))
    for name, vectors in (("bank", bank), ("queries", queries)):
        if not torch.isfinite(vectors.sum(dtype=torch.float64)):  # a sum of half precision soon is not finite
            raise UserError(name, "holds NaN or infinite numbers; the encoder that made it has diverged")
    if len(bank_labels) == len(bank) and len(bank_labels.unique()) == 1 and int(bank_labels[0]) >= 0:
        raise UserError("bank_labels", f"all are of class {int(bank_labels[0])}; neighbours need two classes or more")


def check_votes(k: int, temperature: float, count: int) -> None:
    if not 1 <= k <= count:
        remedy = "give a smaller k or more data" if k > count else "give a larger k"
        raise UserError("k", f"expected 1 to the {count} vectors of the bank, got {k}; {remedy}")
    if not temperature > 0:
        raise UserError("temperature", f"expected a positive number, got {temperature}")


def _check_labels(name: str, labels: Tensor, vectors: Tensor) -> None:
    if labels.shape != (len(vectors),) or labels.dtype != torch.long:
        raise UserError(name, f"expected int64 ({len(vectors)},), got {labels.dtype} {tuple(labels.shape)}")
    missing = int((labels < 0).sum())
    if missing:
        raise UserError(name, f"{missing} of {len(labels)} have no label (-1); leave them out, or name another set")
