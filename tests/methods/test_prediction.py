"""Cross-view prediction: who predicts what, with which decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.encoders import Slot, decoders
from manyview.losses import prediction as distances
from manyview.methods import BatchOutputs, Method, prediction, split_brain
from tests.methods.small import IDS, images, plain, same_gradient

CHANNELS = {"L": 1, "ab": 2, "depth": 1}
DECODER = partial(decoders.upsampling, side=2, width=3)
PRESENT = {
    "L": torch.tensor([1, 1, 1, 0, 1, 1]).bool(),
    "ab": torch.tensor([1, 1, 0, 1, 1, 1]).bool(),
    "depth": torch.tensor([0, 1, 0, 1, 1, 0]).bool(),
}


def made(make: Any = prediction, views: tuple[str, ...] = ("L", "ab", "depth"), **options: Any) -> Method:
    encoders = {view: plain(seed=number, channels=CHANNELS[view]) for number, view in enumerate(views)}
    declared: Method = make(encoders, decoder=DECODER, **options)
    return declared.double()


def seen(method: Method, **options: Any) -> tuple[dict[str, list[Tensor]], BatchOutputs]:
    views = {view: images(1, seed=number, channels=CHANNELS[view]) for number, view in enumerate(method.views)}
    return views, BatchOutputs(method(views), IDS, IDS, **options)


@pytest.mark.parametrize(
    ("make", "views", "options", "directions"),
    [
        (prediction, ("L", "depth"), {}, ["L to depth"]),
        (prediction, ("L", "depth"), {"target": "L"}, ["depth to L"]),
        (prediction, ("L", "ab", "depth"), {"target": "ab"}, ["L to ab", "depth to ab"]),
        (split_brain, ("L", "ab"), {}, ["L to ab", "ab to L"]),
        (
            split_brain,
            ("L", "ab", "depth"),
            {},
            ["L to ab", "L to depth", "ab to L", "ab to depth", "depth to L", "depth to ab"],
        ),
    ],
)
def test_who_predicts_what(make: Any, views: tuple[str, ...], options: Any, directions: list[str]) -> None:
    method = made(make, views, **options)
    assert [term.name for term in method.terms] == directions
    seeing = list(dict.fromkeys(each.split(" to ")[0] for each in directions))
    assert list(method.towers.encoders) == seeing
    assert method.views == dict.fromkeys(views, 1)
    assert not method.towers.leaves_out(method.slots)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("make", [prediction, split_brain])
def test_the_objective_is_the_sum_over_directions_of_the_mean_over_images_that_have_both(
    make: Any, missing: bool
) -> None:
    method = made(make)
    views, batch = seen(method, present=PRESENT if missing else {})
    parts = []
    for term in method.terms:
        i, j = term.name.split(" to ")
        tower = method.towers.query[i]
        decoded = tower.heads[f"predicted {j}"](tower.encoder(views[i][0]))  # type: ignore[index, operator]
        rows = [row for row in range(6) if not missing or (PRESENT[i][row] and PRESENT[j][row])]
        assert missing == (len(rows) < 6)
        each = [(decoded[row] - F.avg_pool2d(views[j][0], 2)[row]).square().mean() for row in rows]
        parts.append(torch.stack(each).mean())
    same_gradient(method.objective(batch).loss, torch.stack(parts).sum(), list(method.towers.trained()))


@pytest.mark.parametrize(
    ("distance", "channels"),
    [
        (partial(distances.l1), {"L": 2, "ab": 1}),
        (partial(distances.bins, classes=5), {"L": 10, "ab": 5}),
        (partial(distances.labels, classes=3), {"L": 6, "ab": 3}),
    ],
)
def test_a_decoder_is_as_wide_as_what_it_predicts(distance: Any, channels: dict[str, int]) -> None:
    method = made(split_brain, ("L", "ab"), distance=distance)
    _, batch = seen(method)
    found = {slot.view: each.shape for slot, each in batch.outputs.items() if slot.branch == "query"}
    assert found == {view: (6, count, 2, 2) for view, count in channels.items()}
    assert bool(torch.isfinite(method.objective(batch).loss))


def test_the_target_is_never_learnt_from() -> None:
    method = made(views=("L", "depth"))
    method.objective(seen(method)[1]).loss.backward()
    assert {name.split(".")[1] for name, _ in method.towers.named_parameters()} == {"L"}
    assert all(each.grad is not None and bool(each.grad.abs().sum() > 0) for each in method.towers.trained())


def test_no_data_is_the_mean_for_an_encoder_and_nothing_for_who_predicts_it() -> None:
    method = made(split_brain, ("L", "depth"))
    views, _ = seen(method)
    views["depth"][0][0, :, :, :2] = torch.nan
    slots = [slot for slot in method.slots if slot.branch == "query"]
    filled = {view: [copy.nan_to_num() for copy in copies] for view, copies in views.items()}
    for slot, found in method(views, slots=slots).items():  # as micro-batches ask again
        assert found.equal(method(filled)[slot])
    outputs = method(views)
    loss = method.objective(BatchOutputs(outputs, IDS, IDS)).terms["L to depth"].loss
    decoded = outputs[Slot("query", "L", 0, "predicted depth")]
    places = (decoded - F.avg_pool2d(filled["depth"][0], 2)).square()
    each = [places[0, :, :, 1:].mean(), *(places[row].mean() for row in range(1, 6))]
    same_gradient(loss, torch.stack(each).mean(), [decoded])


def test_it_learns_what_can_be_predicted() -> None:
    method, x = made(views=("L", "ab")), images(1, 6, channels=1)
    views = {"L": x, "ab": [torch.cat([x[0], -x[0]], 1)]}
    optimizer, values = torch.optim.Adam(method.towers.trained(), 0.01), []
    for _ in range(60):
        loss = method.objective(BatchOutputs(method(views), IDS, IDS)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize(
    ("make", "views", "options", "reason"),
    [
        (prediction, ("L",), {}, "views: expected two or more, one to predict another, got L alone"),
        (split_brain, ("L",), {}, "views: expected two or more, one to predict another, got L alone"),
        (prediction, ("L", "depth"), {"target": "dept"}, "target: there is no view 'dept'; did you mean 'depth'"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(make: Any, views: tuple[str, ...], options: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        made(make, views, **options)
