from __future__ import annotations

import sys

import pytest
import torch

from manyview.diagnose import rankme, spectrum, spread
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
    monkeypatch.setattr(sys.modules["manyview.diagnose.variance"], "ROWS", 5)
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


def copies(images: int, count: int, dim: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(images, count, dim, generator=generator, dtype=torch.float64) + 0.7


def test_similarity_and_variance_are_those_of_jcls_appendix_e() -> None:
    given = copies(7, 5, 6)
    found = spread(given)
    for image, vectors in enumerate(unit(given)):
        cosines = [float(a @ b) for a in vectors for b in vectors]  # 5 x 5, a copy with itself included
        assert float(found.similarity[image]) == pytest.approx(sum(cosines) / 25, abs=1e-12)
        variances = [float(((x - x.mean()) ** 2).mean()) for x in vectors.T]
        assert float(found.variance[image]) == pytest.approx(sum(variances) / 6, abs=1e-12)


def test_the_variance_is_the_similarity_on_another_scale() -> None:
    found = spread(copies(7, 5, 6))
    torch.testing.assert_close(found.variance, (1 - found.similarity) / 6)


def test_copies_that_are_all_alike_have_similarity_one_and_no_variance() -> None:
    found = spread(torch.randn(3, 1, 8).expand(3, 4, 8))
    torch.testing.assert_close(found.similarity, torch.ones(3))
    torch.testing.assert_close(found.variance, torch.zeros(3))


def test_more_images_than_are_worked_on_at_a_time_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    given = copies(10, 3, 4)
    whole = spread(given)
    monkeypatch.setattr(sys.modules["manyview.diagnose.variance"], "IMAGES", 4)
    parts = spread(given)
    assert torch.equal(parts.similarity, whole.similarity)
    assert torch.equal(parts.variance, whole.variance)


def test_one_copy_an_image_given_as_a_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"copies: expected floats \(n, a, d\), got torch.float32 \(3, 4\)"):
        spread(torch.ones(3, 4))
