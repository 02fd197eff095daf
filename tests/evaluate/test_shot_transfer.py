from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from manyview.data import TorchDataset
from manyview.evaluate import shot_transfer as module
from manyview.evaluate.protocols import evaluate
from manyview.evaluate.shot_learners import learn
from manyview.evaluate.shot_transfer import draw_shots, shot_transfer
from manyview.features.feature_cache import FeatureCache
from tests.evaluate.pictures import easy, pair, shades, task
from tests.evaluate.several import several

QUICK: dict[str, Any] = {"epochs": 20, "search_epochs": 3, "seeds": 2, "lrs": (1e-3, 3e-2)}


def test_a_fifth_of_the_shots_is_held_out_and_as_many_of_each_class() -> None:
    labels = torch.arange(90) % 9
    rows, held = draw_shots(labels, 5, seed=0, draw=0)
    assert labels[rows].bincount().tolist() == [5] * 9
    assert labels[rows[held]].bincount().tolist() == [1] * 9
    rows, held = draw_shots(labels, 2, seed=0, draw=0)
    assert labels[rows[held]].bincount().tolist() == [1] * 9


def test_with_several_labels_every_class_has_its_shots_and_no_image_is_there_twice() -> None:
    draw = torch.Generator().manual_seed(0)
    sets = (torch.rand(200, 6, generator=draw) < 0.1).to(torch.int8)
    sets[:, 5] = 0
    sets[:3, 5] = 1  # fewer than are asked for
    rows, held = draw_shots(sets, 5, seed=0, draw=0)
    assert len(rows.unique()) == len(rows) <= 28
    shown = (sets[rows] == 1).sum(0)
    assert (shown[:5] >= 5).all()
    assert shown[5] == 3
    assert int(held.sum()) == -(-len(rows) // 5)
    assert not torch.equal(rows, draw_shots(sets, 5, seed=0, draw=1)[0])


@pytest.mark.parametrize("judged", [easy(), several()], ids=["one label", "several labels"])
def test_both_modes_learn_what_is_easy(judged: Any) -> None:
    scores = dict(shot_transfer(judged, **QUICK))
    assert list(scores) == ["5-shot finetune", "5-shot finetune std", "5-shot linear", "5-shot linear std"]
    assert scores["5-shot finetune"] > 0.8
    assert scores["5-shot linear"] > 0.8


def test_each_view_has_its_own_scores() -> None:
    names = [name for name, _ in shot_transfer(pair(), shots=2, modes=("linear",), **QUICK) if "std" not in name]
    assert names == ["rgb 2-shot linear", "depth 2-shot linear", "all 2-shot linear"]


def test_the_test_images_choose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[int, float]] = []

    def seen(learner: Any, rows: torch.Tensor, epochs: int, lr: float, *others: Any) -> Any:
        chosen.append((epochs, lr))
        return learn(learner, rows, epochs, lr, *others)

    monkeypatch.setattr(module, "learn", seen)
    judged = easy()
    other = replace(judged, test=wrongly_labelled())
    for each in (judged, other):
        list(shot_transfer(each, modes=("linear",), **QUICK))
    assert chosen[: len(chosen) // 2] == chosen[len(chosen) // 2 :]
    assert [epochs for epochs, _ in chosen[:6]] == [3, 3, 20] * 2


def wrongly_labelled() -> TorchDataset:
    made = shades(60, 3, 5)
    assert made.labels is not None
    return TorchDataset(made._dataset, ids=made.ids, labels=made.labels.roll(1))


def test_an_interruption_loses_what_was_being_trained_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = list(shot_transfer(easy(), **QUICK))
    judged, trained = replace(easy(), cache=FeatureCache(tmp_path)), []

    def stopping(*arguments: Any) -> Any:
        trained.append(arguments[2])
        if len(trained) == 5:
            raise KeyboardInterrupt
        return learn(*arguments)

    monkeypatch.setattr(module, "learn", stopping)
    with pytest.raises(KeyboardInterrupt):
        list(shot_transfer(judged, **QUICK))
    assert list(shot_transfer(judged, **QUICK)) == expected
    assert trained == [3, 3, 20, 3, 3, *[3, 20, 3, 3, 20, 3, 3, 20]]  # twelve trainings, one of them twice


def test_evaluate_takes_images_with_several_labels_for_it_and_for_nothing_else(tmp_path: Path) -> None:
    judged = several()
    data = (judged.train, judged.test)
    (result,) = evaluate(
        judged.model, data, ["shot-transfer"], settings={"shot-transfer": {"seeds": 1, "epochs": 5, "shots": 2}},
        out=tmp_path, called="corners", untrained=False,
    )  # fmt: skip
    assert result.data["name"] == "corners"
    assert result.data["classes"] == 3
    with pytest.raises(ValueError, match="several labels an image, for which there is shot-transfer alone"):
        evaluate(judged.model, data, ["shot-transfer", "knn"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shots": 100}, r"^shots: expected 2 to \d+, the images of the smallest class, got 100$"),
        ({"lrs": ()}, "^lrs: expected at least one, got none$"),
        ({"metric": "11-point-map"}, "^metric: scenes has one label an image; got 11-point-map$"),
        ({"metric": "roc-auc"}, r"^metric: roc-auc is for two classes, and scenes has \d+$"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shot_transfer(task(), **settings)
    with pytest.raises(ValueError, match=r"^metric: corners has several labels an image"):
        shot_transfer(several(), metric="accuracy")
