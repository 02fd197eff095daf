"""A probe on every layer: each sees its own map and nothing of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from manyview.embeddings.model_source import open_model
from manyview.encoders import create
from manyview.evaluate import Task
from manyview.evaluate.layers import layers, pooled
from manyview.evaluate.logistic import linear_fast
from tests.evaluate.pictures import depths, easy, encoder, pair

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
