"""Weighted nearest neighbours: how good an embedding is before anything is trained on top of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

QUERIES = 1024  # at a time
BANK = 16384  # rows at a time: a tile of similarities takes 64 MB


def knn(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    query_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.1,
) -> float:
    """The share of queries (n, d) whose class the k nearest of the bank (m, d) vote for, as `knn_votes` counts them.

    >>> knn(*features(encoder, train), *features(encoder, test))
    """
    _check_labels("query_labels", query_labels, queries)
    predicted = knn_predict(bank, bank_labels, queries, k=k, temperature=temperature)
    return float((predicted == query_labels.to(predicted.device)).double().mean())


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
    votes = torch.zeros(len(queries), int(bank_labels.max()) + 1, dtype=_wide(queries).dtype, device=queries.device)
    for start in range(0, len(queries), QUERIES):
        near, rows = _nearest(bank, queries[start : start + QUERIES], k)
        weights = (near / temperature).softmax(1)  # shares, so that no temperature is too low for exp
        votes[start : start + QUERIES].scatter_add_(1, bank_labels.to(rows.device)[rows], weights)
    return votes


def _nearest(bank: Tensor, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest cosines (n, k) and their rows in the bank: the best so far against each piece's best."""
    queries = F.normalize(_wide(queries), dim=1)
    best = queries.new_empty(len(queries), 0)
    rows = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for start in range(0, len(bank), BANK):
        piece = F.normalize(bank[start : start + BANK].to(queries), dim=1)
        near, found = (queries @ piece.T).topk(min(k, len(piece)), dim=1)
        best, place = torch.cat([best, near], 1).topk(min(k, best.shape[1] + near.shape[1]), dim=1)
        rows = torch.cat([rows, found + start], 1).gather(1, place)
    return best, rows


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _check(bank: Tensor, bank_labels: Tensor, queries: Tensor, k: int, temperature: float) -> None:
    if bank.dim() != 2 or queries.dim() != 2 or bank.shape[1] != queries.shape[1] or not len(queries):
        got = f"{tuple(bank.shape)} and {tuple(queries.shape)}"
        raise ValueError(f"bank and queries: expected (m, d) and (n, d) with n >= 1, got {got}")
    if not 1 <= k <= len(bank):
        raise ValueError(
            f"k: expected 1 to the {len(bank)} vectors of the bank, got {k}; give a smaller k or more data"
        )
    if not temperature > 0:
        raise ValueError(f"temperature: expected a positive number, got {temperature}")
    for name, vectors in (("bank", bank), ("queries", queries)):
        if not torch.isfinite(vectors.sum()):
            raise ValueError(f"{name}: holds NaN or infinite numbers; the encoder that made it has diverged")
    if len(bank_labels) == len(bank) and len(bank_labels.unique()) == 1 and int(bank_labels[0]) >= 0:
        raise ValueError(f"bank_labels: all are of class {int(bank_labels[0])}; neighbours need two classes or more")


def _check_labels(name: str, labels: Tensor, vectors: Tensor) -> None:
    if labels.shape != (len(vectors),) or labels.dtype != torch.long:
        raise ValueError(f"{name}: expected int64 ({len(vectors)},), got {labels.dtype} {tuple(labels.shape)}")
    missing = int((labels < 0).sum())
    if missing:
        raise ValueError(f"{name}: {missing} of {len(labels)} have no label (-1); leave them out, or name another set")
