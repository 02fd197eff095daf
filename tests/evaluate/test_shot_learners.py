from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from manyview.core.sample import Sample
from manyview.data import Unreadable
from manyview.embeddings.open_model import open_model
from manyview.evaluate.prepare import prepare
from manyview.evaluate.shot_learners import LEARNERS, FrozenLearner, WholeLearner, learn, loss_of, predict
from manyview.evaluate.task import Task
from tests import tiny
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, encoder, shades
from tests.evaluate.several import several

ROWS = torch.arange(12)


@pytest.mark.parametrize("mode", LEARNERS)
def test_it_learns_from_its_rows_alone_and_leaves_the_encoder_as_it_is(mode: str) -> None:
    judged = easy()
    before = {name: value.clone() for name, value in judged.model.encoder.state_dict().items()}
    network = learn(LEARNERS[mode](judged, ""), ROWS, 30, 0.05, 1e-4, 8, seed=0)
    assert network is not None
    logits, right = predict(LEARNERS[mode](judged, ""), network, "test", torch.arange(60), 8)
    assert float((logits.argmax(1) == right).double().mean()) > 0.9
    assert all(torch.equal(value, before[name]) for name, value in judged.model.encoder.state_dict().items())
    train = judged.train
    others = replace(judged, train=shades(120, 3, 3))  # other images in all rows but these
    assert train.labels is not None
    again = learn(LEARNERS[mode](judged, ""), ROWS, 30, 0.05, 1e-4, 8, seed=0)
    assert again is not None
    assert torch.equal(predict(LEARNERS[mode](judged, ""), again, "test", torch.arange(60), 8)[0], logits)
    other = learn(LEARNERS[mode](others, ""), ROWS, 30, 0.05, 1e-4, 8, seed=0)
    assert other is not None
    assert not torch.equal(predict(LEARNERS[mode](judged, ""), other, "test", torch.arange(60), 8)[0], logits)


def test_a_step_of_the_probe_is_a_step_by_hand() -> None:
    judged = easy()
    learner = FrozenLearner(judged, "")
    network = learn(learner, ROWS, 1, 0.1, 0.0, 64, seed=0)
    assert network is not None
    x, labels = judged.features("train")
    by_hand = learner.network().train()
    some = next(iter(learner.batches("train", ROWS, 64, shuffle=True)(0)))[1]
    F.cross_entropy(by_hand(x[some]), labels[some]).backward()
    linear = list(by_hand.modules())[-1]
    assert isinstance(linear, torch.nn.Linear)
    assert linear.weight.grad is not None
    moved = list(network.modules())[-1]
    assert isinstance(moved, torch.nn.Linear)
    torch.testing.assert_close(moved.weight, linear.weight - 0.1 * linear.weight.grad)


def test_a_batch_of_one_image_is_passed_over() -> None:
    assert learn(FrozenLearner(easy(), ""), torch.arange(9), 2, 0.1, 0.0, 8, seed=0) is not None  # 8 and 1


def test_a_rate_that_is_too_high_gives_nothing() -> None:
    assert learn(FrozenLearner(easy(), ""), ROWS, 5, 1e38, 0.0, 8, seed=0) is None


class Torn(Memory):
    """Every fifth image cannot be read."""

    def __getitem__(self, index: int) -> Sample:
        if index % 5 == 4:
            raise Unreadable("torn")
        return super().__getitem__(index)


class Others(Torn):
    @property
    def ids(self) -> torch.Tensor:
        return super().ids + 1_000_000


@pytest.mark.parametrize("mode", LEARNERS)
def test_what_cannot_be_read_is_neither_learnt_nor_asked(mode: str) -> None:
    judged = Task(open_model(encoder()), Torn(20, 2), Others(20, 2), "torn")
    learner = LEARNERS[mode](judged, "")
    network = learn(learner, torch.arange(10), 2, 0.01, 0.0, 8, seed=0)
    assert network is not None
    logits, right = predict(learner, network, "test", torch.arange(len(learner.targets("test"))), 8)
    assert len(logits) == len(right) == 16
    readable = torch.tensor([row % 2 for row in range(20) if row % 5 != 4])
    assert torch.equal(right, readable)


@pytest.mark.parametrize("mode", LEARNERS)
def test_a_view_is_learnt_from_the_samples_that_have_it(mode: str, tmp_path: Path) -> None:
    for view in ("rgb", "depth"):
        tiny.pictures(tmp_path / "train" / view, 20, classes=2)
        tiny.pictures(tmp_path / "test" / view, 8, classes=2)
    for gone in ("train/depth/class1/7.png", "test/depth/class0/0.png"):
        (tmp_path / gone).unlink()
    judged = prepare({"rgb": encoder(), "depth": encoder(1)}, tmp_path, workers=0)
    for part, train, test in (("rgb", 20, 8), ("depth", 19, 7), ("all", 19, 7)):
        learner = LEARNERS[mode](judged, part)
        assert (len(learner.targets("train")), len(learner.targets("test"))) == (train, test)
        network = learn(learner, torch.arange(8), 1, 0.01, 0.0, 8, seed=0)
        assert network is not None
        assert len(predict(learner, network, "test", torch.arange(test), 8)[0]) == test


def test_the_loss_of_several_labels_leaves_out_what_is_not_to_be_counted() -> None:
    logits, sets = torch.randn(5, 3), torch.tensor([[1, 0, -1], [0, 0, 1], [1, 1, 1], [-1, -1, -1], [0, 1, 0]])
    total, count = 0.0, 0
    for row in range(5):
        for column in range(3):
            if sets[row, column] >= 0:
                chance = float(logits[row, column].double().sigmoid())
                total -= float(torch.tensor(chance if sets[row, column] else 1 - chance).log())
                count += 1
    assert float(loss_of(logits, sets)) == pytest.approx(total / count, rel=1e-5)


def test_the_whole_network_learns_several_labels() -> None:
    learner = WholeLearner(several(), "")
    network = learn(learner, torch.arange(30), 30, 0.05, 0.0, 16, seed=0)
    assert network is not None
    logits, sets = predict(learner, network, "test", torch.arange(40), 16)
    assert float(((logits > 0) == (sets == 1)).double().mean()) > 0.9
