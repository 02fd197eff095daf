from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from manyview.evaluate import classifier
from manyview.evaluate.classifier import (
    Batches,
    ClassifierRecipe,
    ProbeCheckpoint,
    checkpoint_path,
    choose_recipe,
    fit,
    last_and_best,
    linear_head,
    seeded,
)
from manyview.evaluate.task import Score
from manyview.features.feature_cache import FeatureCache
from manyview.training.optimizers import adam, lars
from tests.evaluate.pictures import encoder, task
from tests.patience import PATIENCE

CLASSES = len(task().classes)
RECIPE = ClassifierRecipe("here", lr=0.5, batch_size=16, epochs=5, milestones=(3,), factor=0.2, weight_decay=0.01)


def drawn(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=draw), torch.randint(CLASSES, (rows,), generator=draw)


def batches(rows: int = 48, seed: int = 0) -> Batches:
    """The same each epoch, but in turn from another row on."""
    x, labels = drawn(rows, seed)

    def epoch(number: int) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(x.roll(number, 0).split(16), labels.roll(number).split(16), strict=True)

    return Batches(rows // 16, epoch)


def head() -> nn.Linear:
    return seeded(lambda: linear_head(6, CLASSES), 0)


def fitted(model: nn.Module, recipe: ClassifierRecipe = RECIPE, **changes: object) -> list[Score]:
    judged = replace(task(), **changes)  # type: ignore[arg-type]
    return fit(model, [(model, recipe.lr)], recipe, batches(), batches(seed=1), judged, ["test"])


def test_it_learns_what_a_loop_by_hand_learns() -> None:
    model = head()
    weight, bias = model.weight.detach().double().clone(), model.bias.detach().double().clone()
    fitted(model)
    speed_w, speed_b = torch.zeros_like(weight), torch.zeros_like(bias)
    for epoch in range(5):
        lr = 0.5 if epoch < 3 else 0.1
        for x, labels in batches().epoch(epoch):
            error = ((x.double() @ weight.T + bias).softmax(1) - F.one_hot(labels, CLASSES)) / len(x)
            speed_w = 0.9 * speed_w + error.T @ x.double() + 0.01 * weight
            speed_b = 0.9 * speed_b + error.sum(0) + 0.01 * bias
            weight, bias = weight - lr * speed_w, bias - lr * speed_b
    torch.testing.assert_close(model.weight.double(), weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.bias.double(), bias, rtol=1e-4, atol=1e-5)


def test_scores_are_the_shares_of_right_first_and_first_five_guesses() -> None:
    model = head()
    scores = dict(fitted(model))
    (x, labels), model = drawn(48, 1), model.double()
    ranks = [row.argsort(descending=True).tolist() for row in model(x.double())]
    places = [rank.index(label) for rank, label in zip(ranks, labels.tolist(), strict=True)]
    assert scores["top1"] == pytest.approx(sum(place < 1 for place in places) / 48)
    assert scores["top5"] == pytest.approx(sum(place < 5 for place in places) / 48)


def test_the_best_epoch_never_comes_without_the_last() -> None:
    scores = last_and_best([[0.1, 0.5], [0.4, 0.6], [0.4, 0.9], [0.3, 0.8]])
    assert scores == [("top1", 0.3), ("top5", 0.8), ("best top1", 0.4), ("best top5", 0.6), ("best epoch", 2.0)]
    assert last_and_best([[0.1]]) == [("top1", 0.1), ("best top1", 0.1), ("best epoch", 1.0)]


@pytest.mark.parametrize("optimizer", [adam, lars, partial(adam, betas=(0.5, 0.999))])
def test_any_optimiser_serves(optimizer: object) -> None:
    model = head()
    fitted(model, replace(RECIPE, optimizer=optimizer))  # type: ignore[arg-type]
    assert not torch.equal(model.weight, head().weight)


def test_two_parts_learn_each_at_its_own_rate() -> None:
    def moved(lr_first: float, lr_last: float) -> tuple[float, float]:
        first, last = seeded(lambda: nn.Linear(6, 6), 0), head()
        before = first.weight.detach().clone(), last.weight.detach().clone()
        one = Batches(1, lambda number: iter([drawn(16, 0)]))
        learning: list[tuple[nn.Module, float]] = [(first, lr_first), (last, lr_last)]
        recipe = replace(RECIPE, epochs=1, weight_decay=0.0)
        fit(nn.Sequential(first, last), learning, recipe, one, batches(seed=1), task(), ["test"])
        moves = first.weight.detach() - before[0], last.weight.detach() - before[1]
        return float(moves[0].norm()), float(moves[1].norm())

    slow, fast = moved(0.1, 0.1), moved(0.1, 0.7)
    assert fast[0] == pytest.approx(slow[0])
    assert fast[1] == pytest.approx(7 * slow[1], rel=1e-3)


def test_a_rate_that_is_too_high_stops_in_one_line_that_names_it() -> None:
    said = r"^lr: with 1e\+38 the loss is no number any more in epoch \d; give a lower one$"
    with pytest.raises(ValueError, match=said):
        fitted(head(), replace(RECIPE, lr=1e38, weight_decay=0.0))


def test_what_is_drawn_while_training_depends_on_the_seed_alone_and_nobody_else_notices() -> None:
    def run(seed: int) -> Tensor:
        last = head()
        fitted(nn.Sequential(nn.Dropout(0.5), last), seed=seed)
        return last.weight.detach()

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(run(3), first)
    assert not torch.equal(run(4), first)


@pytest.mark.parametrize("optimizer", [RECIPE.optimizer, adam, lars])
def test_interrupted_training_goes_on_and_ends_the_same(
    optimizer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "SECONDS", 0.0)
    recipe = replace(RECIPE, optimizer=optimizer, lr=0.05)  # type: ignore[arg-type]
    straight = head()
    expected = fitted(straight, recipe)
    judged = replace(task(), cache=FeatureCache(tmp_path))
    asked: list[int] = []

    def stopping(number: int) -> Iterator[tuple[Tensor, Tensor]]:
        asked.append(number)
        if asked == [0, 1, 2]:
            raise KeyboardInterrupt
        return batches().epoch(number)

    def go(model: nn.Module) -> list[Score]:
        train = Batches(3, stopping)
        return fit(model, [(model, recipe.lr)], recipe, train, batches(seed=1), judged, ["test"])

    with pytest.raises(KeyboardInterrupt):
        go(head())
    again = head()
    assert go(again) == expected
    assert asked == [0, 1, 2, 2, 3, 4]
    assert torch.equal(again.weight, straight.weight)
    assert go(head()) == expected  # what comes after it in the same protocol may be interrupted too
    assert asked == [0, 1, 2, 2, 3, 4]
    judged.checkpoints.pop().unlink()
    assert not list(tmp_path.iterdir())


def test_a_training_of_seconds_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "SECONDS", PATIENCE)  # however long it takes here
    fitted(head(), cache=FeatureCache(tmp_path))
    assert not list(tmp_path.iterdir())


def test_fewer_epochs_move_the_milestones_along() -> None:
    recipe = ClassifierRecipe("here", lr=1.0, batch_size=1, epochs=100, milestones=(60, 80))
    shares = [recipe.with_numbers(epochs=10).lr_factor(epoch) for epoch in (0, 5, 6, 7, 8, 9)]
    assert shares == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    fall = replace(recipe, milestones=()).with_numbers(epochs=4)
    assert [fall.lr_factor(epoch) for epoch in range(4)] == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5])


def test_a_warm_up_rises_step_by_step_and_the_cosine_ends_at_its_floor() -> None:
    recipe = ClassifierRecipe("here", lr=1.0, batch_size=1, epochs=10, warmup=2, floor=0.1)
    assert [recipe.lr_factor(epoch) for epoch in (0, 0.5, 1, 2, 6, 10)] == pytest.approx([0, 0.25, 0.5, 1, 0.55, 0.1])
    assert recipe.with_numbers(epochs=5).warmup == 1
    assert replace(recipe, warmup=0.0).lr_factor(5.9) == replace(recipe, warmup=0.0).lr_factor(5)


def test_smooth_labels_and_shares_of_two_classes_are_learnt_from() -> None:
    x, labels = drawn(16, 0)
    soft = F.one_hot(labels, CLASSES).float().roll(1, 0) * 0.3 + F.one_hot(labels, CLASSES).float() * 0.7
    moved = []
    for smoothing, target in ((0.0, soft), (0.1, 0.9 * soft + 0.1 / CLASSES)):
        by_hand, model = head(), head()
        loss = -(target * by_hand(x).log_softmax(1)).sum(1).mean()
        loss.backward()
        recipe = replace(RECIPE, epochs=1, weight_decay=0.0, smoothing=smoothing)
        one = Batches(1, lambda number: iter([(x, soft)]))
        fit(model, [(model, 0.5)], recipe, one, batches(seed=1), task(), ["test"])
        assert by_hand.weight.grad is not None
        torch.testing.assert_close(model.weight, head().weight - 0.5 * by_hand.weight.grad)
        moved.append(model.weight.detach().clone())
    assert not torch.equal(*moved)


def test_a_recipe_is_changed_only_where_something_is_given() -> None:
    table = {"a": RECIPE}
    assert choose_recipe(table, "a", epochs=None, lr=None) == RECIPE
    assert choose_recipe(table, "a", epochs=10, lr=2.0) == replace(RECIPE, epochs=10, milestones=(6.0,), lr=2.0)
    with pytest.raises(ValueError, match=r"^recipe: expected one of a, got 'b'$"):
        choose_recipe(table, "b")


def test_the_classifier_starts_small_and_depends_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = seeded(lambda: linear_head(500, 40), 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert float(first.weight.detach().std()) == pytest.approx(0.01, rel=0.05)
    assert not first.bias.any()
    assert torch.equal(seeded(lambda: linear_head(500, 40), 1).weight, first.weight)
    assert not torch.equal(seeded(lambda: linear_head(500, 40), 2).weight, first.weight)


def test_another_recipe_or_seed_does_not_go_on_from_this_one(tmp_path: Path) -> None:
    names = set()
    for recipe, seed in ((RECIPE, 0), (RECIPE, 1), (replace(RECIPE, lr=0.1), 0), (RECIPE.with_numbers(epochs=9), 0)):
        names.add(checkpoint_path(replace(task(), cache=FeatureCache(tmp_path), seed=seed), ["test", recipe]))
    assert len(names) == 4


def checkpoint(path: Path | None, model: nn.Module, *optimizers: Optimizer) -> ProbeCheckpoint:
    return ProbeCheckpoint(path, model, optimizers or [adam(model)], begun=-math.inf)


def test_a_file_that_is_damaged_means_a_fresh_start(tmp_path: Path) -> None:
    path = tmp_path / "x.probe"
    checkpoint(path, head()).save([[0.5]])
    assert checkpoint(path, head()).restore() == [[0.5]]
    for content in (b"", b"nonsense", path.read_bytes()[:100]):
        path.write_bytes(content)
        assert checkpoint(path, head()).restore() == []


def test_a_flipped_bit_anywhere_means_a_fresh_start(tmp_path: Path) -> None:
    path, model = tmp_path / "x.probe", head()
    checkpoint(path, model).save([[0.25, 0.5]])
    whole, kept, fresh = path.read_bytes(), model.weight.clone(), checkpoint(path, model)
    bits = 8 * len(whole)
    for bit in (*range(16), *range(bits - 64, bits), *np.random.default_rng(0).integers(bits, size=120)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert fresh.restore() == []
    assert torch.equal(model.weight, kept)


def test_a_file_of_another_model_means_a_fresh_start(tmp_path: Path) -> None:
    path, other, model = tmp_path / "x.probe", nn.Sequential(head(), nn.Linear(3, 3)), head()
    checkpoint(path, other).save([[0.5]])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert checkpoint(path, model).restore() == []
    checkpoint(path, model, adam(model), adam(model)).save([[0.5]])  # the weights fit, the optimisers do not
    with torch.no_grad():
        model.weight.add_(1)
    assert checkpoint(path, model).restore() == []
    assert torch.equal(model.weight, before["weight"] + 1)


def test_another_subject_does_not_go_on_from_this_one(tmp_path: Path) -> None:
    first, again, other = (
        checkpoint_path(replace(task(encoder(seed)), cache=FeatureCache(tmp_path)), ["it"]) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_weights_and_optimiser_come_back_to_the_bit(tmp_path: Path) -> None:
    path, model, fresh = tmp_path / "x.probe", head(), head()
    optimizer, other = adam(model), adam(fresh)
    model(torch.ones(1, 6)).sum().backward()
    optimizer.step()
    checkpoint(path, model, optimizer).save([[0.25, 0.5]])
    assert checkpoint(path, fresh, other).restore() == [[0.25, 0.5]]
    assert torch.equal(fresh.weight, model.weight)
    assert torch.equal(other.state[fresh.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])


def test_a_folder_that_cannot_be_written_to_and_no_store_at_all_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "x.probe", checkpoint_path(task(), ["it"])):
        checkpoint(path, head()).save([[0.5]])
        assert checkpoint(path, head()).restore() == []
        checkpoint(path, head()).save([[0.5]], ended=True)
