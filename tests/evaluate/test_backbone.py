from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from timm.layers.drop import DropPath
from torch import Tensor
from torch.utils.data import Dataset

from manyview.data import TorchDataset
from manyview.embeddings.open_model import open_model
from manyview.encoders import create
from manyview.evaluate import Task
from manyview.evaluate.backbone import (
    LAYER_DIMS,
    ViewBackbone,
    augmented_batches,
    check_unchanged,
    choose_layer,
    layer_features,
    plain_test_batches,
    read_layer,
    trainable_backbone,
    with_drop_path,
)
from tests.evaluate.pictures import encoder, pair, scenes, task


def frozen_backbone(task: Task, part: str) -> ViewBackbone:
    return trainable_backbone(task, part).eval().requires_grad_(False)


def test_what_pre_training_had_frozen_is_trained_with_labels_and_stays_frozen_in_the_model() -> None:
    given = task(create("vit", size=16, patch=8, width=8, depth=1, heads=2))
    (part,) = given.parts
    assert all(each.requires_grad for each in trainable_backbone(given, part).parameters())
    (model,) = given.model.encoders.values()
    assert not all(each.requires_grad for each in model.parameters())


def test_several_encoders_see_side_by_side_and_each_by_itself() -> None:
    both = pair()
    seen = {}
    for part in both.parts:
        for views, _ in plain_test_batches(both, part).epoch(0):
            seen[part] = frozen_backbone(both, part)(views)
        torch.testing.assert_close(seen[part], layer_features(both, "test", part, None)[0], rtol=1e-4, atol=1e-5)
    assert both.parts == ["rgb", "depth", "all"]
    assert torch.equal(seen["all"], torch.cat([seen["rgb"], seen["depth"]], 1))
    assert frozen_backbone(both, "all").dim == 16 + 12


@pytest.mark.parametrize("layer", ["stem", "stage1", "stage2"])
def test_a_layer_is_averaged_to_a_grid_within_the_limit(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.evaluate.backbone.LAYER_DIMS", 8 * 5 * 5)
    network, x = encoder().eval(), torch.randn(3, 3, 16, 16)
    whole = network.layers(x)[layer]  # 8 x 8 x 8, 8 x 8 x 8 and 16 x 4 x 4
    seen = read_layer(layer, network, x)
    side = 5 if whole.shape[1] == 8 else 3
    assert seen.shape == (3, whole.shape[1] * side * side)
    first = whole[:, :, : -(-whole.shape[2] // side), : -(-whole.shape[2] // side)].mean((2, 3))
    torch.testing.assert_close(seen[:, :: side * side], first)


def test_the_limit_is_that_of_cmcs_alexnet() -> None:
    sides = [int((LAYER_DIMS // channels) ** 0.5) for channels in (96, 256, 384, 384, 256)]
    assert sides == [10, 6, 5, 5, 6]


def test_a_layer_after_a_fully_connected_one_is_taken_whole() -> None:
    torch.manual_seed(0)
    network = create("small_alexnet", size=16, out_dim=4).eval()
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(read_layer("fc7", network, x), network.layers(x)["fc7"])
    assert read_layer("fc7", network, x).shape == (2, 4096)


def test_the_layer_asked_for_must_be_there_and_the_usual_one_may_be() -> None:
    judged = open_model(encoder())
    assert choose_layer(judged, None, None) is None
    assert choose_layer(judged, None, "fc7") is None
    assert choose_layer(judged, None, "stage1") == "stage1"
    assert choose_layer(judged, "stem", "stage1") == "stem"
    with pytest.raises(ValueError, match=r"^layer: expected one of stem, stage1, stage2 in patchnet, got 'fc7'$"):
        choose_layer(judged, "fc7", None)


def test_the_check_finds_a_parameter_that_moved_and_a_statistic_that_moved() -> None:
    judged = task()
    backbone = frozen_backbone(judged, "")
    check_unchanged(backbone, judged, "")
    network = backbone.encoders[0]
    with torch.no_grad():
        next(network.parameters()).add_(1e-6)
    with pytest.raises(RuntimeError, match=r"^network\.stem\.0\.weight of patchnet changed"):
        check_unchanged(backbone, judged, "")
    backbone = frozen_backbone(judged, "").train()  # what must not be
    backbone({"image": [torch.randn(8, 3, 16, 16)]})
    with pytest.raises(RuntimeError, match="running_mean of patchnet changed"):
        check_unchanged(backbone, judged, "")


def test_frozen_copies_take_no_gradient_and_leave_the_model_alone() -> None:
    judged = task()
    judged.model.encoder.train()
    backbone = frozen_backbone(judged, "")
    assert not any(part.training for part in backbone.modules())
    assert not any(each.requires_grad for each in backbone.parameters())
    assert judged.model.encoder.training
    assert all(each.requires_grad for each in judged.model.encoder.parameters())


def test_training_images_are_cropped_anew_each_epoch_and_the_same_again_when_asked_again() -> None:
    def epoch(number: int) -> Tensor:
        seen = augmented_batches(task(), 16, lambda views: views["image"][0], drop_last=False).epoch(number)
        return torch.cat([x for x, _ in seen])

    assert len(epoch(0)) == 120
    assert torch.equal(epoch(0), epoch(0))
    assert not torch.equal(epoch(0).sort(0).values, epoch(1).sort(0).values)
    assert augmented_batches(task(), 16, lambda views: views, drop_last=True).count == 7


class Torn(Dataset[Any]):
    """The scenes, of which the fourth cannot be read."""

    def __init__(self) -> None:
        self.whole = scenes(60, "test")
        self.classes, self.targets = self.whole.classes, self.whole.labels

    def __len__(self) -> int:
        return 60

    def __getitem__(self, row: int) -> Tensor:
        if row == 3:
            raise OSError("torn")
        return self.whole[row].modalities["image"]


def test_an_image_that_cannot_be_read_is_not_replaced_by_another_in_the_test() -> None:
    torn = replace(task(), test=TorchDataset(Torn(), ids=scenes(60, "test").ids))
    labels = torch.cat([labels for _, labels in plain_test_batches(torn).epoch(0)])
    known = scenes(60, "test").labels
    assert known is not None
    assert labels.tolist() == [label for row, label in enumerate(known.tolist()) if row != 3]


def test_a_backbone_reads_views_by_their_names() -> None:
    backbone = ViewBackbone({"image": encoder()}).eval()
    with pytest.raises(KeyError):
        backbone({"depth": [torch.zeros(1, 3, 16, 16)]})


def test_drop_path_is_an_option_of_the_network_and_leaves_its_weights_alone() -> None:
    made = create("timm/vit_tiny_patch16_224", size=16, patch_size=8, depth=3, embed_dim=12, num_heads=2)
    copy = with_drop_path(made, 0.4)
    rates = [each.drop_prob for each in copy.modules() if isinstance(each, DropPath)]
    assert rates == pytest.approx([0.2, 0.2, 0.4, 0.4])
    x = torch.randn(4, 3, 16, 16)
    assert torch.equal(copy.eval()(x), made.eval()(x))
    assert not torch.equal(copy.train()(x), made.train()(x))
    assert copy is not made


def test_a_network_without_drop_path_is_trained_without_and_a_warning_says_so() -> None:
    with pytest.warns(UserWarning, match="patchnet has no drop path; it is trained without"):
        copy = with_drop_path(encoder(), 0.1)
    assert copy.options == encoder().options
