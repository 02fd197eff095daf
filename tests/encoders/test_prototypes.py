from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from manyview.encoders.prototypes import Prototypes, unit, weight_norm

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", [unit, weight_norm])
def test_scores_are_cosines_whatever_the_length_of_what_is_scored(make: type[Prototypes]) -> None:
    torch.manual_seed(0)
    made = make(3, 5)
    expected = torch.stack([torch.stack([F.cosine_similarity(x, c, dim=0) for c in made.weight]) for x in X])
    torch.testing.assert_close(made(X), expected)
    torch.testing.assert_close(made(7 * X), expected)


def test_weight_norm_divides_by_lengths_and_the_other_makes_them_one_after_a_step() -> None:
    normed, plain = weight_norm(3, 5), unit(3, 5)
    for each in (normed, plain):
        with torch.no_grad():
            each.weight.mul_(3.0)
    assert float(normed(X).abs().max().detach()) <= 1.0
    assert float(plain(X).abs().max().detach()) > 1.0
    plain.after_step(), normed.after_step()
    torch.testing.assert_close(plain.weight.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(normed.weight.norm(dim=1), torch.full((5,), 3.0))


def test_a_learnt_scale_begins_at_one() -> None:
    torch.manual_seed(1)
    learnt = weight_norm(3, 5, learnt_scale=True)
    torch.manual_seed(1)
    torch.testing.assert_close(learnt(X), weight_norm(3, 5)(X))
    assert [name for name, _ in learnt.named_parameters()] == ["weight", "scale"]


def test_half_precision_is_scored_in_single() -> None:
    assert unit(3, 5)(X.half()).dtype == torch.float32
