"""Weighted nearest neighbours: the published numbers, an all-at-once oracle, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from manyview.features import knn as module
from manyview.features.knn import knn, knn_predict, knn_votes, neighbours
from tests.golden import Precision, golden, in_both_precisions


def drawn(rows: int, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Vectors of all lengths, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    centres = torch.randn(classes, 16, generator=torch.Generator().manual_seed(99))
    return centres[labels] + 1.5 * torch.randn(rows, 16, generator=generator), labels


def oracle(bank: Tensor, labels: Tensor, queries: Tensor, k: int, temperature: float) -> Tensor:
    votes = torch.zeros(len(queries), int(labels.max()) + 1, dtype=torch.float64)
    for row, query in enumerate(queries.double()):
        near = F.cosine_similarity(query[None], bank.double())
        for neighbour in near.argsort(descending=True)[:k]:
            votes[row, labels[neighbour]] += (near[neighbour] / temperature).exp()
    return votes / votes.sum(1, keepdim=True)


@in_both_precisions
def test_it_agrees_with_the_published_demo(precision: Precision) -> None:
    bank, queries = (golden(f"knn/{name}").to(precision.dtype) for name in ("bank", "features"))
    labels, scores = golden("knn/bank_labels"), golden("knn/scores")
    votes = knn_votes(bank, labels, queries, k=7, temperature=0.1)
    shares = scores / scores.sum(1, keepdim=True)
    torch.testing.assert_close(votes.double(), shares, rtol=precision.loss, atol=precision.absolute)
    predicted = knn_predict(bank, labels, queries, k=7, temperature=0.1)
    assert predicted.tolist() == golden("knn/pred_labels")[:, 0].tolist()


@pytest.mark.parametrize(("queries", "bank"), [(7, 13), (1, 1), (64, 3), (1000, 1000)])
def test_pieces_of_any_size_give_what_a_loop_over_everything_gives(
    queries: int, bank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUERIES", queries)
    monkeypatch.setattr(module, "BANK", bank)
    vectors, labels = drawn(60)
    asked, _ = drawn(20, seed=1)
    votes = knn_votes(vectors, labels, asked, k=9, temperature=0.2)
    torch.testing.assert_close(votes.double(), oracle(vectors, labels, asked, 9, 0.2), rtol=1e-4, atol=1e-6)


def test_it_is_the_share_of_right_predictions() -> None:
    vectors, labels = drawn(400)
    asked, right = drawn(100, seed=1)
    share = knn(vectors, labels, asked, right)
    assert share == float((knn_predict(vectors, labels, asked) == right).double().mean())
    assert 0.5 < share < 1  # far above chance, 0.2, and the classes overlap


def test_a_vector_of_the_bank_finds_itself_and_its_length_does_not_matter() -> None:
    vectors, labels = drawn(200)
    assert knn(vectors, labels, 1000 * vectors, labels, k=1) == 1.0


def test_no_temperature_is_too_low_for_it() -> None:
    vectors, labels = drawn(100)
    nearest = knn_predict(vectors, labels, vectors + 0.01, k=1)
    assert knn_predict(vectors, labels, vectors + 0.01, k=20, temperature=1e-4).tolist() == nearest.tolist()


def test_a_class_that_only_the_queries_have_is_never_right() -> None:
    vectors, labels = drawn(50)
    assert knn(vectors, labels, vectors, labels + 5) == 0.0


def wrong(**changes: Any) -> dict[str, Any]:
    vectors, labels = drawn(30)
    return {"bank": vectors, "bank_labels": labels, "queries": vectors, "query_labels": labels} | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 31}, "k: expected 1 to the 30 vectors of the bank, got 31"),
        ({"k": 0}, "k: expected 1"),
        ({"temperature": 0.0}, "temperature: expected a positive number, got 0.0"),
        ({"bank_labels": torch.full((30,), -1)}, "bank_labels: 30 of 30 have no label"),
        ({"query_labels": torch.full((30,), -1)}, "query_labels: 30 of 30 have no label"),
        ({"bank_labels": torch.full((30,), 3)}, "bank_labels: all are of class 3"),
        ({"bank_labels": torch.zeros(29, dtype=torch.long)}, r"bank_labels: expected int64 \(30,\)"),
        ({"queries": torch.zeros(30, 4)}, r"bank and queries: expected \(m, d\) and \(n, d\)"),
        ({"bank": torch.full((30, 16), torch.nan)}, "bank: holds NaN"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        knn(**wrong(**changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_it_is_scikit_learns_with_the_same_weights(temperature: float) -> None:
    (vectors, labels), (asked, right) = drawn(600), drawn(1000, seed=1)
    theirs = KNeighborsClassifier(
        15, metric="cosine", algorithm="brute", weights=lambda distance: np.exp((1 - distance) / temperature)
    ).fit(vectors.double().numpy(), labels.numpy())
    shares = torch.from_numpy(theirs.predict_proba(asked.double().numpy()))
    votes = knn_votes(vectors, labels, asked, k=15, temperature=temperature)
    torch.testing.assert_close(votes.double(), shares, rtol=0, atol=1e-4)
    score = theirs.score(asked.double().numpy(), right.numpy())
    assert abs(knn(vectors, labels, asked, right, k=15, temperature=temperature) - score) <= 0.001


PROGRAM = """
import re, torch
from manyview.features.knn import knn_predict
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
bank, labels = torch.randn(1_000_000, 16), torch.arange(1_000_000) % 10
queries = torch.randn(1500, 16)
knn_predict(bank[:50], labels[:50], queries[:50])
before = peak()
knn_predict(bank, labels, queries)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read in kB as Linux gives it")
def test_a_million_bank_vectors_take_well_under_a_gigabyte() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=600)
    assert int(done.stdout) / 1024 < 400


def test_many_numbers_in_half_precision_are_finite_numbers() -> None:
    bank, labels = drawn(60)
    bank = (bank.abs() * 1000).half()
    assert torch.isinf(bank.sum())
    assert knn(bank, labels, bank, labels, k=1) == 1.0


def test_they_are_those_of_the_whole_matrix_the_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES", 7)
    monkeypatch.setattr(module, "BANK", 11)
    bank, queries = torch.randn(50, 8), torch.randn(20, 8)
    near, rows = neighbours(bank, queries, 13)
    whole = (F.normalize(queries, dim=1) @ F.normalize(bank, dim=1).T).sort(1, descending=True)
    torch.testing.assert_close(near, whole.values[:, :13])
    assert torch.equal(rows, whole.indices[:, :13])


def test_a_query_that_is_in_the_bank_is_no_neighbour_of_itself() -> None:
    bank = torch.randn(30, 8)
    own = torch.tensor([4, 29, 0])
    near, rows = neighbours(bank, bank[own], 29, own=own)
    assert not (rows == own[:, None]).any()
    assert torch.isfinite(near).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_cosines_are_computed_in_float32_at_least(dtype: torch.dtype) -> None:
    bank = torch.randn(30, 8).to(dtype)
    near, _ = neighbours(bank, bank[:2], 1)
    assert near.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(near, torch.ones_like(near))


def test_fewer_than_asked_for_are_all() -> None:
    assert neighbours(torch.randn(3, 4), torch.randn(2, 4), 9)[1].shape == (2, 3)
