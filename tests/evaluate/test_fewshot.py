"""Few shots: the draws are what they say, the same for all encoders, and never of test images."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data import Unreadable
from manyview.embeddings.model_source import open_model
from manyview.evaluate import Task
from manyview.evaluate.fewshot import drawn, fewshot
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, encoder, pair, task


@pytest.mark.parametrize("n", [1, 4])
def test_a_draw_has_n_of_each_class_and_no_image_twice(n: int) -> None:
    labels = torch.arange(90) % 9
    rows = drawn(labels, n, seed=0, draw=0)
    assert len(rows.unique()) == 9 * n
    assert labels[rows].bincount().tolist() == [n] * 9
    assert (labels[rows].view(n, 9) == torch.arange(9)).all()  # so that folds have as many of each class


def test_draws_differ_by_number_and_seed_and_by_nothing_else() -> None:
    labels = torch.arange(200) % 5
    one = drawn(labels, 5, 0, 0)
    assert torch.equal(one, drawn(labels, 5, 0, 0))
    assert not torch.equal(one, drawn(labels, 5, 0, 1))
    assert not torch.equal(one, drawn(labels, 5, 1, 0))
    assert torch.equal(one[:5], drawn(labels, 1, 0, 0))  # the first shot of five is that of one


def test_scores_are_means_with_stds_and_more_shots_are_better() -> None:
    scores = dict(fewshot(easy(), shots=(1, 5), draws=2, cs=(0.01, 0.1)))
    assert list(scores) == ["1-shot", "1-shot std", "5-shot", "5-shot std"]
    assert scores["5-shot"] > 0.8
    assert scores["5-shot"] >= scores["1-shot"]


def test_the_same_seed_gives_the_same_scores_and_another_seed_others() -> None:
    one, same, other = (dict(fewshot(task(seed=seed), shots=(1,), draws=2)) for seed in (0, 0, 1))
    assert one == same != other


def test_one_draw_has_no_std_and_views_have_their_own_scores() -> None:
    scores = dict(fewshot(pair(), shots=(1,), draws=1))
    assert scores["all 1-shot std"] == 0.0
    assert [name for name in scores if name.endswith("shot")] == ["rgb 1-shot", "depth 1-shot", "all 1-shot"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shots": (500,)}, r"shots: expected numbers from 1 to \d+, the images of the smallest class, got \(500,\)"),
        ({"shots": ()}, "shots: expected"),
        ({"shots": (2,), "cs": ()}, "cs: expected numbers above 0"),
        ({"shots": (2,), "cs": (0.1, -1.0)}, "cs: expected numbers above 0"),
    ],
)
def test_shots_that_the_data_has_not_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(fewshot(task(encoder()), **settings))  # type: ignore[arg-type]


class Others(Memory):
    """Other ids than Memory's."""

    @property
    def ids(self) -> Tensor:
        return super().ids + 1_000_000


class Torn(Memory):
    """Of each class four can be read."""

    def __getitem__(self, index: int) -> Sample:
        if index >= 16:
            raise Unreadable("torn")
        return super().__getitem__(index)


def test_images_that_cannot_be_read_are_no_shots() -> None:
    judged = Task(open_model(encoder()), Torn(20, 4), Others(20, 4), "torn")
    assert list(fewshot(judged, shots=(4,), draws=1, cs=(0.1,)))
    with pytest.raises(ValueError, match=r"shots: expected numbers from 1 to 4, .* got \(5,\)"):
        list(fewshot(judged, shots=(5,), draws=1))
