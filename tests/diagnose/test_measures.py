"""Measures of one step: formulas in float64 loops, published numbers, and estimates from a part of the negatives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives, Triple
from manyview.data import Scenes
from manyview.diagnose import flat_share, measure
from manyview.diagnose.measures import KEYS, PER_QUERY, QUERIES
from manyview.losses import alignment, info_nce, uniformity
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy, view_pairs
from manyview.views import AUGMENTATIONS
from tests.golden import DOUBLE, assert_value, entries, golden, parameter, unit


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return unit(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def of(triple: Triple, *, temperature: float | None = 0.2, t_neg: float = 2.0) -> dict[str, float]:
    query, positives, negatives = triple.query, triple.positives, triple.negatives
    return measure(query, positives, negatives, temperature=temperature, t_neg=t_neg, present=triple.present)


def two_views(images: int = 6, dim: int = 8) -> Triple:
    first = drawn(images, dim)
    return every_copy(Embeddings([first, unit(first + 0.5 * drawn(images, dim, seed=1))]), Memory())[0]


@pytest.mark.parametrize("entry", [entry for entry in entries("cacr_eq/") if "none" not in entry])
def test_the_conditional_entropy_is_the_published_one(entry: str) -> None:
    views = unit(DOUBLE.given("views_raw"))
    ids = torch.arange(views.shape[1])
    negatives = Negatives(views[0], ids, ids)
    t_neg = parameter(entry, "t_neg")
    measured = measure(views[0], views[1:].transpose(0, 1), negatives, temperature=None, t_neg=t_neg)
    assert_value(entry, torch.tensor(measured["entropy"]).double(), DOUBLE._replace(loss=1e-6), "cond_entropy")
    assert measured["entropy_limit"] == pytest.approx(math.log(5))
    assert measured["entropy_share"] == pytest.approx(measured["entropy"] / math.log(5))


def test_weights_that_are_all_the_same_have_the_largest_entropy() -> None:
    entry = "cacr_eq/K4_tpos1.0_tneg0.9_euclidean_none"
    measured = of(two_views(), t_neg=1e-6)
    assert measured["entropy_share"] == pytest.approx(1, abs=1e-4)
    assert float(golden(f"{entry}/cond_entropy")) == pytest.approx(math.log(5))


def test_alignment_and_uniformity_are_those_of_the_losses() -> None:
    query, keys = drawn(20, 8), drawn(20, 8, seed=1)
    measured = measure(query, keys[:, None], Negatives(drawn(30, 8, seed=2)), temperature=None, t_neg=1.0)
    assert measured["alignment"] == pytest.approx(float(alignment(query, keys)), abs=1e-5)
    assert measured["uniformity"] == pytest.approx(float(uniformity(query)), abs=1e-5)


def test_two_views_of_one_image_are_no_pair_of_different_images() -> None:
    triple = two_views()
    query, ids = triple.query, torch.arange(6).repeat(2)
    pairs = [(i, j) for i in range(12) for j in range(12) if ids[i] != ids[j]]
    alike = torch.tensor([float(query[i] @ query[j]) for i, j in pairs])
    measured = of(triple)
    assert measured["query_similarity"] == pytest.approx(float(alike.mean()), abs=1e-5)
    assert measured["uniformity"] == pytest.approx(float((4 * alike - 4).exp().mean().log()), abs=1e-5)
    assert measured["negative_similarity"] == pytest.approx(float(alike.mean()), abs=1e-5)
    assert measured["gap"] == measured["positive_similarity"] - measured["negative_similarity"]
    assert measured["negatives"] == 10


def test_the_coupling_is_the_factor_of_the_gradient_of_info_nce() -> None:
    """DCL's appendix: the positive key's gradient is q_B times that of a loss without the positive below the line."""
    query, keys, queue = drawn(4, 8), drawn(4, 1, 8, seed=1).requires_grad_(), Negatives(drawn(30, 8, seed=2))
    info_nce(query, keys, queue, temperature=0.2).backward()
    assert keys.grad is not None
    factors = keys.grad.norm(dim=-1) * 4 * 0.2  # |q| = 1, a mean over 4, and 1 / temperature
    assert measure(query, keys, queue, temperature=0.2, t_neg=1.0)["coupling"] == pytest.approx(float(factors.mean()))


def test_the_coupling_is_left_out_without_a_temperature() -> None:
    assert "coupling" not in of(two_views(), temperature=None)


def test_positives_that_are_not_there_do_not_count() -> None:
    query, keys, queue = drawn(4, 8), drawn(4, 2, 8, seed=1), Negatives(drawn(30, 8, seed=2))
    present = torch.tensor([[True, True], [True, False], [False, False], [True, True]])
    broken = keys.masked_fill(~present[:, :, None], torch.nan)
    measured = measure(query, broken, queue, temperature=0.2, t_neg=1.0, present=present)
    similar = (query[:, None] * keys).sum(-1)
    expected = (similar[0].mean() + similar[1, 0] + similar[3].mean()) / 3
    assert measured["positive_similarity"] == pytest.approx(float(expected), abs=1e-6)
    assert all(math.isfinite(value) for value in measured.values())


def test_negatives_by_ids_index_rows_and_split_are_all_read() -> None:
    first, second = drawn(6, 8), drawn(6, 8, seed=1)
    split = of(view_pairs(Embeddings([first, second]), Memory())[0])
    cross = (first @ second.T)[~torch.eye(6, dtype=torch.bool)]
    assert split["negative_similarity"] == pytest.approx(float(cross.mean()), abs=1e-6)
    bank, index = drawn(40, 8, seed=3), torch.randint(40, (6, 9))
    indexed = measure(first, second[:, None], Negatives(bank, index=index), temperature=0.2, t_neg=1.0)
    gathered = measure(first, second[:, None], Negatives(bank[index]), temperature=0.2, t_neg=1.0)
    assert indexed == pytest.approx(gathered, abs=1e-5)


def layouts(images: int) -> dict[str, Triple]:
    """More queries and keys than are read, in every shape that negatives have."""
    first, queue = drawn(images, 16), drawn(5 * KEYS + 7, 16, seed=2)
    second, ids = unit(first + 0.3 * drawn(images, 16, seed=1)), torch.arange(images)
    named = Negatives(queue, torch.arange(len(queue)) + images, ids)
    index = torch.randint(len(queue), (images, 4 * PER_QUERY + 1), generator=torch.Generator().manual_seed(3))
    return {
        "queue": Triple(first, second[:, None], named),
        "batch and queue": Triple(first, second[:, None], Negatives(first, ids, ids) + named),
        "bank": Triple(first, second[:, None], Negatives(queue, index=index)),
        "own": Triple(first, second[:, None], Negatives(queue[index])),
        "all views": every_copy(Embeddings([first, second]), Memory())[0],
        "both directions": view_pairs(Embeddings([first, second]), Memory())[0],
    }


@pytest.mark.parametrize("layout", list(layouts(2)))
def test_a_part_of_queries_and_negatives_stands_for_all(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    triple = layouts(QUERIES + 300)[layout]
    part = of(triple)
    for limit in ("QUERIES", "KEYS", "PER_QUERY"):
        monkeypatch.setattr(f"manyview.diagnose.measures.{limit}", 10**9)
    whole = of(triple)
    assert part["negatives"] == pytest.approx(whole["negatives"], rel=0.01)
    for name in ("entropy", "negative_similarity", "positive_similarity", "coupling", "uniformity", "alignment"):
        assert part[name] == pytest.approx(whole[name], abs=0.03), name


def test_vectors_that_are_no_numbers_are_measured_as_such() -> None:
    query = drawn(4, 8).fill_(torch.nan)
    measured = measure(query, query[:, None], Negatives(drawn(30, 8)), temperature=0.2, t_neg=1.0)
    assert all(math.isnan(measured[name]) for name in ("rank", "alignment", "coupling", "query_similarity"))


def test_no_gradient_is_kept_and_none_is_changed() -> None:
    triple = two_views()
    query = triple.query.clone().requires_grad_()
    of(triple._replace(query=query))
    assert query.grad is None


def test_pictures_of_one_colour_are_found_also_in_augmented_views() -> None:
    raw = Scenes(20, size=16).batch(torch.arange(20))["image"]
    raw[:5] = torch.tensor([200, 30, 90], dtype=torch.uint8)[:, None, None]
    copies = AUGMENTATIONS["simclr-cifar"](16)({"image": raw}, torch.arange(20), seed=0, epoch=0)["image"]
    assert flat_share(copies[0]) == 0.25
    assert flat_share(raw.float()) == 0.25
