from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.evaluate import probe
from manyview.evaluate.classifier import Batches, ClassifierRecipe, fit
from manyview.evaluate.mlp import RECIPES, mlp, two_layers
from manyview.evaluate.task import Score, Task
from tests.evaluate.pictures import easy, task


def test_it_has_two_layers_with_200_units_between_them() -> None:
    head = two_layers(16, 10)
    shapes = [tuple(each.shape) for each in head.parameters()]
    assert shapes == [(200, 16), (200,), (10, 200), (10,)]
    x = torch.randn(4, 16)
    first, _, last = (part for part in head.children())
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    expected = (x @ first.weight.T + first.bias).clamp(min=0) @ last.weight.T + last.bias
    torch.testing.assert_close(head(x), expected)


def test_its_numbers_are_cmcs() -> None:
    recipe = RECIPES["cmc"]
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


def test_no_hidden_unit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^hidden: expected at least 1 unit, got 0$"):
        list(mlp(task(), hidden=0))
