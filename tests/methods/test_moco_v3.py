from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview import losses
from manyview.encoders import create, heads
from manyview.methods import moco_v3
from manyview.methods.method import VIEW
from manyview.methods.moco_v3 import two_temperatures
from tests.golden import DOUBLE, assert_golden, unit
from tests.methods.small import DIM, Given, Rows, doubled, embed, golden_views, images, objective, same_gradient

PREDICTOR = partial(heads.mlp, dim_out=DIM)


def golden_momentum_keys() -> list[Tensor]:
    return list(unit(DOUBLE.given("kviews_raw"))[:2])


def test_it_gives_the_authors_numbers() -> None:
    method = doubled(moco_v3, loss=partial(losses.info_nce, temperature=0.2))
    views = DOUBLE.given("views_raw")[:2].clone().requires_grad_()
    loss = objective(method, Given(list(unit(views)), golden_momentum_keys()))
    assert_golden("mocov3/T0.2", loss, {"views_raw": views}, DOUBLE)


@pytest.mark.parametrize("small", [0, 3])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_it_is_two_t_cross_entropies_of_each_query_and_each_other_copys_keys(small: int, temperature: float) -> None:
    method = doubled(moco_v3, small=small, loss=partial(losses.info_nce, temperature=temperature))
    raw, queries = golden_views(2 + small)
    keys, labels, expected = golden_momentum_keys(), torch.arange(6), []
    for number, key in enumerate(keys):
        others = [query for v, query in enumerate(queries) if v != number]
        each = [2 * temperature * F.cross_entropy(query @ key.T / temperature, labels) for query in others]
        expected.append(torch.stack(each).mean())
    same_gradient(objective(method, Given(queries, keys)), torch.stack(expected).sum(), [raw])


def test_small_crops_are_queries_only_and_each_copy_is_a_pass_of_its_own() -> None:
    encoder = create("patchnet", size=32, widths=(8, 16), blocks=(1, 1))
    method = moco_v3(encoder, small=3, head=PREDICTOR, predictor=PREDICTOR)
    assert method.towers.key is not None
    queries, keys = Rows(method.towers.query["shared"]), Rows(method.towers.key["shared"])
    copies = [torch.randn(4, 3, side, side) for side in (32, 32, 16, 16, 16)]
    outputs = method({VIEW: copies})
    assert (queries.calls, keys.calls) == ([4] * 5, [4] * 2)
    assert {slot.copy for slot in outputs if slot.branch == "key"} == {0, 1}
    assert (method.views, method.small) == ({VIEW: 5}, 3)


def test_queries_go_through_the_predictor_and_keys_do_not_and_only_queries_learn() -> None:
    method = doubled(moco_v3)
    given = embed(method, images(2))
    objective(method, given).backward()
    with torch.no_grad():
        x = images(2)[0]
        projected = method.towers.query["shared"](x)["projection"]
        predicted = method.towers.predictor["shared"](projected)
    torch.testing.assert_close(given.queries[0], F.normalize(predicted, dim=1))
    torch.testing.assert_close(given.keys[0], F.normalize(projected, dim=1))
    assert not any(key.requires_grad for key in given.keys)
    assert all(each.grad is not None for each in method.towers.predictor.parameters())
    assert method.towers.key is not None
    assert not any("predictor" in name for name, _ in method.towers.key.named_parameters())


def test_its_heads_are_those_of_a_resnet_in_the_authors_code() -> None:
    with torch.device("meta"):
        method = moco_v3(create("torchvision/resnet50", size=64))
    head, predictor = method.towers.query["shared"].head, method.towers.predictor["shared"]
    assert isinstance(head, nn.Sequential)
    assert isinstance(predictor, nn.Sequential)
    assert [tuple(each.weight.shape) for each in head if isinstance(each, nn.Linear)] == [(4096, 2048), (256, 4096)]
    assert [tuple(each.weight.shape) for each in predictor if isinstance(each, nn.Linear)] == [(4096, 256), (256, 4096)]
    assert isinstance(head[-1], nn.BatchNorm1d)
    assert not head[-1].affine
    assert isinstance(predictor[-1], nn.Linear)
    assert all(each.bias is None for each in (*head, *predictor) if isinstance(each, nn.Linear))


def test_its_momentum_grows_to_one_along_a_cosine() -> None:
    momentum = doubled(moco_v3).towers.momentum
    assert momentum is not None
    assert [round(momentum(step, 100), 6) for step in (0, 50, 100)] == [0.99, 0.995, 1.0]


def test_a_predictor_of_another_length_than_the_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="predictor: gives 9 numbers, and keys have 8: give both the same dim_out"):
        doubled(moco_v3, predictor=partial(heads.mlp, dim_out=9))


def test_a_loss_without_temperature_keeps_its_own_scale() -> None:
    assert two_temperatures(partial(losses.info_nce, temperature=0.2)) == 0.4
    assert two_temperatures(losses.cacr) == 1.0
    assert two_temperatures(losses.dcl) == 2 * 0.1


def test_a_network_that_is_frozen_in_part_follows_and_stays() -> None:
    vit = create("vit", size=16, patch=8, width=8, depth=1, heads=2)
    method = moco_v3(vit, head=PREDICTOR, predictor=PREDICTOR)
    before = {name: each.clone() for name, each in vit.named_parameters()}
    optimizer = torch.optim.SGD(method.towers.trained(), lr=0.1)
    copies = [torch.randn(4, 3, 16, 16) for _ in range(2)]
    objective(method, embed(method, copies, ids=torch.arange(4))).backward()
    optimizer.step()
    moved = {name for name, each in vit.named_parameters() if not torch.equal(each, before[name])}
    assert set(before) - moved == {
        "network.pos_embed", "network.patch_embed.proj.weight", "network.patch_embed.proj.bias",
    }  # fmt: skip
