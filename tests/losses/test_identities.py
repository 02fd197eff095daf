"""What the papers prove about their losses, checked with numbers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import alignment, attraction, dcl, info_nce, jcl, repulsion
from manyview.losses.streaming import Stream
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy
from tests.losses.layouts import assert_close, normal


def unit_vectors(seed: int, *shape: int) -> Tensor:
    return F.normalize(normal(torch.Generator().manual_seed(seed), *shape), dim=-1)


def in_batch(x: Tensor) -> Negatives:
    ids = torch.arange(len(x))
    return Negatives(x, ids, ids)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_dcl_is_info_nce_without_the_coupling_of_its_gradient(temperature: float) -> None:
    """DCL Propositions 1 and 2, for all three gradients: by the query, its positive and its negatives.

    The multiplier is 1 - exp(positive) / Y with the positive in Y, as in the proof.
    """
    views = unit_vectors(1, 2, 6, 4).requires_grad_()
    (triple,) = every_copy(Embeddings(list(views)), Memory())
    coupled = info_nce(*triple[:3], temperature=temperature, reduction="none")
    decoupled = dcl(*triple[:3], temperature=temperature, reduction="none")
    positive = ((triple.query * triple.positives[:, 0]).sum(-1) / temperature).exp()
    negative = Stream(triple.query, triple.negatives).softmax(1 / temperature).log_sum_exp.exp()
    multiplier = 1 - positive / (positive + negative)
    assert 0 < multiplier.min().item() < multiplier.max().item() < 1
    for i in range(len(coupled)):
        with_it = torch.autograd.grad(coupled[i], views, retain_graph=True)[0]
        without = torch.autograd.grad(decoupled[i], views, retain_graph=True)[0]
        assert_close(with_it, multiplier[i].detach() * without, 1e-9, f"gradient of anchor {i}")


def gaussian_keys(positives: Tensor, strength: float, pairs: int) -> Tensor:
    """(N, 2 pairs, d) from N(mu, strength Sigma) of each query's positives, half of them mirrored at mu."""
    g = torch.Generator().manual_seed(2)
    mu = positives.mean(1, keepdim=True)
    n, k, _ = positives.shape
    noise = torch.randn(n, pairs, k, dtype=torch.float64, generator=g)
    return mu + math.sqrt(strength / k) * torch.cat([noise, -noise], 1) @ (positives - mu)


@pytest.mark.parametrize("strength", [0.5, 1.0, 4.0])
def test_jcl_is_above_info_nce_averaged_over_gaussian_keys(strength: float) -> None:
    """JCL Eq. 4 to 8: the bound, and the expectation inside its logarithm, which is exact."""
    query, queue, pairs = unit_vectors(3, 5, 4), Negatives(unit_vectors(4, 12, 4)), 20_000
    positives = F.normalize(query[:, None] + 0.6 * unit_vectors(5, 5, 6, 4), dim=-1)
    bound = jcl(query, positives, queue, temperature=0.2, strength=strength, reduction="none")
    keys = gaussian_keys(positives, strength, pairs)
    scores = (query[:, None] * keys).sum(-1) / 0.2
    sums = torch.logaddexp(scores, Stream(query, queue).softmax(5.0).log_sum_exp[:, None])
    averaged = info_nce(query, keys, queue, temperature=0.2, reduction="none")
    error = (sums - scores).view(5, 2, pairs).mean(1).std(1) / pairs**0.5
    assert bool((bound > averaged + 4 * error).all())
    inside = sums.exp().view(5, 2, pairs).mean(1)
    relative_error = inside.std(1) / inside.mean(1) / pairs**0.5
    exact = inside.mean(1).log() - scores.mean(1)
    assert bool(((bound - exact).abs() < 5 * relative_error + 1e-9).all())
    assert bool((5 * relative_error < 0.5 * (bound - averaged)).all())  # or that would say little


def test_the_bound_of_jcl_is_tight_where_keys_agree() -> None:
    """JCL section 3.3: equality if all keys of a query are the same."""
    query, queue = unit_vectors(3, 5, 4), Negatives(unit_vectors(4, 12, 4))
    positives = unit_vectors(5, 5, 6, 4)
    mu, gaps = positives.mean(1, keepdim=True), []
    for spread in (1e-1, 1e-2, 1e-3, 0.0):
        shrunk = mu + spread * (positives - mu)
        bound = jcl(query, shrunk, queue, temperature=0.2, strength=1.0)
        gaps.append(float(bound - info_nce(query, gaussian_keys(shrunk, 1.0, 2_000), queue, temperature=0.2)))
    assert gaps[0] > 0
    assert abs(gaps[1]) < 0.1 * gaps[0] + 1e-2
    assert abs(gaps[2]) < 2e-3
    assert abs(gaps[3]) < 1e-12


def test_attraction_without_weights_is_alignment() -> None:
    """CACR Lemma 4.1: it reduces to alignment if the weights are the prior."""
    query, positives = unit_vectors(6, 7, 4), unit_vectors(7, 7, 3, 4)
    each = [alignment(query, positives[:, k], alpha=2) for k in range(3)]
    torch.testing.assert_close(attraction(query, positives, attract="uniform"), torch.stack(each).mean())
    torch.testing.assert_close(attraction(query, positives[:, :1]), each[0])
    inner = -(query[:, None] * positives).sum(-1).mean()
    torch.testing.assert_close(attraction(query, positives, attract="uniform", cost="inner"), inner)


def conditional(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """pi^-(x_j | x_i) and -t |x_i - x_j|^2 among the other rows, (N, N - 1) each."""
    others = ~torch.eye(len(x), dtype=torch.bool)
    scores = -t * (x[:, None] - x).square().sum(-1)[others].view(len(x), -1)
    return scores.softmax(1), scores


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tau", [0.1, 0.5, 1.0])
def test_uniformity_plus_mutual_information_is_at_least_the_repulsion(seed: int, tau: float) -> None:
    """CACR Lemma 4.3; equal if the repulsion's weights are the softmax of the similarities at the same temperature."""
    x = unit_vectors(10 + seed, 12, 5)
    negatives = in_batch(x)
    uniform = (Stream(x, negatives).softmax(1 / tau).log_sum_exp - math.log(11)).mean()
    for t, equal in ((1 / (2 * tau), True), (0.2 / tau, False), (2 / tau, False)):
        weights, _ = conditional(x, t)
        information = (weights * (weights * 11).log()).sum(1).mean()
        pushed = repulsion(x, x[:, None], negatives, t_neg=t, cost="inner") / tau
        gap = float(uniform + information - pushed)
        assert gap == pytest.approx(0, abs=1e-10) if equal else gap > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_repulsion_is_minus_the_conditional_entropy_but_for_the_prior_and_the_normaliser(seed: int) -> None:
    """CACR Lemma 4.2, Eq. 9, from its first line: E ln pi - E ln p + E ln Z, with p uniform over the other images."""
    x = unit_vectors(20 + seed, 10, 4)
    weights, scores = conditional(x, 1.0)
    entropy = -(weights * weights.log()).sum(1).mean()
    prior = -math.log(9)
    normaliser = scores.exp().mean(1).log().mean()
    pushed = repulsion(x, x[:, None], in_batch(x), t_neg=1.0)
    torch.testing.assert_close(pushed, -entropy - prior + normaliser, rtol=1e-12, atol=0)


@pytest.mark.parametrize("t", [0.5, 1.0, 3.0])
def test_the_engine_gives_entropy_and_mutual_information(t: float) -> None:
    """Log-sum-exp minus the mean score; its largest value is that of weights that are all the same."""
    x = unit_vectors(30, 10, 4)
    weights, _ = conditional(x, t)
    sums = Stream(x, in_batch(x)).softmax(2 * t, -t, value=(2 * t, -t))
    entropy = sums.log_sum_exp - sums.mean
    torch.testing.assert_close(entropy, -(weights * weights.log()).sum(1), rtol=1e-12, atol=0)
    assert bool((entropy < math.log(9)).all())


def test_attraction_is_zero_only_where_positives_are_the_query() -> None:
    """CACR Property 1."""
    query = unit_vectors(31, 6, 4)
    same = query[:, None].repeat(1, 3, 1)
    assert float(attraction(query, same)) == 0
    same[2, 1] = unit_vectors(32, 4)
    assert float(attraction(query, same)) > 0.01
