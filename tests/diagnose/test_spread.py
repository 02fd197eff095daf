from __future__ import annotations

import sys

import pytest
import torch

from manyview.diagnose import spread
from tests.golden import unit


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
    monkeypatch.setattr(sys.modules["manyview.diagnose.spread"], "IMAGES", 4)
    parts = spread(given)
    assert torch.equal(parts.similarity, whole.similarity)
    assert torch.equal(parts.variance, whole.variance)


def test_one_copy_an_image_given_as_a_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"copies: expected floats \(n, a, d\), got torch.float32 \(3, 4\)"):
        spread(torch.ones(3, 4))
