"""What must hold for any batch, on random small ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import attraction, cacr, hard_negative, info_nce, jcl, repulsion
from manyview.methods.contrast import contrast
from manyview.methods.topologies import Topology, each_copy, every_copy, view_pairs
from tests.losses.every_loss import EVERY_LOSS, Loss, for_every_loss
from tests.losses.layouts import Options, assert_close, gradients, normal

few = settings(max_examples=settings().max_examples // 4)  # for each of many losses
seeds = st.integers(0, 2**31)
sizes = st.integers(2, 7)
POOLED = ("dclw", "cacr, rbf cost", "align_uniform")


def leaves_of(**tensors: Tensor) -> dict[str, Tensor]:
    return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


def assert_same(found: Tensor, wanted: Tensor, leaves: dict[str, Tensor], rtol: float = 1e-9) -> None:
    """Values, and gradients of a sum in which each value counts differently."""
    assert_close(found, wanted, rtol, "value")
    count = torch.arange(1, wanted.numel() + 1, dtype=torch.float64).view(wanted.shape)
    expected = gradients((wanted * count).sum(), leaves)
    for name, gradient in gradients((found * count).sum(), leaves).items():
        assert_close(gradient, expected[name], rtol, f"gradient by {name}")


@for_every_loss
@given(seed=seeds, n=sizes, k=st.integers(1, 3))
@few
def test_the_order_of_the_images_does_not_matter(loss: Loss, seed: int, n: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    leaves = leaves_of(
        query=normal(g, n, 3), positives=normal(g, n, k, 3), queue=normal(g, 4, 3), own=normal(g, n, 2, 3)
    )
    order = torch.randperm(n, generator=g)

    def run(order: Tensor) -> Tensor:
        query = leaves["query"][order]
        met = Negatives(query, order, order) + Negatives(leaves["queue"]) + Negatives(leaves["own"][order], weight=0.7)
        return loss(query, leaves["positives"][order], met)

    assert_same(run(order), run(torch.arange(n)), leaves)


@pytest.mark.parametrize("name", [name for name in EVERY_LOSS if name not in POOLED])
@given(seed=seeds, n=sizes)
@few
def test_the_values_are_permuted_with_the_images(name: str, seed: int, n: int) -> None:
    g = torch.Generator().manual_seed(seed)
    leaves = leaves_of(query=normal(g, n, 3), positives=normal(g, n, 2, 3))
    order = torch.randperm(n, generator=g)
    loss: Callable[..., Tensor] = EVERY_LOSS[name]

    def run(order: Tensor) -> Tensor:
        query = leaves["query"][order]
        return loss(query, leaves["positives"][order], Negatives(query, order, order), reduction="none")

    assert_same(run(order), run(torch.arange(n))[order], leaves)


@for_every_loss
@given(seed=seeds, n=sizes, m=st.integers(2, 8), data=st.data())
@few
def test_splitting_a_source_in_two_changes_nothing(loss: Loss, seed: int, n: int, m: int, data: st.DataObject) -> None:
    g = torch.Generator().manual_seed(seed)
    at = data.draw(st.integers(1, m - 1))
    weight = data.draw(st.sampled_from([1.0, 0.3, 2.5]))
    query, positives = normal(g, n, 3), normal(g, n, 2, 3)
    leaves = leaves_of(query=query, positives=positives, shared=normal(g, m, 3), own=normal(g, n, m, 3))
    shared, own, bank = leaves["shared"], leaves["own"], normal(g, 50, 3)
    ids, query_ids = torch.arange(m), torch.arange(n) % (m - 1)
    index = torch.randint(50, (n, m), generator=g)
    ways = [
        (
            Negatives(shared, ids, query_ids, weight=weight),
            Negatives(shared[:at], ids[:at], query_ids, weight=weight)
            + Negatives(shared[at:], ids[at:], query_ids, weight=weight),
        ),
        (Negatives(own, weight=weight), Negatives(own[:, :at], weight=weight) + Negatives(own[:, at:], weight=weight)),
        (Negatives(bank, index=index), Negatives(bank, index=index[:, :at]) + Negatives(bank, index=index[:, at:])),
    ]
    for whole, parts in ways:
        assert_same(loss(query, positives, parts), loss(query, positives, whole), leaves)


@for_every_loss
@given(seed=seeds, n=sizes, times=st.integers(2, 3))
@few
def test_a_weight_is_a_number_of_copies(loss: Loss, seed: int, n: int, times: int) -> None:
    g = torch.Generator().manual_seed(seed)
    leaves = leaves_of(query=normal(g, n, 3), positives=normal(g, n, 2, 3), queue=normal(g, 4, 3))
    queue, other = leaves["queue"], Negatives(normal(g, 3, 3))
    found = loss(leaves["query"], leaves["positives"], Negatives(queue, weight=times) + other)
    wanted = loss(leaves["query"], leaves["positives"], Negatives(queue.repeat(times, 1)) + other)
    assert_same(found, wanted, leaves)


@for_every_loss
@given(seed=seeds, n=sizes)
@few
def test_ids_that_nobody_shares_change_nothing(loss: Loss, seed: int, n: int) -> None:
    g = torch.Generator().manual_seed(seed)
    leaves = leaves_of(query=normal(g, n, 3), positives=normal(g, n, 2, 3), queue=normal(g, 5, 3))
    query, positives, queue = leaves.values()
    with_ids = Negatives(queue, torch.arange(5) + 100, torch.arange(n))
    assert_same(loss(query, positives, with_ids), loss(query, positives, Negatives(queue)), leaves)


@pytest.mark.parametrize("topology", [every_copy, each_copy, view_pairs], ids=lambda topology: topology.__name__)
@pytest.mark.parametrize("loss", ["info_nce", "dcl", "jcl", "cacr", "hard_negative", "align_uniform"])
@given(seed=seeds, n=st.integers(2, 5), count=st.integers(2, 4))
@few
def test_the_order_of_the_views_does_not_matter(topology: Topology, loss: str, seed: int, n: int, count: int) -> None:
    g = torch.Generator().manual_seed(seed)
    leaves = leaves_of(views=normal(g, count, n, 3))
    order = torch.randperm(count, generator=g)
    found = contrast(leaves["views"][order], loss=loss, topology=topology)
    assert_same(found, contrast(leaves["views"], loss=loss, topology=topology), leaves)


def small(seed: int, n: int, k: int) -> tuple[dict[str, Tensor], Negatives]:
    """Unit vectors: query and positives, in a batch with a queue."""
    g = torch.Generator().manual_seed(seed)
    shapes = {"query": (n, 3), "positives": (n, k, 3), "queue": (4, 3)}
    leaves = leaves_of(**{name: F.normalize(normal(g, *shape), dim=-1) for name, shape in shapes.items()})
    ids = torch.arange(n)
    return leaves, Negatives(leaves["query"], ids, ids) + Negatives(leaves["queue"])


@given(seed=seeds, n=sizes, k=st.integers(1, 4))
def test_jcl_without_strength_is_info_nce_against_the_mean(seed: int, n: int, k: int) -> None:
    leaves, negatives = small(seed, n, k)
    query, positives, _ = leaves.values()
    found = jcl(query, positives, negatives, strength=0.0, temperature=0.3, reduction="none")
    mean = positives.mean(1, keepdim=True)
    assert_same(found, info_nce(query, mean, negatives, temperature=0.3, reduction="none"), leaves)


@given(seed=seeds, n=sizes, strength=st.floats(0, 10))
def test_jcl_with_one_key_is_info_nce(seed: int, n: int, strength: float) -> None:
    leaves, negatives = small(seed, n, 1)
    query, positives, _ = leaves.values()
    found = jcl(query, positives, negatives, strength=strength, temperature=0.3, reduction="none")
    assert_same(found, info_nce(query, positives, negatives, temperature=0.3, reduction="none"), leaves)


@given(seed=seeds, n=sizes, k=st.integers(1, 4))
def test_hard_negatives_without_hardness_and_bias_are_info_nce(seed: int, n: int, k: int) -> None:
    leaves, negatives = small(seed, n, k)
    query, positives, _ = leaves.values()
    found = hard_negative(query, positives, negatives, temperature=0.3, beta=0.0, tau_plus=0.0, reduction="none")
    assert_same(found, info_nce(query, positives, negatives, temperature=0.3, reduction="none"), leaves)


@given(seed=seeds, n=sizes, tau_plus=st.floats(0, 0.9))
def test_hard_negatives_without_hardness_are_debiased_contrastive_learning(seed: int, n: int, tau_plus: float) -> None:
    leaves, _ = small(seed, n, 1)
    query, positives, queue = leaves.values()
    found = hard_negative(query, positives, Negatives(queue), beta=0.0, tau_plus=tau_plus, reduction="none")
    positive, negative = ((query * positives[:, 0]).sum(-1) / 0.5).exp(), (query @ queue.T / 0.5).exp().sum(1)
    lowest = torch.full_like(negative, len(queue) * math.exp(-1 / 0.5))
    debiased = torch.maximum((negative - tau_plus * len(queue) * positive) / (1 - tau_plus), lowest)
    assert_same(found, -(positive / (positive + debiased)).log(), leaves, rtol=1e-7)


@given(seed=seeds, n=sizes, k=st.integers(1, 4))
def test_attraction_at_no_temperature_is_uniform(seed: int, n: int, k: int) -> None:
    leaves, _ = small(seed, n, k)
    query, positives, _ = leaves.values()
    found = attraction(query, positives, t_pos=1e-12, reduction="none")
    assert_same(found, attraction(query, positives, attract="uniform", reduction="none"), leaves)


SHARP = 1e7  # a competitor at any distance from the hardest moves the mean by less than 1 / (e SHARP)


@given(seed=seeds, n=sizes, k=st.integers(1, 4))
def test_sharp_weights_mine_the_hardest(seed: int, n: int, k: int) -> None:
    leaves, _ = small(seed, n, k)
    query, positives, queue = leaves.values()
    near: Options = {"rtol": 0, "atol": 1e-6}
    farthest = (query[:, None] - positives).square().sum(-1).amax(1)
    nearest = (query[:, None] - queue).square().sum(-1).amin(1)
    pull = attraction(query, positives, t_pos=SHARP, reduction="none")
    push = repulsion(query, positives, Negatives(queue), t_neg=SHARP, reduction="none")
    torch.testing.assert_close(pull, farthest, **near)
    torch.testing.assert_close(push, -nearest, **near)
    sharp = partial(cacr, query, positives, Negatives(queue), t_pos=SHARP, t_neg=SHARP)
    torch.testing.assert_close(sharp(margin=0.2), (farthest - nearest + 0.2).relu().mean(), **near)
    torch.testing.assert_close(sharp(), (farthest - nearest).mean(), **near)


@given(seed=seeds, n=sizes)
def test_sharp_weights_of_the_opposite_sign_mine_the_easiest(seed: int, n: int) -> None:
    leaves, _ = small(seed, n, 3)
    query, positives, queue = leaves.values()
    nearest = (query[:, None] - positives).square().sum(-1).amin(1)
    farthest = (query[:, None] - queue).square().sum(-1).amax(1)
    pull = attraction(query, positives, t_pos=SHARP, attract="near", reduction="none")
    push = repulsion(query, positives, Negatives(queue), t_neg=SHARP, repel="far", reduction="none")
    torch.testing.assert_close(pull, nearest, rtol=0, atol=1e-6)
    torch.testing.assert_close(push, -farthest, rtol=0, atol=1e-6)


@for_every_loss
@given(seed=seeds, n=sizes)
@few
def test_an_image_that_lacks_all_positives_is_only_a_negative(loss: Loss, seed: int, n: int) -> None:
    """What it leaves is the loss of the others, who still meet it."""
    g = torch.Generator().manual_seed(seed)
    query, positives = normal(g, n, 3), normal(g, n, 2, 3)
    present = torch.ones(n, 2, dtype=torch.bool)
    present[-1] = False
    ids = torch.arange(n)
    lacking: Callable[..., Tensor] = loss
    found = lacking(query, positives, Negatives(query, ids, ids), present=present)
    wanted = loss(query[:-1], positives[:-1], Negatives(query, ids, ids[:-1]))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
