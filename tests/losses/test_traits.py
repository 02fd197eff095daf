"""What losses say about themselves is what they do."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.losses import cacr, info_nce, is_coupled, is_pooled, nce, option
from manyview.losses.traits import bounds_information, needs_partition
from tests.losses.every_loss import EVERY_LOSS, Loss, for_every_loss


def test_an_option_is_the_default_or_what_partials_have_given() -> None:
    assert option(info_nce, "temperature") == 0.2
    assert option(partial(partial(info_nce, temperature=0.5), temperature=0.7), "temperature") == 0.7
    assert option(cacr, "temperature") is None
    assert option(nce, "population") is None
    assert option(partial(nce, population=3), "population") == 3


def test_losses_with_the_positive_in_the_denominator_are_coupled() -> None:
    assert {name for name, loss in EVERY_LOSS.items() if is_coupled(loss)} == {"info_nce", "jcl", "hard_negative"}
    assert is_coupled(info_nce)


def test_only_the_softmax_over_positive_and_negatives_bounds_mutual_information() -> None:
    assert {name for name, loss in EVERY_LOSS.items() if bounds_information(loss)} == {"info_nce"}


def test_the_bound_is_below_the_information_of_two_gaussians() -> None:
    """CMC Eq. 6 with the best critic, log p(y | x) / p(y), whose inner product of features it is."""
    draw, rho, k = torch.Generator().manual_seed(0), 0.8, 63
    x = torch.randn(4096, generator=draw, dtype=torch.float64)
    y = rho * x + (1 - rho**2) ** 0.5 * torch.randn(4096, generator=draw, dtype=torch.float64)
    slope, curve = rho / (1 - rho**2), -(rho**2) / (2 - 2 * rho**2)
    query = torch.stack([slope * x, torch.full_like(x, curve), curve * x**2], 1)
    keys = torch.stack([y, y**2, torch.ones_like(y)], 1)
    drawn = (torch.arange(4096)[:, None] + torch.randint(1, 4096, (4096, k), generator=draw)) % 4096
    loss = partial(info_nce, temperature=1.0)
    assert bounds_information(loss)
    bound = torch.tensor(k).log() - loss(query, keys[:, None], Negatives(keys, index=drawn))
    information = -0.5 * torch.tensor(1 - rho**2).log()
    assert information - 0.05 < bound < information


def test_only_nce_needs_a_partition() -> None:
    assert needs_partition(partial(nce, temperature=0.1))
    assert not any(needs_partition(loss) for name, loss in EVERY_LOSS.items() if not name.startswith("nce"))


@pytest.mark.parametrize("name", ["info_nce", "dcl", "jcl", "cacr", "repulsion", "hard_negative", "align_uniform"])
def test_the_gradient_of_a_coupled_loss_fades_with_an_easy_task(name: str) -> None:
    query = torch.tensor([[1.0, 0.2]], requires_grad=True)
    far = Negatives(torch.tensor([[-50.0, 0.0], [-50.0, 1.0]]))
    EVERY_LOSS[name](query, torch.tensor([[[50.0, 0.0]]]), far).backward()
    assert query.grad is not None
    assert is_coupled(EVERY_LOSS[name]) == bool(query.grad.abs().max() < 1e-6)


@for_every_loss
def test_a_pooled_loss_has_no_value_per_query(loss: Loss) -> None:
    given = torch.randn(3, 4), torch.randn(3, 2, 4), Negatives(torch.randn(5, 4))
    each = partial(loss, reduction="none")
    if is_pooled(loss):
        with pytest.raises(UserError, match="reduction: 'none' is not possible"):
            each(*given)
    else:
        assert each(*given).shape == (3,)
