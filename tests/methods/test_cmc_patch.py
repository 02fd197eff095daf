"""Patch-based contrast: embeddings against the positions of feature maps."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.encoders import create, heads
from manyview.methods import BatchOutputs, Method, cmc_patch, deep_infomax
from manyview.methods.method import VIEW
from tests.losses import oracle
from tests.methods.small import DIM, IDS, images, mapped, same_gradient

VIEWS, POSITIONS = ("L", "ab", "depth"), 9
HEAD = partial(heads.linear, dim_out=DIM)
PRESENT = {
    "L": torch.tensor([1, 1, 1, 0, 1, 1]).bool(),
    "ab": torch.tensor([1, 1, 0, 1, 1, 1]).bool(),
    "depth": torch.tensor([0, 1, 0, 1, 1, 0]).bool(),
}


def made(views: tuple[str, ...] = VIEWS, **options: Any) -> Method:
    encoders = {view: mapped(seed=number) for number, view in enumerate(views)}
    return cmc_patch(encoders, head=HEAD, **options).double()


def embedded(method: Method, **options: Any) -> tuple[list[Tensor], BatchOutputs]:
    shapes = {slot: (6, DIM) if slot.name == "embedding" else (6, POSITIONS, DIM) for slot in method.slots}
    raw = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes.values()]
    outputs = {slot: F.normalize(each, dim=-1) for slot, each in zip(shapes, raw, strict=True)}
    return raw, BatchOutputs(outputs, IDS, IDS, **options)


def direction(batch: BatchOutputs, whole: str, patches: str, there: dict[str, Tensor] | None = None) -> Tensor:
    """The mean over images and their positions of -log softmax, among the positions of other images."""
    by_name = {(slot.view, slot.name): each for slot, each in batch.outputs.items()}
    query, maps = by_name[whole, "embedding"], by_name[patches, "positions"]
    met_rows = [i for i in range(6) if there is None or there[patches][i]]
    rows = [i for i in met_rows if there is None or there[whole][i]]
    met = [[(maps[j, p], 1.0) for j in met_rows if j != i for p in range(POSITIONS)] for i in rows]
    return oracle.mean(oracle.info_nce(query[rows], maps[rows], met, temperature=0.1))


@pytest.mark.parametrize(
    ("views", "options", "pairs"),
    [
        (("L", "ab"), {}, [("L", "ab"), ("ab", "L")]),
        (VIEWS, {"graph": "core", "core": "ab"}, [("L", "ab"), ("ab", "L"), ("ab", "depth"), ("depth", "ab")]),
        (("L",), {}, [("L", "L")]),
    ],
)
def test_the_objective_is_the_sum_over_directions(
    views: tuple[str, ...], options: Any, pairs: list[tuple[str, str]]
) -> None:
    method = made(views, **options)
    raw, batch = embedded(method)
    found = method.objective(batch)
    assert list(found.terms) == [f"{i} to {j}" for i, j in pairs]
    expected = torch.stack([direction(batch, i, j) for i, j in pairs]).sum()
    same_gradient(found.loss, expected, raw)


def test_an_image_without_a_view_takes_no_part_in_its_directions() -> None:
    method = made()
    raw, batch = embedded(method, present=PRESENT)
    pairs = [term.name.split(" to ") for term in method.terms]
    expected = torch.stack([direction(batch, i, j, PRESENT) for i, j in pairs]).sum()
    same_gradient(method.objective(batch).loss, expected, raw)


def test_with_one_image_left_nothing_can_be_contrasted() -> None:
    method = made(("L", "ab"))
    alone = {"L": torch.ones(6).bool(), "ab": torch.tensor([0, 0, 1, 0, 0, 0]).bool()}
    raw, batch = embedded(method, present={"L": alone["ab"], "ab": alone["ab"]})
    loss = method.objective(batch).loss
    assert float(loss.detach()) == 0.0
    assert all(float(each.abs().max()) == 0 for each in torch.autograd.grad(loss, raw, materialize_grads=True))


def test_deep_infomax_is_the_same_with_one_view() -> None:
    one = made((VIEW,))
    other = deep_infomax(mapped(seed=0), head=HEAD).double()
    other.load_state_dict(dict(zip(other.state_dict(), one.state_dict().values(), strict=True)))
    views = {VIEW: images(1)}
    losses = [each.objective(BatchOutputs(each(views), IDS, IDS)).loss for each in (one, other)]
    assert torch.equal(*losses)


def test_positions_are_those_of_the_layer_that_is_named() -> None:
    encoders = {view: create("patchnet", size=32, widths=(4, 6, 8), blocks=(1, 1, 1)) for view in "ab"}
    for layer, count in ((None, 64), ("stage1", 256), ("stage3", 16)):
        method = cmc_patch(encoders, layer=layer)
        outputs = method({view: [torch.randn(2, 3, 32, 32)] for view in "ab"})
        found = {tuple(each.shape) for slot, each in outputs.items() if slot.name == "positions"}
        assert found == {(2, count, 64)}


def test_every_parameter_learns() -> None:
    method = made(("L", "ab"))
    method.objective(BatchOutputs(method({view: images(1) for view in ("L", "ab")}), IDS, IDS)).loss.backward()
    assert not method.towers.leaves_out(method.slots)
    assert all(each.grad is not None and bool(each.grad.abs().sum() > 0) for each in method.towers.trained())


def test_a_layer_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ValueError, match="layer: mapped has no feature map 'conv1'"):
        made(layer="conv1")
