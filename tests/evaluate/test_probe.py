"""A probe trains a classifier and nothing else, the same again with the same seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.rng import key, order
from manyview.core.sample import Views
from manyview.embeddings.model_source import open_model
from manyview.encoders import create
from manyview.evaluate import probe
from manyview.evaluate.backbone import ViewBackbone
from manyview.evaluate.classifier import Batches, ClassifierRecipe, fit
from manyview.evaluate.probe import MLP, RECIPES, linear, mlp, mlp_head
from manyview.evaluate.task import Score, Task
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


STEPS = {0: 1, 59: 1, 60: 0.1, 79: 0.1, 80: 0.01, 99: 0.01}
CMC = {0: 1, 59: 1, 60: 0.2, 74: 0.2, 75: 0.04, 89: 0.04, 90: 0.008, 99: 0.008}
COSINE = {0: 1, 15: 0.75 + 0.5 * (0.75**0.5 - 0.5), 30: 0.75, 45: 0.5, 60: 0.25}
PUBLISHED: dict[str, tuple[float, int, int, dict[int, float]]] = {  # lr, batch, epochs, share of lr by epoch
    "moco": (30, 256, 100, STEPS),
    "jcl": (30, 256, 100, STEPS),
    "jcl-ablation": (10, 256, 100, STEPS),
    "cacr": (30, 256, 100, STEPS),
    "cacr-small": (0.001, 128, 100, {0: 1, 59: 1, 60: 0.2, 79: 0.2, 80: 0.04, 99: 0.04}),
    "dcl-openselfsup": (30, 256, 100, STEPS),
    "dcl-lars": (1.2, 4096, 90, COSINE),
    "cmc": (30, 256, 100, CMC),
    "cmc-wide": (50, 256, 100, CMC),
    "cmc-alexnet": (0.1, 256, 100, CMC),
    "cmc-code": (30, 256, 60, {0: 1, 29: 1, 30: 0.2, 40: 0.04, 50: 0.008, 59: 0.008}),
    "moco-v3": (0.4, 1024, 90, COSINE),
    "moco-v3-vit": (12, 1024, 90, COSINE),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_papers_numbers(name: str) -> None:
    lr, batch, epochs, shares = PUBLISHED[name]
    recipe = RECIPES[name]
    assert (recipe.lr, recipe.batch_size, recipe.epochs) == (lr, batch, epochs)
    assert recipe.weight_decay == 0
    assert {epoch: recipe.lr_factor(epoch) for epoch in shares} == pytest.approx(shares)
    optimizer = recipe.optimizer(nn.Linear(2, 2), lr=recipe.lr, weight_decay=recipe.weight_decay)
    kinds = {"cacr-small": "Adam", "dcl-lars": "LARS"}
    assert type(optimizer).__name__ == kinds.get(name, "SGD")
    assert optimizer.defaults.get("momentum", 0.9) == 0.9
    assert name != "cacr-small" or optimizer.defaults["betas"] == (0.5, 0.999)


def test_every_published_recipe_is_there() -> None:
    assert list(RECIPES) == list(PUBLISHED)


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


def test_its_numbers_are_cmcs() -> None:
    recipe = MLP
    assert (recipe.lr, recipe.epochs) == (0.001, 100)
    shares = {0: 1, 59: 1, 60: 0.2, 79: 0.2, 80: 0.04, 99: 0.04}
    assert {epoch: recipe.lr_factor(epoch) for epoch in shares} == pytest.approx(shares)
    optimizer = recipe.optimizer(nn.Linear(2, 2), lr=recipe.lr, weight_decay=recipe.weight_decay)
    assert isinstance(optimizer, torch.optim.Adam)
    assert optimizer.defaults["betas"] == (0.5, 0.999)


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
