"""Few shots: the draws are what they say, the same for all encoders, and never of test images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data import Dataset, Unreadable, subset
from manyview.embeddings.open_model import open_model
from manyview.evaluate import few_labels
from manyview.evaluate.few_labels import PROTOCOLS, drawn, fewshot, fitted, fold_logits, semi, some_of_each_class
from manyview.evaluate.finetune import finetune
from manyview.evaluate.probe import linear
from manyview.evaluate.task import Scores, Task
from manyview.features.feature_cache import FeatureCache
from manyview.features.logistic import fit, logits
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, encoder, pair, shades, task


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


@pytest.mark.parametrize("at_once", [0, 1 << 14])
def test_folds_all_at_once_are_folds_one_by_one_and_the_span_of_the_shots_is_enough(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_labels, "AT_ONCE", at_once)
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(28) % 4  # seven of each: folds of two shots, and of one
    x = torch.randn(28, 60, generator=draw) + torch.randn(4, 60, generator=draw)[labels]
    fold = torch.arange(28) // 4 % 5
    found = fold_logits(x, labels, 4, 0.1, fold, 5)
    for number in range(5):
        out = fold == number
        expected = logits(fit(x[~out], labels[~out], 4, 0.1), x[out])
        torch.testing.assert_close(found[out], expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(fitted(x, labels, 7, (0.1,)), fit(x, labels, 4, 0.1), rtol=0.05, atol=0.01)


def test_an_interrupted_protocol_goes_on_with_the_next_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(fewshot(easy(), shots=(1, 2), draws=2))
    judged, asked = replace(easy(), cache=FeatureCache(tmp_path)), []

    def stopping(*arguments: Any) -> Tensor:
        asked.append(arguments[2])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return fitted(*arguments)

    monkeypatch.setattr(few_labels, "fitted", stopping)
    with pytest.raises(KeyboardInterrupt):
        list(fewshot(judged, shots=(1, 2), draws=2))
    assert list(fewshot(judged, shots=(1, 2), draws=2)) == expected
    assert asked == [1, 1, 2, 2, 2]


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


def ids(data: Dataset) -> set[int]:
    return set(data.ids.tolist())


def uneven() -> Memory:
    """1, 2, 40 and 357 samples of four classes."""
    data = Memory(400, 4)
    data._labels = torch.tensor([0] * 1 + [1] * 2 + [2] * 40 + [3] * 357)
    return data


def test_each_class_keeps_its_share_and_at_least_one() -> None:
    few = some_of_each_class(uneven(), 0.1, seed=0)
    assert few.labels is not None
    assert few.labels.bincount().tolist() == [1, 1, 4, 36]
    assert few.classes == uneven().classes
    assert len(some_of_each_class(uneven(), 1.0, seed=0)) == 400


def test_which_ones_depends_on_ids_and_seed_and_not_on_their_order() -> None:
    data = shades(200, 4, 1)
    turned = subset(data, torch.arange(199, -1, -1))
    assert ids(some_of_each_class(data, 0.1, 5)) == ids(some_of_each_class(turned, 0.1, 5))
    assert ids(some_of_each_class(data, 0.1, 5)) != ids(some_of_each_class(data, 0.1, 6))


def test_a_smaller_share_is_part_of_a_larger_one() -> None:
    data = shades(400, 4, 1)
    shares = [ids(some_of_each_class(data, fraction, 0)) for fraction in (0.01, 0.1, 0.5)]
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize(("mode", "protocol"), [("finetune", finetune), ("linear", linear)])
def test_it_is_the_protocol_on_fewer_labels(mode: str, protocol: object) -> None:
    judged = easy(count=400)
    settings = {"epochs": 2, "lr": 0.05, "batch_size": 20}
    scores = list(semi(judged, fractions=(0.05, 0.2), mode=mode, **settings))  # type: ignore[arg-type]
    for fraction, percent in ((0.05, "5%"), (0.2, "20%")):
        few = replace(judged, train=some_of_each_class(judged.train, fraction, 0))
        expected = [(f"{percent} {name}", value) for name, value in protocol(few, **settings)]  # type: ignore[operator]
        assert [each for each in scores if each[0].startswith(percent)] == expected


def test_one_and_ten_percent_are_the_usual() -> None:
    names = [name for name, _ in semi(easy(), epochs=1) if "best" not in name]
    assert names == ["1% top1", "10% top1"]


def test_one_percent_has_other_rates_than_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, float | None]] = []

    def told(task: Task, *, recipe: str, lr_head: float | None, **others: object) -> Scores:
        called.append((recipe, lr_head))
        yield "top1", 0.5

    monkeypatch.setitem(PROTOCOLS, "finetune", told)
    list(semi(easy(), fractions=(0.01, 0.1, 1.0)))
    list(semi(easy(), fractions=(0.01,), recipe="swav-10", lr_head=3.0))
    assert called == [("swav-1", None), ("swav-10", None), ("swav-10", None), ("swav-10", 3.0)]
    with pytest.raises(ValueError, match=r"^lr_head: is for mode 'finetune'"):
        list(semi(easy(), mode="linear", lr_head=1.0))


def test_a_recipe_is_the_protocols() -> None:
    by_name = list(semi(easy(), mode="linear", recipe="jcl-ablation", epochs=1))
    assert by_name == list(semi(easy(), mode="linear", lr=10.0, epochs=1))
    with pytest.raises(ValueError, match=r"^recipe: expected one of swav-1, swav-10, .* got 'moco'$"):
        list(semi(easy(), recipe="moco"))


def test_what_cannot_be_used_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="no labels"):
        list(semi(replace(task(), train=Memory(30, 3, labelled=False))))
    with pytest.raises(ValueError, match=r"^fractions: expected shares above 0 and up to 1, got none$"):
        list(semi(task(), fractions=()))
