from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.encoders import Encoder, Towers, create, projection, split_batch_norm
from manyview.encoders.momentum import cosine

SMALL: dict[str, Any] = {"size": 16, "widths": (8, 12), "blocks": (1, 1)}
HEAD = partial(projection, "mlp", dim_out=6)


def small(channels: int = 3) -> Encoder:
    return create("patchnet", channels=channels, **SMALL)


def towers(**options: Any) -> Towers:
    torch.manual_seed(0)
    return Towers(small(), HEAD, **options)


def images(channels: int = 3, count: int = 8) -> Tensor:
    return torch.randn(count, channels, 16, 16, generator=torch.Generator().manual_seed(1))


def train_once(each: Towers, step: int = 0, total: int = 10) -> None:
    optimizer = torch.optim.SGD(each.trained(), lr=0.5)
    (each.queries(images()) * each.keys(images().flip(0))).sum().backward()
    optimizer.step()
    each.update(step, total)


def test_queries_have_gradient_and_unit_length() -> None:
    each = towers()
    q = each.queries(images())
    assert q.shape == (8, 6)
    assert q.requires_grad
    torch.testing.assert_close(q.norm(dim=1), torch.ones(8))


def test_without_normalisation_vectors_come_as_the_head_made_them() -> None:
    each = towers(normalize=False).eval()
    tower = each.query["shared"]
    assert torch.equal(each.queries(images()), tower(images()))


def test_without_momentum_keys_are_the_same_tower_with_gradient() -> None:
    each = towers().eval()
    assert torch.equal(each.keys(images()), each.queries(images()))
    assert each.keys(images()).requires_grad
    each.update(0, 1)


def test_with_momentum_keys_have_no_gradient_and_start_as_the_queries() -> None:
    each = towers(momentum=0.9).eval()
    assert not each.keys(images()).requires_grad
    assert torch.equal(each.keys(images()), each.queries(images()))


def test_the_key_tower_follows_by_the_formula() -> None:
    each = towers(momentum=0.9).double()
    before = {name: value.clone() for name, value in each.key.named_parameters()}  # type: ignore[union-attr]
    each_input = images().double()
    optimizer = torch.optim.SGD(each.trained(), lr=0.5)
    (each.queries(each_input) * each.keys(each_input.flip(0))).sum().backward()
    optimizer.step()
    each.update(0, 10)
    moved = 0
    query = dict(each.query.named_parameters())
    for name, value in each.key.named_parameters():  # type: ignore[union-attr]
        torch.testing.assert_close(value, 0.9 * before[name] + (1 - 0.9) * query[name], rtol=1e-12, atol=1e-14)
        moved += not torch.equal(value, before[name])
    assert moved > 5


def test_keys_do_not_move_until_they_are_told() -> None:
    each = towers(momentum=0.9)
    before = copy.deepcopy(dict(each.key.named_parameters()))  # type: ignore[union-attr]
    (each.queries(images()) * each.keys(images().flip(0))).sum().backward()
    torch.optim.SGD(each.trained(), lr=0.5).step()
    assert all(torch.equal(value, before[name]) for name, value in each.key.named_parameters())  # type: ignore[union-attr]


def test_momentum_may_be_a_function_of_the_step() -> None:
    each = towers(momentum=partial(cosine, start=0.5))
    assert each.momentum_at(0, 10) == 0.5
    assert each.momentum_at(10, 10) == 1.0
    before = copy.deepcopy(dict(each.key.named_parameters()))  # type: ignore[union-attr]
    train_once(each, step=10)
    assert all(torch.equal(value, before[name]) for name, value in each.key.named_parameters())  # type: ignore[union-attr]


def test_running_statistics_of_the_key_tower_are_its_own() -> None:
    each = towers(momentum=0.0)
    each.queries(images())
    each.keys(2 * images() + 1)
    each.update(0, 1)
    query, key = each.query.state_dict(), each.key.state_dict()  # type: ignore[union-attr]
    for name in query:
        if "running_mean" in name and "stem" in name:
            assert not torch.allclose(query[name], key[name])
        elif "running" not in name:
            assert torch.equal(query[name], key[name])
    assert all(part.training for part in each.key.modules())  # type: ignore[union-attr]


def test_an_optimiser_gets_no_key_parameter() -> None:
    each = towers(momentum=0.9, predictor=partial(projection, "predictor", dim_out=6, hidden=8))
    trained = {id(value) for value in each.trained()}
    assert trained == {id(value) for value in [*each.query.parameters(), *each.predictor.parameters()]}
    assert not any(value.requires_grad for value in each.key.parameters())  # type: ignore[union-attr]


def test_the_predictor_is_for_queries_alone() -> None:
    each = towers(predictor=partial(projection, "predictor", dim_out=6, hidden=8), momentum=0.9).eval()
    assert not torch.allclose(each.queries(images()), each.keys(images()))
    assert not any("predictor" in name for name, _ in each.key.named_modules())  # type: ignore[union-attr]
    plain = each.query["shared"](images())
    expected = nn.functional.normalize(each.predictor["shared"](plain), dim=1)
    torch.testing.assert_close(each.queries(images()), expected)


def test_two_views_of_different_channels_have_a_tower_each() -> None:
    each = Towers({"rgb": small(3), "depth": small(1)}, HEAD, views=("rgb", "depth"), momentum=0.9)
    assert each.queries(images(3), "rgb").shape == each.keys(images(1), "depth").shape == (8, 6)
    assert each.views == ("rgb", "depth")
    assert each.encoder("depth").options["channels"] == 1


def test_towers_of_views_may_come_from_a_function() -> None:
    channels = {"l": 1, "ab": 2}
    each = Towers(lambda view: small(channels[view]), HEAD, views=("l", "ab"))
    assert each.queries(images(2), "ab").shape == (8, 6)
    with pytest.raises(ValueError, match="view: expected one of l, ab, got 'rgb'"):
        each.queries(images(), "rgb")
    with pytest.raises(ValueError, match="view: expected one of l, ab, got None"):
        each.queries(images())


def test_a_shared_tower_takes_every_view() -> None:
    each = towers().eval()
    assert torch.equal(each.queries(images(), "first"), each.queries(images()))
    assert each.views is None
    assert each.encoder().name == "patchnet"


def test_state_survives_the_state_dict() -> None:
    first = towers(momentum=0.9, predictor=partial(projection, "predictor", dim_out=6, hidden=8))
    train_once(first)
    torch.manual_seed(5)
    second = Towers(small(), HEAD, momentum=0.9, predictor=partial(projection, "predictor", dim_out=6, hidden=8))
    second.load_state_dict(first.state_dict())
    first.eval(), second.eval()
    assert torch.equal(first.queries(images()), second.queries(images()))
    assert torch.equal(first.keys(images()), second.keys(images()))
    assert not torch.equal(first.keys(images()), first.queries(images()))


def test_a_deep_copy_lives_on_its_own() -> None:
    first = towers(momentum=0.9, shuffle=3)
    second = copy.deepcopy(first)
    optimizer = torch.optim.SGD(second.trained(), lr=0.5)
    second.queries(images())[:, 0].sum().backward()
    optimizer.step()
    second.update(0, 1)
    assert all(value.grad is None for value in first.parameters())
    weights = [next(each.query.parameters()) for each in (first, second)]
    assert not torch.equal(*weights)
    assert not any(value.requires_grad for value in second.key.parameters())  # type: ignore[union-attr]


def test_shuffled_keys_are_a_function_of_the_step_and_matter_with_split_batch_norm() -> None:
    each = towers(momentum=0.9, shuffle=7)
    split_batch_norm(each, 4)
    first, again, other = (each.keys(images(), step=step) for step in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    with pytest.raises(ValueError, match="step: shuffled keys"):
        each.keys(images())
    assert torch.equal(each.eval().keys(images()), each.keys(images(), step=3))


def test_without_a_split_shuffling_changes_nothing() -> None:
    plain, shuffled = towers(momentum=0.9), towers(momentum=0.9, shuffle=7)
    torch.testing.assert_close(plain.keys(images()), shuffled.keys(images(), step=1))


@pytest.mark.parametrize("momentum", [1.5, -1, math.nan])
def test_a_wrong_momentum_is_refused_at_once(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum: expected"):
        towers(momentum=momentum)


def test_wrong_towers_are_refused() -> None:
    with pytest.raises(ValueError, match="without views it is one Encoder"):
        Towers({"rgb": small()}, HEAD)
    with pytest.raises(ValueError, match="one for each view"):
        Towers({"rgb": small()}, HEAD, views=("rgb", "depth"))
    with pytest.raises(ValueError, match="an encoder per view"):
        Towers(small(), HEAD, views=("rgb", "depth"))
    with pytest.raises(ValueError, match="different names"):
        Towers(lambda view: small(), HEAD, views=("rgb", "rgb"))
    for name in ("a.b", "shared", "keys", ""):
        with pytest.raises(ValueError, match=r"views: .*not possible"):
            Towers(lambda view: small(), HEAD, views=("rgb", name))
    with pytest.raises(ValueError, match="head: give what makes it"):
        Towers(small(), nn.Linear(12, 6))


def test_vectors_are_float32_after_autocast() -> None:
    each = towers(momentum=0.9)
    with torch.autocast("cpu", torch.bfloat16):
        q, k = each.queries(images()), each.keys(images())
    assert q.dtype == k.dtype == torch.float32
    torch.testing.assert_close(q.norm(dim=1), torch.ones(8))


def test_without_a_head_the_representation_itself_is_contrasted() -> None:
    each = Towers(small(), None, momentum=0.9)
    assert each.queries(images()).shape == (8, 12)
