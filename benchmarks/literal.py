"""The same losses written as the papers print them: whole score matrices, whole covariances, gathered banks.

What one would write in plain torch without manyview. `losses.py` measures against these, after checking that both give
the same loss. Queries (N, d), keys and the rows of queues and banks are unit vectors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def dense_info_nce(views: list[Tensor], temperature: float) -> Tensor:
    """NT-Xent of two views (N, d): the 2N x 2N scores, the diagonal masked, cross entropy with the other view."""
    x = torch.cat(views)
    scores = (x @ x.T / temperature).fill_diagonal_(-torch.inf)
    other_view = torch.arange(len(x)).roll(len(views[0]))
    return F.cross_entropy(scores, other_view)


def jcl_algorithm_1(query: Tensor, positives: Tensor, queue: Tensor, temperature: float, strength: float) -> Tensor:
    """JCL Algorithm 1 with Eq. 8. positives (N, M', d), queue (K, d); the covariances (N, d, d) are formed."""
    mean = positives.mean(1)
    centred = positives - mean[:, None]
    covariance = centred.transpose(1, 2) @ centred / positives.shape[1]
    spread = torch.einsum("nd,nde,ne->n", query, covariance, query) * strength / (2 * temperature**2)
    positive = (query * mean).sum(1) / temperature + spread
    logits = torch.cat([positive[:, None], query @ queue.T / temperature], 1)  # N x (1 + K)
    first = torch.zeros(len(query), dtype=torch.long)
    return F.cross_entropy(logits, first) + spread.mean()  # Eq. 8 subtracts the positive without its spread


def cacr_algorithm_3(queries: list[Tensor], keys: list[Tensor], queue: Tensor, t_pos: float, t_neg: float) -> Tensor:
    """CACR Algorithm 3 with intra-batch negatives, line by line: K + 1 views of queries and of keys, queue (K, d)."""
    stacked = torch.stack(keys)  # (K + 1) x M x d
    pulled = pushed = torch.zeros(())
    for k, q in enumerate(queries):
        others = [v for v in range(len(queries)) if v != k]
        cost = (q - stacked[others]).norm(p=2, dim=-1).pow(2).transpose(1, 0)  # M x K
        with torch.no_grad():
            weights = torch.softmax(cost.mul(t_pos), dim=1)
        pulled = pulled + (cost * weights).sum(1).mean()

        distances = torch.cat([2 - 2 * torch.mm(q, queue.T), _within_batch(q)], dim=1)
        weights = torch.softmax(distances.mul(-t_neg), dim=1)
        pushed = pushed + (distances.mul(-1.0) * weights).sum(1).mean()
    return pulled / len(queries) + pushed / len(queries)


def _within_batch(q: Tensor) -> Tensor:
    """Squared distances M x (M - 1) by the norm of differences, as Algorithm 3 has it."""
    others = ~torch.eye(len(q), dtype=torch.bool)
    distances: Tensor = torch.norm(q[:, None] - q, dim=-1)
    return distances.pow(2).masked_select(others).view(len(q), len(q) - 1)


def bank_softmax(query: Tensor, bank: Tensor, own: Tensor, drawn: Tensor, temperature: float) -> Tensor:
    """CMC Eq. 2 with a bank (M, d): `own` (N,) is each query's row, `drawn` (N, m) its negatives."""
    scores = _bank_scores(query, bank, own, drawn) / temperature
    return F.cross_entropy(scores, torch.zeros(len(query), dtype=torch.long))


def bank_nce(query: Tensor, bank: Tensor, own: Tensor, drawn: Tensor, temperature: float, partition: float) -> Tensor:
    """CMC Eq. 10-11 with noise uniform over the bank's rows, the noise terms summed; `partition` is Z."""
    h = torch.exp(_bank_scores(query, bank, own, drawn) / temperature)
    noise = drawn.shape[1] * partition / len(bank)
    data = torch.log(h[:, 0] / (h[:, 0] + noise))
    mistaken = torch.log(noise / (h[:, 1:] + noise)).sum(1)
    return -(data + mistaken).mean()


def _bank_scores(query: Tensor, bank: Tensor, own: Tensor, drawn: Tensor) -> Tensor:
    """N x (1 + m): the rows are gathered, the positive first, and multiplied by bmm."""
    rows = bank[torch.cat([own[:, None], drawn], 1)]  # N x (1 + m) x d
    return torch.bmm(rows, query[:, :, None]).squeeze(2)
