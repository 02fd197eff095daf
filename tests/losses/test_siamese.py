from __future__ import annotations

import torch

from manyview.losses.siamese import negative_cosine, squared_distance
from tests.golden import unit
from tests.losses.oracle import dot

GENERATOR = torch.Generator().manual_seed(3)
QUERY, KEY = (unit(torch.randn(5, 4, generator=GENERATOR, dtype=torch.float64)) for _ in range(2))


def test_byols_distance_is_two_less_twice_the_cosine() -> None:
    expected = torch.stack([2 - 2 * dot(q, k) for q, k in zip(QUERY, KEY, strict=True)])
    torch.testing.assert_close(squared_distance(QUERY, KEY), expected, rtol=1e-12, atol=0)


def test_simsiams_is_half_of_it_less_one() -> None:
    expected = torch.stack([-dot(q, k) for q, k in zip(QUERY, KEY, strict=True)])
    torch.testing.assert_close(negative_cosine(QUERY, KEY), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        negative_cosine(QUERY, KEY), squared_distance(QUERY, KEY) / 2 - 1, rtol=1e-12, atol=1e-15
    )
