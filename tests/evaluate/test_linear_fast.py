"""`linear-fast` is scikit-learn's logistic regression, with its C chosen without a look at the test labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from manyview.data import TorchDataset
from manyview.embeddings.open_model import open_model
from manyview.encoders import create
from manyview.evaluate import Task
from manyview.evaluate.linear_fast import layers, linear_fast, pooled
from tests.evaluate.pictures import depths, easy, encoder, pair, scenes, task


def test_scores_are_the_same_each_time_and_far_above_chance_where_it_is_easy() -> None:
    scores = dict(linear_fast(easy()))
    assert scores["top1"] > 0.9
    assert list(scores) == ["top1", "chosen C"]  # of three classes, five guesses are always right
    assert dict(linear_fast(easy())) == scores


def test_the_test_labels_change_the_score_and_never_what_was_chosen() -> None:
    base, test = task(), scenes(60, "test")
    assert test.labels is not None
    turned = TorchDataset(test._dataset, ids=test.ids, labels=test.labels.flip(0))
    turned.classes = test.classes
    one, other = dict(linear_fast(base)), dict(linear_fast(replace(base, test=turned)))
    assert one["chosen C"] == other["chosen C"]
    assert one["top1"] != other["top1"]
    assert list(one) == ["top1", "top5", "chosen C"]


def test_each_view_and_all_of_them_have_their_scores() -> None:
    names = list(dict(linear_fast(pair())))
    assert [name for name in names if name.endswith("top1")] == ["rgb top1", "depth top1", "all top1"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"cs": ()}, "cs: expected numbers above 0"), ({"held_out": 1.0}, "held_out: expected a share between 0 and 1")],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(linear_fast(easy(), **settings))  # type: ignore[arg-type]


CS = (1e-3, 0.1)


def test_every_layer_has_a_score_the_first_layer_first() -> None:
    scores = dict(layers(easy(), cs=CS))
    assert list(scores) == ["stem top1", "stage1 top1", "stage2 top1"]
    assert scores["stem top1"] > 0.9


def test_the_last_map_averaged_over_all_places_is_the_embedding() -> None:
    judged = easy()
    last = dict(layers(judged, dims=16, cs=CS))["stage2 top1"]  # 16 channels: one cell
    assert last == dict(linear_fast(judged, cs=CS))["top1"]


def test_a_map_is_averaged_over_as_many_cells_as_fit() -> None:
    network = encoder().eval()
    x = torch.randn(2, 3, 16, 16)
    maps = network.layers(x)
    seen = pooled(network, x, 32)
    assert seen.shape == (2, 8 * 4 + 8 * 4 + 16)  # 8 channels in 2 x 2 cells, 16 in one
    torch.testing.assert_close(seen[:, -16:], maps["stage2"].mean((2, 3)))
    assert pooled(network, x, 10**6).shape[1] == sum(each[0].numel() for each in maps.values())


def test_with_an_encoder_per_view_all_are_probed_layer_by_layer() -> None:
    names = list(dict(layers(pair(), dims=64, cs=(0.01,))))
    assert [name for name in names if name.endswith("top1")] == [
        f"{part} {layer} top1" for part in ("rgb", "depth", "all") for layer in ("stem", "stage1", "stage2")
    ]


def test_encoders_of_different_depths_are_probed_by_themselves_only() -> None:
    shallow = create("patchnet", channels=1, size=16, widths=(8,), blocks=(1,))
    both = Task(open_model({"rgb": encoder(), "depth": shallow}), depths(40, "train"), depths(20, "test"), "scenes")
    assert not any(name.startswith("all") for name in dict(layers(both, dims=64, cs=(0.01,))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"cs": ()}, "cs: expected numbers above 0"), ({"held_out": 1.0}, "held_out: expected a share between 0 and 1")],
)
def test_what_linear_fast_refuses_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(layers(easy(), **settings))
