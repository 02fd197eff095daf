from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.encoders import HEADS, Encoder, Slot, Towers, create, split_batch_norm
from manyview.encoders.momentum import cosine

SMALL: dict[str, Any] = {"size": 16, "widths": (8, 12), "blocks": (1, 1)}
HEAD = partial(HEADS["mlp"], dim_out=6)


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
    assert torch.equal(each.queries(images()), tower(images())["projection"])


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
    assert each.momentum is not None
    assert (each.momentum(0, 10), each.momentum(10, 10)) == (0.5, 1.0)
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
    each = towers(momentum=0.9, predictor=partial(HEADS["predictor"], dim_out=6, hidden=8))
    trained = {id(value) for value in each.trained()}
    assert trained == {id(value) for value in [*each.query.parameters(), *each.predictor.parameters()]}
    assert not any(value.requires_grad for value in each.key.parameters())  # type: ignore[union-attr]


def test_the_predictor_is_for_queries_alone() -> None:
    each = towers(predictor=partial(HEADS["predictor"], dim_out=6, hidden=8), momentum=0.9).eval()
    assert not torch.allclose(each.queries(images()), each.keys(images()))
    assert not any("predictor" in name for name, _ in each.key.named_modules())  # type: ignore[union-attr]
    plain = each.query["shared"](images())["projection"]
    expected = nn.functional.normalize(each.predictor["shared"](plain), dim=1)
    torch.testing.assert_close(each.queries(images()), expected)


def test_two_views_of_different_channels_have_a_tower_each() -> None:
    each = Towers({"rgb": small(3), "depth": small(1)}, HEAD, momentum=0.9)
    assert each.queries(images(3), "rgb").shape == each.keys(images(1), "depth").shape == (8, 6)
    assert list(each.encoders) == ["rgb", "depth"]
    assert each.encoder("depth").options["channels"] == 1
    assert each.encoder() is each.encoders["rgb"]


def test_further_heads_may_be_those_of_some_views_alone() -> None:
    heads: dict[str, Any] = {
        "all": HEAD,
        "of a": {"a": HEAD},
        "of both": {"a": HEAD, "b": partial(HEADS["linear"], dim_out=3)},
    }
    each = Towers({"a": small(1), "b": small(2)}, None, heads=heads)
    assert {view: list(tower.heads) for view, tower in each.query.items()} == {  # type: ignore[arg-type]
        "a": ["all", "of a", "of both"],
        "b": ["all", "of both"],
    }
    views = {"a": [images(1)], "b": [images(2)]}
    slots = [Slot("query", view, 0, "of both") for view in "ab"]
    assert [tuple(found.shape) for found in each(views, slots).values()] == [(8, 6), (8, 3)]
    with pytest.raises(ValueError, match="no output is called 'of a'"):
        each(views, [Slot("query", "b", 0, "of a")])


def test_a_view_without_a_tower_is_refused() -> None:
    each = Towers({"l": small(1), "ab": small(2)}, HEAD)
    assert each.queries(images(2), "ab").shape == (8, 6)
    with pytest.raises(ValueError, match="view: expected one of l, ab, got 'rgb'"):
        each.queries(images(), "rgb")
    with pytest.raises(ValueError, match="view: expected one of l, ab, got None"):
        each.queries(images())


def test_a_shared_tower_takes_every_view() -> None:
    each = towers().eval()
    assert torch.equal(each.queries(images(), "first"), each.queries(images()))
    assert list(each.encoders) == ["shared"]
    assert each.encoder() is each.encoder("first")
    assert each.encoder().name == "patchnet"


def test_state_survives_the_state_dict() -> None:
    first = towers(momentum=0.9, predictor=partial(HEADS["predictor"], dim_out=6, hidden=8))
    train_once(first)
    torch.manual_seed(5)
    second = Towers(small(), HEAD, momentum=0.9, predictor=partial(HEADS["predictor"], dim_out=6, hidden=8))
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
    assert torch.equal(each.eval().keys(images()), each.keys(images(), step=3))


def test_without_a_split_shuffling_changes_nothing() -> None:
    plain, shuffled = towers(momentum=0.9), towers(momentum=0.9, shuffle=7)
    torch.testing.assert_close(plain.keys(images()), shuffled.keys(images(), step=1))


@pytest.mark.parametrize("momentum", [1.5, -1, math.nan])
def test_a_wrong_momentum_is_refused_at_once(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum: expected"):
        towers(momentum=momentum)


def test_wrong_towers_are_refused() -> None:
    wrong: list[Any] = [{}, [small()], None]
    for encoder in wrong:
        with pytest.raises(ValueError, match="encoder: expected one Encoder, or one for each view by name, got"):
            Towers(encoder, HEAD)
    for name in ("a.b", "shared", "keys", ""):
        with pytest.raises(ValueError, match=f"encoder: a view cannot be named '{name}'; give another name"):
            Towers({"rgb": small(), name: small()}, HEAD)
    with pytest.raises(ValueError, match="heads: 'features' is already the name of an output; give another name"):
        Towers(small(), HEAD, heads={"features": partial(nn.Linear, out_features=2)})
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


class Rows:
    """How many rows each call of a network was given."""

    def __init__(self, network: nn.Module) -> None:
        self.calls: list[int] = []
        network.register_forward_pre_hook(lambda _, given: self.calls.append(len(given[0])))


def copies(count: int, side: int = 16) -> list[Tensor]:
    return list(torch.randn(count, 8, 3, side, side, generator=torch.Generator().manual_seed(2)))


def decoder(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, 3 * 4), nn.Unflatten(1, (3, 2, 2)))


def test_one_pass_through_the_encoder_gives_all_that_is_asked_for() -> None:
    each = towers(heads={"decoded": decoder}, predictor=partial(HEADS["predictor"], dim_out=6, hidden=8)).eval()
    rows, x = Rows(each.encoder().network), images()
    names = ("maps.stage1", "embedding", "features", "decoded", "projection")
    slots = [Slot("query", "image", 0, name) for name in names]
    found = each({"image": [x]}, slots)
    assert list(found) == slots
    assert rows.calls == [8]
    maps, embedding, features, decoded, projected = found.values()
    tower, network = each.query["shared"], each.encoder()
    features_alone, maps_alone = network.embed_with_maps(x, ["stage1"])
    assert torch.equal(features, features_alone)
    assert torch.equal(maps, maps_alone["stage1"])
    assert torch.equal(decoded, tower.heads["decoded"](features))  # type: ignore[index, operator]
    raw = tower(x)["projection"]
    assert torch.equal(projected, nn.functional.normalize(raw, dim=1))
    assert torch.equal(embedding, nn.functional.normalize(each.predictor["shared"](raw), dim=1))


def test_a_branch_is_not_run_for_outputs_that_nobody_asks_for() -> None:
    each = towers(momentum=0.9)
    assert each.key is not None
    query, key = Rows(each.query["shared"]), Rows(each.key["shared"])
    each({"image": copies(3)}, [Slot("query", "image", 1)])
    assert (query.calls, key.calls) == ([8], [])
    each({"image": copies(3)}, [Slot("key", "image", 0), Slot("key", "image", 2)])
    assert (query.calls, key.calls) == ([8], [16])


@pytest.mark.parametrize("joint", [True, False])
def test_copies_go_through_a_tower_together_or_one_by_one(joint: bool) -> None:
    each = towers(joint=joint).eval()
    rows = Rows(each.query["shared"])
    slots = [Slot("query", "image", copy, name) for copy in range(3) for name in ("embedding", "features")]
    found = each({"image": copies(3)}, slots)
    assert rows.calls == ([24] if joint else [8, 8, 8])
    for number, x in enumerate(copies(3)):
        torch.testing.assert_close(found[Slot("query", "image", number)], each.queries(x))


def test_copies_of_different_sizes_go_those_of_one_size_at_a_time() -> None:
    each = towers().eval()
    rows = Rows(each.query["shared"])
    first, last = copies(2)
    given = [first, copies(1, 8)[0], last]
    found = each({"image": given}, [Slot("query", "image", copy) for copy in range(3)])
    assert rows.calls == [16, 8]
    for (slot, query), x in zip(found.items(), given, strict=True):  # each in its place
        torch.testing.assert_close(query, each.queries(x), msg=str(slot))


def test_each_view_goes_through_its_own_tower() -> None:
    each = Towers({"rgb": small(3), "depth": small(1)}, HEAD).eval()
    views = {"rgb": [images(3)], "depth": [images(1)]}
    found = each(views, [Slot("key", "depth", 0), Slot("query", "rgb", 0), Slot("query", "depth", 0)])
    assert [(slot.branch, slot.view) for slot in found] == [("key", "depth"), ("query", "rgb"), ("query", "depth")]
    assert torch.equal(found[Slot("query", "rgb", 0)], each.queries(images(3), "rgb"))
    assert torch.equal(found[Slot("key", "depth", 0)], each.keys(images(1), "depth"))


def test_the_branch_of_inputs_gives_the_view_itself() -> None:
    each, given = towers(), copies(2)
    found = each({"image": given}, [Slot("input", "image", 1, "view")])
    assert found[Slot("input", "image", 1, "view")] is given[1]


def test_which_outputs_have_a_gradient() -> None:
    for momentum, keys in ((0.9, False), (None, True)):
        each = towers(momentum=momentum)
        slots = [Slot("query", "image", 0), Slot("key", "image", 0), Slot("key", "image", 0, "features")]
        found = each({"image": copies(1)}, slots)
        assert [output.requires_grad for output in found.values()] == [True, keys, keys]
        assert [each.has_gradient(slot) for slot in slots] == [True, keys, keys]
    assert not each.has_gradient(Slot("input", "image", 0, "view"))


def test_shuffled_keys_of_any_name_come_back_in_their_places() -> None:
    each = towers(momentum=0.9, shuffle=3, heads={"decoded": decoder}, joint=False)
    for part in each.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()  # so that an image's outputs do not depend on the others
    names = ("embedding", "features", "decoded", "maps.stage1")
    (x,) = copies(1)
    found = each({"image": [x]}, [Slot("key", "image", 0, name) for name in names], step=4)
    plain = each.eval()({"image": [x]}, [Slot("key", "image", 0, name) for name in names])
    for slot, rows in plain.items():
        torch.testing.assert_close(found[slot], rows)


def test_an_output_that_nobody_makes_is_named() -> None:
    with pytest.raises(
        ValueError, match="name: no output is called 'decoded'; there are embedding, projection, features"
    ):
        towers()({"image": copies(1)}, [Slot("query", "image", 0, "decoded")])


def test_patches_go_through_the_encoder_one_by_one_and_a_head_takes_all_of_them() -> None:
    each = towers(heads={"sum": lambda dim: Sum()}).eval()
    patches = torch.randn(4, 9, 3, 16, 16)
    plain, summed = Slot("query", "image", 0), Slot("query", "image", -1, "sum")
    found = each({"image": [images(count=4), patches]}, [plain, summed])
    assert torch.equal(found[plain], each.queries(images(count=4)))
    alone = [each.encoder()(patch) for patch in patches]
    torch.testing.assert_close(found[summed], torch.stack([rows.sum(0) for rows in alone]), rtol=1e-5, atol=1e-5)


class Sum(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.sum(1)
