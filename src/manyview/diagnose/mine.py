"""How many nats two views share: the estimator MINE (Belghazi et al., ICML 2018), which CMC's Fig. 5 uses."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from manyview.core.errors import UserError

FEWEST = 64  # pairs, of which a fifth is held out


def mine(
    first: Tensor,
    second: Tensor,
    *,
    steps: int = 2000,
    batch: int = 512,
    hidden: int = 128,
    lr: float = 1e-3,
    decay: float = 0.99,
    seed: int = 0,
) -> float:
    """A lower bound of the mutual information of two views of the same N samples, in nats.

    A network T learns to tell pairs from strangers by maximising E_pairs[T] - ln E_strangers[exp T] (Donsker and
    Varadhan), with the running mean of the second expectation in the gradient (section 3.2), which a small batch would
    bias. The bound is of a fifth of the pairs that T has not learnt from, each against all others, so that what T has
    learnt by heart does not count. It stays below the truth where N is small, and below ln of the pairs compared.

    first, second  (N, ...) each: embeddings, or the views themselves
    decay          of that running mean
    """
    first, second = (_standardised(name, each) for name, each in (("first", first), ("second", second)))
    if len(first) != len(second) or len(first) < FEWEST:
        raise UserError("views", f"expected {FEWEST} samples or more of both, got {len(first)} and {len(second)}")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        order = torch.randperm(len(first))
        held, rest = order[: len(order) // 5], order[len(order) // 5 :]
        network = nn.Sequential(
            nn.Linear(first.shape[1] + second.shape[1], hidden), nn.ELU(),
            nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, 1),
        )  # fmt: skip
        optimizer, mean = torch.optim.Adam(network.parameters(), lr=lr), torch.ones(())
        for _ in range(steps):
            rows, others = (rest[torch.randint(len(rest), (min(batch, len(rest)),))] for _ in range(2))
            pairs = network(torch.cat([first[rows], second[rows]], 1)).mean()
            strangers = network(torch.cat([first[rows], second[others]], 1)).exp().mean()
            mean = decay * mean + (1 - decay) * strangers.detach()
            optimizer.zero_grad()
            (strangers / mean - pairs).backward()
            optimizer.step()
    return _bound(network, first[held], second[held])


@torch.no_grad()
def _bound(network: nn.Module, first: Tensor, second: Tensor) -> float:
    """Donsker and Varadhan's bound, each sample of the first view with all of the second but its own."""
    count = len(first)
    table = torch.stack([network(torch.cat([each.expand(count, -1), second], 1))[:, 0] for each in first])
    pairs = table.diagonal().mean()
    strangers = table.masked_fill(torch.eye(count, dtype=torch.bool), -torch.inf).flatten().logsumexp(0)
    return float(pairs - strangers + math.log(count * (count - 1)))


def _standardised(name: str, view: Tensor) -> Tensor:
    """(N, d) with mean 0 and std 1."""
    if view.dim() < 2 or not view.isfinite().all():
        raise UserError(name, f"expected finite numbers (N, ...), got shape {tuple(view.shape)}")
    flat = view.detach().cpu().flatten(1).float()
    return (flat - flat.mean(0)) / flat.std(0).clamp_min(1e-6)
