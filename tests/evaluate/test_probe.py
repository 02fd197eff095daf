"""A probe trains a classifier and nothing else, the same again with the same seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.rng import key, order
from manyview.core.sample import Views
from manyview.embeddings.open_model import open_model
from manyview.encoders import create
from manyview.evaluate import classifier, probe
from manyview.evaluate.backbone import ViewBackbone
from manyview.evaluate.classifier import Batches, ClassifierRecipe, fit
from manyview.evaluate.probe import linear, mlp, mlp_head
from manyview.evaluate.probe_recipes import RECIPES
from manyview.evaluate.task import Score, Task
from manyview.features.feature_cache import FeatureCache
from manyview.views import AUGMENTATIONS
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, encoder, pair, scenes, task


def test_the_model_is_to_the_bit_what_it_was() -> None:
    judged = task()
    network = judged.model.encoder.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    list(linear(judged, epochs=2))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training
    assert all(each.grad is None and each.requires_grad for each in network.parameters())


def test_an_encoder_that_changes_while_it_is_probed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ViewBackbone.forward

    def restless(self: ViewBackbone, views: Views) -> Tensor:
        seen = plain(self.train(), views)
        self.eval()
        return seen

    monkeypatch.setattr(ViewBackbone, "forward", restless)
    with pytest.raises(RuntimeError, match="changed, though only the classifier was to be trained"):
        list(linear(task(), epochs=1))


def test_it_sees_the_encoder_in_eval_mode_and_builds_no_graph() -> None:
    judged, seen = task(), []
    judged.model.encoder.network.register_forward_hook(
        lambda network, _, output: seen.append((network.training, output.requires_grad))
    )
    list(linear(judged, epochs=1))
    assert seen
    assert set(seen) == {(False, False)}


@pytest.mark.parametrize("augment", [True, False])
def test_the_seed_decides(augment: bool) -> None:
    settings = {"epochs": 4, "augment": augment, "batch_size": 16, "lr": 1.0}
    runs = [list(linear(task(seed=seed), **settings)) for seed in (0, 0, 1)]  # type: ignore[arg-type]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_crops_make_another_classifier_than_whole_pictures() -> None:
    crops, whole = (list(linear(task(), epochs=4, lr=1.0, augment=augment)) for augment in (True, False))
    assert crops != whole


def test_a_norm_in_front_makes_the_scale_of_the_features_immaterial() -> None:
    def scores(scale: float, norm: bool) -> list[tuple[str, float]]:
        network = encoder()
        stage = network.network.get_submodule("stage2")
        stage.register_forward_hook(lambda module, given, output: output * scale)
        return list(linear(task(network), epochs=5, lr=1.0, augment=False, norm=norm))

    assert scores(2.0**12, True) == scores(2.0**14, True)
    assert scores(2.0**12, False) != scores(2.0**14, False)


def test_a_last_batch_of_one_does_not_trouble_the_norm() -> None:
    judged = replace(task(), train=scenes(33, "train"))
    assert dict(linear(judged, epochs=1, batch_size=16, norm=True))
    assert dict(linear(judged, epochs=1, batch_size=16, norm=True, augment=False))


def by_hand(judged: Task, epochs: int) -> Tensor:
    """The logits of the test images, from a loop in double precision over features that are computed once."""
    (x, labels), (test, _) = judged.features("train"), judged.features("test")
    with torch.random.fork_rng([]):
        torch.manual_seed(judged.seed)
        nn.Linear(16, len(judged.classes))
        weight = torch.empty(len(judged.classes), 16).normal_(0, 0.01).double()
    bias = torch.zeros(len(judged.classes), dtype=torch.double)
    speed = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for epoch in range(epochs):
        lr = 0.3 * 0.1 ** ((epoch >= 0.6 * epochs) + (epoch >= 0.8 * epochs))
        for rows in order(key(0x5EED, judged.seed, epoch, torch.arange(len(x)))).split(50):
            some = x[rows].double()
            error = ((some @ weight.T + bias).softmax(1) - F.one_hot(labels[rows], len(judged.classes))) / len(rows)
            speed = [0.9 * speed[0] + error.T @ some, 0.9 * speed[1] + error.sum(0)]
            weight, bias = weight - lr * speed[0], bias - lr * speed[1]
    return test.double() @ weight.T + bias


def test_on_fixed_features_it_is_the_loop_by_hand() -> None:
    judged = task(seed=3)
    scores = dict(linear(judged, epochs=10, lr=0.3, batch_size=50, augment=False))
    logits, labels = by_hand(judged, 10), judged.features("test")[1]
    place = (logits > logits.gather(1, labels[:, None])).sum(1)
    assert scores["top1"] == pytest.approx(float((place < 1).double().mean()))
    assert scores["top5"] == pytest.approx(float((place < 5).double().mean()))
    assert 0 < scores["top1"] < 1


@pytest.mark.parametrize("augment", [True, False])
def test_what_can_be_told_apart_is(augment: bool) -> None:
    scores = dict(linear(easy(), recipe="jcl-ablation", epochs=20, augment=augment))
    assert scores["top1"] > 0.9
    assert scores["best top1"] >= scores["top1"]
    assert set(scores) == {"top1", "best top1", "best epoch"}  # of three classes the first five are all


def test_cacrs_small_recipe_reads_fc7_where_there_is_one() -> None:
    torch.manual_seed(0)
    network = create("small_alexnet", size=16, out_dim=2)
    judged = Task(open_model(network), scenes(40, "train"), scenes(60, "test"), "scenes")
    usual = list(linear(judged, recipe="cacr-small", epochs=2, augment=False))
    assert usual == list(linear(judged, recipe="cacr-small", epochs=2, augment=False, layer="fc7"))
    assert usual != list(linear(judged, recipe="cacr-small", epochs=2, augment=False, layer="fc8"))
    assert dict(linear(task(), recipe="cacr-small", epochs=1))  # patchnet has none


def seen_while_probing(recipe: str, judged: Task, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Views], list[bool]]:
    """The views that the encoder's copy gets in an epoch of training, and whether it is in training mode."""
    views: list[Views] = []
    modes: list[bool] = []
    plain = ViewBackbone.forward

    def watched(self: ViewBackbone, given: Views) -> Tensor:
        views.append(given)
        modes.append(self.training)
        return plain(self, given)

    monkeypatch.setattr(ViewBackbone, "forward", watched)
    list(linear(judged, recipe=recipe, epochs=1, batch_size=120))
    return views, modes


@pytest.mark.parametrize(
    ("recipe", "augmentation", "options"),
    [
        ("cacr-small", "probe-train", {"smallest": 0.08}),
        ("cacr-small-cifar", "probe-train", {"smallest": 0.2}),
        ("cacr-small-stl", "probe-train", {"smallest": 0.08}),
        ("hcl", "simclr", {"strength": 0.5}),
        ("moco", "probe-train", {}),
    ],
)
def test_training_images_are_augmented_as_the_recipe_says(
    recipe: str, augmentation: str, options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    (views, *_), modes = seen_while_probing(recipe, task(), monkeypatch)
    pipeline = AUGMENTATIONS[augmentation](16, 1, **options)
    batch = next(task().loader(task().train, pipeline, batch_size=120, shuffle=True).epoch(0))
    assert torch.equal(views["image"][0], batch.views()["image"][0])
    assert not any(modes)


@pytest.mark.parametrize(("recipe", "side"), [("cacr-small", 64), ("cacr-small-stl", 70), ("cacr-small-cifar", 64)])
def test_test_images_of_stl_are_resized_to_70_and_their_middle_64_are_seen(recipe: str, side: int) -> None:
    recipe_of = RECIPES[recipe]
    images = scenes(20, "test", size=96)
    model = open_model(create("patchnet", size=64, widths=(8, 16), blocks=(1, 1)))
    judged = Task(model, scenes(30, "train", size=96), images, "scenes").with_margin(recipe_of.margin)
    (seen,) = judged.loader(images, judged.pipeline()).epoch(0)
    whole = torch.stack([images[row].modalities["image"] for row in range(20)]).float()
    small = F.interpolate(whole, size=side, mode="bilinear", antialias=True)
    cut = (side - 64) // 2
    expected = small[:, :, cut : cut + 64, cut : cut + 64].round() / 255
    mean, std = (torch.tensor(each)[:, None, None] for each in (model.picture.mean, model.picture.std))
    difference = (seen.views()["image"][0] * std + mean - expected).abs()
    assert float(difference.mean()) < 1 / 255


def test_features_of_other_margins_are_kept_apart(tmp_path: Path) -> None:
    judged = replace(task(), cache=FeatureCache(tmp_path))
    usual, cut = judged.features("test")[0], judged.with_margin(70 / 64).features("test")[0]
    assert not torch.equal(usual, cut)
    again = replace(task(), cache=FeatureCache(tmp_path)).with_margin(70 / 64)
    assert torch.equal(again.features("test")[0], cut)


def test_the_first_weights_are_mocos_or_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, nn.Module] = {}
    for recipe in ("cacr-small", "cacr-small-cifar"):

        def spy(model: nn.Module, *given: object, name: str = recipe) -> list[Score]:
            found[name] = model
            return []

        monkeypatch.setattr(probe, "fit", spy)
        list(linear(task(), recipe=recipe, augment=False))
    normal, own = (found[name] for name in ("cacr-small", "cacr-small-cifar"))
    torch.manual_seed(0)
    expected = nn.Linear(16, 10)
    assert isinstance(normal, nn.Linear)
    assert isinstance(own, nn.Linear)
    assert torch.equal(own.weight, expected.weight)
    assert torch.equal(own.bias, expected.bias)
    assert float(normal.weight.detach().std()) < 0.02
    assert not normal.bias.any()


def test_hcls_code_has_the_encoder_in_training_mode_and_tests_with_the_statistics_that_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = task()
    before = {name: value.clone() for name, value in judged.model.encoder.state_dict().items()}
    _, modes = seen_while_probing("hcl-code", judged, monkeypatch)
    assert modes == [True, False]  # one batch of training, one of testing
    assert all(torch.equal(value, before[name]) for name, value in judged.model.encoder.state_dict().items())
    monkeypatch.undo()
    kept: list[nn.Module] = []

    def keep(model: nn.Module, *given: Any) -> list[Score]:
        kept.append(model)
        return fit(model, *given)

    monkeypatch.setattr(probe, "fit", keep)
    moved = list(linear(judged, recipe="hcl-code", epochs=2, batch_size=30))
    (network,) = kept
    assert isinstance(network, nn.Sequential)
    backbone = network[0]
    assert isinstance(backbone, ViewBackbone)
    weights, buffers = (
        dict(each) for each in (backbone.encoders[0].named_parameters(), backbone.encoders[0].named_buffers())
    )
    assert all(torch.equal(weights[name], before[name]) for name in weights)
    assert any(not torch.equal(buffers[name], before[name]) for name in buffers)
    assert moved != list(linear(judged, recipe="hcl", epochs=2, batch_size=30))


def test_an_interrupted_probe_in_training_mode_goes_on_with_its_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "SECONDS", 0.0)
    settings: dict[str, Any] = {"recipe": "hcl-code", "epochs": 3, "batch_size": 30}
    whole = list(linear(task(), **settings))
    kept, plain, passes = replace(task(), cache=FeatureCache(tmp_path)), ViewBackbone.forward, 0

    def stops(self: ViewBackbone, given: Views) -> Tensor:
        nonlocal passes
        passes += 1
        if passes == 9:  # in the second epoch: four batches of training and one of testing each
            raise KeyboardInterrupt
        return plain(self, given)

    monkeypatch.setattr(ViewBackbone, "forward", stops)
    with pytest.raises(KeyboardInterrupt):
        list(linear(kept, **settings))
    assert list(linear(kept, **settings)) == whole
    assert passes < 9 + 15  # the first epoch was not done again


def test_a_last_image_alone_is_no_batch_for_an_encoder_in_training_mode() -> None:
    judged = replace(task(), train=scenes(31, "train"))
    assert dict(linear(judged, recipe="hcl-code", epochs=1, batch_size=30))


def test_features_that_are_computed_once_have_no_training_mode() -> None:
    with pytest.raises(ValueError, match=r"^augment: this recipe has the encoder in training mode"):
        linear(task(), recipe="hcl-code", augment=False)


def test_each_view_and_all_of_them_are_scored() -> None:
    names = [name for name, _ in linear(pair(), epochs=1)]
    assert [name for name in names if "top1" in name and "best" not in name] == ["rgb top1", "depth top1", "all top1"]


def test_data_that_cannot_be_used_and_numbers_that_make_no_sense_are_refused_in_one_line() -> None:
    refused = [
        (replace(task(), train=Memory(30, 3, labelled=False)), {}, "no labels"),
        (replace(task(), train=Memory(30, 1), test=Memory(30, 1)), {}, "one class"),
        (replace(task(), test=scenes(120, "train")), {}, "are among the training images"),
        (task(), {"recipe": "mocco"}, "^recipe: expected one of moco, jcl"),
        (task(), {"layer": "fc7"}, "^layer: expected one of stem"),
        (task(), {"lr": 1e38, "epochs": 3}, r"^lr: with 1e\+38 the loss is no number"),
    ]
    for judged, settings, why in refused:
        with pytest.raises(ValueError, match=why) as error:
            list(linear(judged, **settings))  # type: ignore[arg-type]
        assert "\n" not in str(error.value)


def test_it_has_two_layers_with_200_units_between_them() -> None:
    head = mlp_head(16, 10)
    shapes = [tuple(each.shape) for each in head.parameters()]
    assert shapes == [(200, 16), (200,), (10, 200), (10,)]
    x = torch.randn(4, 16)
    first, _, last = (part for part in head.children())
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    expected = (x @ first.weight.T + first.bias).clamp(min=0) @ last.weight.T + last.bias
    torch.testing.assert_close(head(x), expected)


def test_it_learns_and_says_what_a_linear_one_says() -> None:
    scores = dict(mlp(easy(), epochs=20, augment=False))
    assert scores["top1"] > 0.9
    assert set(dict(mlp(task(), epochs=1))) == {"top1", "top5", "best top1", "best top5", "best epoch"}


def test_its_settings_reach_the_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int, float]] = []

    def spy(
        model: nn.Module,
        learning: object,
        recipe: ClassifierRecipe,
        train: Batches,
        test: Batches,
        task: Task,
        called: object,
    ) -> list[Score]:
        seen.append((str(model), train.count, recipe.epochs, recipe.lr))
        return fit(model, [(model, recipe.lr)], recipe, train, test, task, [called])

    monkeypatch.setattr(probe, "fit", spy)
    list(mlp(task(), hidden=7, epochs=2, lr=0.5, batch_size=30, norm=True, layer="stage1"))
    model, count, epochs, lr = seen[0]
    assert "BatchNorm1d(512" in model
    assert "out_features=7" in model
    assert (count, epochs, lr) == (4, 2, 0.5)
