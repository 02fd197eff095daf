from __future__ import annotations

import sys

import pytest
import torch

from manyview.diagnose import rankme, spectrum
from tests.golden import unit


def drawn(count: int, dim: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(count, dim, generator=draw, dtype=torch.float64) * torch.arange(1, dim + 1) + 3


def test_the_eigenvalues_are_those_of_the_covariance_the_largest_first() -> None:
    x = drawn(40, 6)
    mean = [sum(float(v) for v in column) / 40 for column in x.T]
    covariance = torch.zeros(6, 6, dtype=torch.float64)
    for row in x.tolist():
        for i in range(6):
            for j in range(6):
                covariance[i, j] += (row[i] - mean[i]) * (row[j] - mean[j]) / 40
    expected = torch.linalg.eigvalsh(covariance).flip(0)
    torch.testing.assert_close(spectrum(x).eigenvalues, expected)


def test_the_rank_is_rankme_of_all_rows() -> None:
    x = drawn(600, 6)
    singular = torch.linalg.svdvals(x)
    share = singular / singular.sum()
    found = spectrum(x)
    assert found.rank == pytest.approx(float(torch.exp(-(share * share.log()).sum())))
    assert found.limit == 6
    assert spectrum(x[:200]).rank == pytest.approx(rankme(x[:200]))  # which reads as many rows


def test_the_rank_counts_dimensions_in_use() -> None:
    assert rankme(torch.eye(16).repeat(4, 1)) == pytest.approx(16, rel=1e-6)
    assert rankme(unit(drawn(1, 16)).expand(64, 16)) == pytest.approx(1, abs=1e-3)
    assert rankme(torch.eye(16)[:, :5].repeat(4, 1)) == pytest.approx(5, rel=1e-6)
    x = unit(drawn(64, 16))
    share = torch.linalg.svdvals(x.double())
    share /= share.sum()
    assert rankme(x) == pytest.approx(float(torch.exp(-(share * share.log()).sum())))


def test_rows_are_summed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(23, 6)
    whole = spectrum(x)
    monkeypatch.setattr(sys.modules["manyview.diagnose.spectrum"], "ROWS", 5)
    torch.testing.assert_close(spectrum(x).eigenvalues, whole.eigenvalues)
    assert spectrum(x).rank == pytest.approx(whole.rank)


def test_dimensions_that_are_not_used_show() -> None:
    found = spectrum(torch.cat([drawn(50, 3), torch.zeros(50, 5)], 1).float())
    assert (found.eigenvalues[:3] > 0.1).all()
    torch.testing.assert_close(found.eigenvalues[3:], torch.zeros(5).double())
    assert 1 < found.rank < 3.001


def test_fewer_vectors_than_dimensions_have_a_rank_of_at_most_so_many() -> None:
    found = spectrum(drawn(4, 9))
    assert found.limit == 4
    assert found.rank <= 4
    assert len(found.eigenvalues) == 9
    assert float(found.eigenvalues[3:].max()) < 1e-9  # of 4 vectors around their mean


def test_embeddings_with_nan_are_refused() -> None:
    with pytest.raises(ValueError, match="embeddings: holds NaN or infinite numbers"):
        spectrum(drawn(5, 3) * torch.nan)
