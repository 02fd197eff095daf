"""Features of a task: in order, computed once, also of several views; and data that nothing can be judged on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data import Dataset, Unreadable, subset
from manyview.embeddings.open_model import open_model
from manyview.encoders import Encoder, create
from manyview.evaluate import FeatureCache, Task, neighbours, prepare
from manyview.features.embedding_pass import features
from manyview.views import Modality
from tests import tiny
from tests.data.fakes import Memory
from tests.evaluate.pictures import depths, encoder, pair, scenes, task

VIEWS = (("L", 1), ("ab", 2))  # and their channels


def test_features_are_the_encoders_in_the_datas_order() -> None:
    network = encoder()
    found, labels = task(network).features("train")
    expected, right = features(network, scenes(120, "train"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert torch.equal(labels, right)


def counted(network: Encoder) -> list[int]:
    seen: list[int] = []
    network.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    return seen


def test_an_encoder_looks_once_whatever_is_asked_and_whoever_asks(tmp_path: Path) -> None:
    network = encoder()
    seen = counted(network)
    asked = Task(open_model(network), scenes(120, "train"), scenes(60, "test"), "scenes", cache=FeatureCache(tmp_path))
    first, _ = asked.features("train")
    again, _ = asked.features("train")
    other = Task(open_model(network), scenes(120, "train"), scenes(60, "test"), "scenes", cache=FeatureCache(tmp_path))
    third, _ = other.features("train")
    assert sum(seen) == 120
    assert torch.equal(first, again)
    assert torch.equal(first, third)


def test_other_weights_data_sizes_or_normalisations_are_other_features(tmp_path: Path) -> None:
    network = encoder()
    kept = FeatureCache(tmp_path)
    base = Task(open_model(network), scenes(120, "train"), scenes(60, "test"), "scenes", cache=kept)
    base.features("train")
    others = [
        base.for_model(open_model(encoder(1))),
        Task(open_model(network), scenes(80, "train"), scenes(60, "test"), "scenes", cache=kept),
        Task(open_model(encoder(size=32)), scenes(120, "train"), scenes(60, "test"), "scenes", cache=kept),
        base.for_model(type(base.model)("x", {"": network}, Modality())),
    ]
    for number, other in enumerate(others, start=2):
        other.features("train")
        assert len(list(tmp_path.iterdir())) == number


def test_a_task_for_a_changed_subject_or_other_data_has_features_of_its_own() -> None:
    base = task()
    first, _ = base.features("train")
    assert not torch.equal(replace(base, model=base.model.untrained()).features("train")[0], first)
    few = replace(base, train=subset(base.train, range(50)))
    assert torch.equal(few.features("train")[0], first[:50])


def test_an_encoder_per_view_is_judged_by_itself_and_all_side_by_side() -> None:
    both = pair()
    assert both.parts == ["rgb", "depth", "all"]
    parts = {part: both.features("train", part) for part in both.parts}
    assert {part: tuple(found.shape) for part, (found, _) in parts.items()} == {
        "rgb": (40, 16), "depth": (40, 12), "all": (40, 28),
    }  # fmt: skip
    assert torch.equal(parts["all"][0], torch.cat([parts["rgb"][0], parts["depth"][0]], 1))
    with pytest.raises(ValueError, match="part: expected one of 'rgb', 'depth', 'all', got 'x'"):
        both.features("train", "x")


class Shifted(Memory):
    """Other ids than Memory's."""

    @property
    def ids(self) -> Tensor:
        return super().ids + 1_000_000


class Torn(Memory):
    """Every seventh cannot be read."""

    def __getitem__(self, index: int) -> Sample:
        if index % 7 == 3:
            raise Unreadable("torn")
        return super().__getitem__(index)


def test_images_that_cannot_be_read_are_left_out_and_nobody_stands_in_for_them() -> None:
    found, labels = Task(open_model(encoder()), Torn(40, 4), Shifted(20, 4), "torn").features("train")
    there = [row for row in range(40) if row % 7 != 3]
    assert labels.tolist() == [row % 4 for row in there]
    whole, _ = features(encoder(), Memory(40, 4))
    torch.testing.assert_close(found, whole[there], rtol=0, atol=1e-5)


class Away(Memory):
    """Some are on a disk that is away, none of those that tell data apart."""

    away = True

    def __getitem__(self, index: int) -> Sample:
        if self.away and index % 14 == 3:
            raise Unreadable("away")
        return super().__getitem__(index)


def test_an_image_that_can_be_read_again_is_looked_at(tmp_path: Path) -> None:
    data = Away(40, 4)
    for away in (True, True, False):
        data.away = away
        kept = Task(open_model(encoder()), data, Shifted(20, 4), "photos", cache=FeatureCache(tmp_path))
        found, labels = kept.features("train")
        assert len(found) == (37 if away else 40)
    assert len(list(tmp_path.iterdir())) == 1
    assert labels.tolist() == [row % 4 for row in range(40)]
    torch.testing.assert_close(found, features(encoder(), Memory(40, 4))[0], rtol=0, atol=1e-5)


def test_features_of_one_view_are_not_copied() -> None:
    asked = task()
    (one, _), (same, labels) = asked.features("train"), asked.features("train")
    assert one is same
    assert labels is asked.train.labels


def refusing(train: object, test: object) -> Task:
    return Task(open_model(encoder()), train, test, "photos")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (refusing(Memory(20, 4, labelled=False), Shifted(20, 4)), "data: photos has no labels to evaluate with"),
        (refusing(Memory(20, 4), Shifted(20, 4, labelled=False)), "data: the test images of photos has no labels"),
        (refusing(Memory(20, 1), Shifted(20, 1)), "data: photos has one class only"),
        (
            refusing(Memory(20, 4), Memory(20, 4)),
            "data: 20 of the 20 test images of photos are among the training images",
        ),
        (refusing(Memory(20, 4), Shifted(20, 5)), "have other classes"),
    ],
)
def test_data_that_nothing_can_be_evaluated_on_is_refused_in_one_line(made: Task, message: str) -> None:
    for ask in (made.check, lambda: made.features("train")):
        with pytest.raises(ValueError, match=message) as refused:
            ask()
        assert "\n" not in str(refused.value)


def test_an_encoder_that_has_diverged_is_said_to_have() -> None:
    network = encoder()
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match="encoder: patchnet gives NaN or infinite numbers; it has diverged"):
        task(network).features("test")


def test_fingerprints_tell_ids_labels_and_pixels_apart() -> None:
    def fingerprint(data: Dataset) -> tuple[int, ...]:
        return Task(open_model(encoder()), data, data, "data").fingerprints["train"]

    data = scenes(60, "test")
    assert fingerprint(data) == fingerprint(scenes(60, "test"))
    assert fingerprint(data) != fingerprint(subset(data, range(59)))
    assert fingerprint(Memory(20, 4)) != fingerprint(Memory(20, 5))
    assert fingerprint(Memory(20, 4)) != fingerprint(Shifted(20, 4))


def test_a_view_is_scored_on_the_samples_that_have_it_and_all_on_those_that_have_all(tmp_path: Path) -> None:
    for view in ("rgb", "depth"):
        tiny.pictures(tmp_path / "train" / view, 20, classes=2)
        tiny.pictures(tmp_path / "test" / view, 8, classes=2)
    gone = ["train/rgb/class0/4.png", "train/depth/class1/7.png", "train/depth/class1/9.png", "test/depth/class0/0.png"]
    for path in gone:
        (tmp_path / path).unlink()
    made = prepare({"rgb": encoder(), "depth": encoder(1)}, tmp_path, workers=0)
    assert made.counts == {"rgb": (19, 8), "depth": (18, 7), "all": (17, 7)}
    assert (made.fewest("train"), made.fewest("test")) == (17, 7)
    names = [made.train.name(row).removeprefix("train/") for row in range(len(made.train))]
    together, labels = made.features("train", "all")
    whole = [row for row, name in enumerate(names) if name not in ("class0/4", "class1/7", "class1/9")]
    for view, width in (("rgb", slice(16)), ("depth", slice(16, 32))):
        vectors, known = made.features("train", view)
        rows = [row for row, name in enumerate(names) if (tmp_path / "train" / view / f"{name}.png").exists()]
        assert known.tolist() == [int(names[row][5]) for row in rows]
        assert torch.equal(vectors[[rows.index(row) for row in whole]], together[:, width])
    assert labels.tolist() == [int(names[row][5]) for row in whole]
    assert [len(made.images("test", part)) for part in made.parts] == [8, 7, 7]


def test_where_no_sample_has_all_views_each_is_scored_by_itself(tmp_path: Path) -> None:
    for view, gone in (("rgb", range(16)), ("depth", range(16, 32))):
        tiny.pictures(tmp_path / view, 32, classes=2)
        for number in gone:
            (tmp_path / view / f"class{number % 2}" / f"{number}.png").unlink()
    tiny.pictures(tmp_path / "thermal", 32, classes=2)
    made = prepare({view: encoder() for view in ("rgb", "depth", "thermal")}, tmp_path, workers=0)
    assert made.parts == ["rgb", "depth", "thermal"]
    scores = dict(neighbours.nearest(made, k=3))
    assert list(scores) == ["rgb top1", "depth top1", "thermal top1"]


def test_a_loader_gives_pixels_of_every_view() -> None:
    both = pair()
    batch = next(
        both.loader(both.train, both.model.pipeline("rgb", "probe-train"), shuffle=True, batch_size=8).epoch(0)
    )
    assert {name: tuple(look[0].shape) for name, look in batch.views().items()} == {
        "rgb": (8, 3, 16, 16), "depth": (8, 1, 16, 16),
    }  # fmt: skip
    assert len(depths(40, "train")) == 40


def test_the_bar_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with replace(task(), show_bar=True).progress(3, "working") as advance:
        advance()
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_encoders_of_derived_views_are_scored_like_any() -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        parts = {
            name: create("patchnet", channels=count, size=16, widths=(8, 8), blocks=(1, 1)) for name, count in VIEWS
        }
    made = prepare(parts, (scenes(40, "train"), scenes(20, "test")))
    assert made.parts == ["L", "ab", "all"]
    (bright, _), (colour, _), (both, labels) = (made.features("train", part) for part in made.parts)
    assert torch.equal(both, torch.cat([bright, colour], 1))
    assert len(labels) == len(both) == 40
