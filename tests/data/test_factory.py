"""What a name or a path opens as."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.data.dataset import Dataset
from manyview.data.factory import MAX_HELD_OUT, divided, has_classes, open_data, some
from manyview.data.files import scan
from manyview.data.folder import Folder
from manyview.data.named import Named
from manyview.data.paired import Paired
from manyview.data.selection import imbalanced, subset
from tests.data import fakes
from tests.data.awful import picture
from tests.data.fakes import Memory


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    assert isinstance(open_data(tmp_path), Folder)


def test_a_folder_per_modality_is_paired(tmp_path: Path) -> None:
    for view in ("rgb", "thermal"):
        (tmp_path / view).mkdir()
        picture().save(tmp_path / view / "a.png")
    assert isinstance(open_data(tmp_path), Paired)


def test_the_folders_of_modalities_are_scanned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for view in ("rgb", "thermal"):
        (tmp_path / view).mkdir()
        picture().save(tmp_path / view / "a.png")
    counting = Mock(side_effect=scan)
    monkeypatch.setattr("manyview.data.paired.scan", counting)
    open_data(tmp_path)
    assert counting.call_count == 2


def test_wrong_labels_of_paired_folders_are_told(tmp_path: Path) -> None:
    for view in ("rgb", "thermal"):
        (tmp_path / view).mkdir()
        picture().save(tmp_path / view / "a.png")
    with pytest.raises(ValueError, match="labels: 'a' lies in no class folder"):
        open_data(tmp_path, labels=True)


def test_a_name_is_a_named_set_even_beside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.trust_checksums(monkeypatch)
    fakes.cifar10(tmp_path)
    (tmp_path / "cifar10").mkdir()
    picture().save(tmp_path / "cifar10" / "a.png")
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_data("cifar10", root=tmp_path), Named)
    assert isinstance(open_data("./cifar10"), Folder)


def test_scenes_are_made_to_measure() -> None:
    pytest.importorskip("manyview.data.scenes.dataset")
    scenes = open_data("scenes", count=3, size=16, seed=1)
    assert len(scenes) == 3
    assert next(iter(scenes[0].modalities.values())).shape[1:] == (16, 16)


def test_what_is_neither_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        open_data("cifar-10")
    with pytest.raises(UserError, match="there are scenes, cifar10"):
        open_data("zzzzzz")
    with pytest.raises(UserError, match="there is no folder"):
        open_data(tmp_path / "nowhere")


def test_modalities_are_chosen_by_name(tmp_path: Path) -> None:
    for name in ("rgb", "thermal", "depth"):
        (tmp_path / name).mkdir()
        picture().save(tmp_path / name / "a.png")
    assert open_data(tmp_path, modalities=("thermal", "rgb")).modalities == ("thermal", "rgb")
    assert open_data("scenes", count=2, modalities=("rgb", "flow")).modalities == ("rgb", "flow")
    with pytest.raises(ValueError, match="modalities: cifar10 has pictures alone; leave it out, got rgb, depth"):
        open_data("cifar10", modalities=("rgb", "depth"))


def draw(root: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = root / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(seed=number).save(path)


def ids(dataset: Dataset | None) -> set[int]:
    assert dataset is not None
    return set(dataset.ids.tolist())


def test_a_test_split_is_used_where_there_is_one(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{split}/{kind}/{i}" for split in ("train", "test") for kind in ("cat", "dog") for i in range(3)))
    found = divided(str(tmp_path))
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (6, 6)
    assert all(found.test.name(i).startswith("test/") for i in range(6))
    assert (found.held_out, found.test_unused) == (False, None)
    assert not ids(found.train) & ids(found.test)


def test_val_is_used_where_the_test_split_has_no_labels(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{split}/{kind}/{i}" for split in ("train", "val") for kind in ("cat", "dog") for i in range(3)))
    draw(tmp_path, "test/1", "test/2")
    found = divided(str(tmp_path))
    assert found.test is not None
    assert all(found.test.name(i).startswith("val/") for i in range(len(found.test)))
    assert (len(found.test), found.held_out, found.test_unused) == (6, False, None)


def test_generated_scenes_have_one_too() -> None:
    found = divided("scenes", count=40)
    assert found.test is not None
    assert len(found.train) == 40
    assert not ids(found.train) & ids(found.test)


@pytest.mark.parametrize(("count", "held"), [(20, 2), (99, 9), (205, 20), (30_000, MAX_HELD_OUT)])
def test_otherwise_a_tenth_is_held_out_and_at_most_a_thousand(count: int, held: int) -> None:
    found = divided(Memory(count, 4))
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (count - held, held)
    assert not ids(found.train) & ids(found.test)
    assert ids(found.train) | ids(found.test) == ids(Memory(count, 4))
    assert found.test.labels is not None
    assert len(found.test.labels.unique()) > 1


def test_a_folder_without_a_test_split_holds_out_a_tenth(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{kind}/{i}" for kind in ("cat", "dog") for i in range(10)))
    found = divided(str(tmp_path))
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (18, 2)
    assert (found.held_out, found.test_unused) == (True, None)


def test_which_are_held_out_depends_on_their_ids_alone() -> None:
    whole = Memory(100, 4)
    found = divided(subset(whole, torch.randperm(100, generator=torch.Generator().manual_seed(1))))
    assert ids(found.test) == ids(divided(whole).test)


def test_the_test_split_of_other_classes_is_no_test(tmp_path: Path) -> None:
    draw(tmp_path, *(f"train/{kind}/{i}" for kind in ("cat", "dog") for i in range(10)))
    draw(tmp_path, *(f"test/{kind}/{i}" for kind in ("1", "2") for i in range(3)))
    found = divided(str(tmp_path))
    assert found.test is not None
    assert len(found.test) == 2
    assert all(found.test.name(i).startswith("train/") for i in range(2))
    assert (found.held_out, found.test_unused) == (True, "it has other classes than the training images")


def test_a_test_split_that_cannot_be_opened_or_told_apart_is_said(tmp_path: Path) -> None:
    draw(tmp_path, *(f"train/{kind}/{i}" for kind in ("cat", "dog") for i in range(10)))
    (tmp_path / "test").mkdir()
    empty = divided(str(tmp_path))
    assert empty.held_out
    assert empty.test_unused is not None
    assert empty.test_unused.startswith("it cannot be opened: data: no images")
    draw(tmp_path, "test/1", "test/2")
    assert divided(str(tmp_path)).test_unused == "it has no labels, or one only"


@pytest.mark.parametrize("split", ["test", None])
def test_who_trains_on_the_test_split_is_not_scored_on_training_images(split: str | None, tmp_path: Path) -> None:
    draw(tmp_path, *(f"{part}/{kind}/{i}" for part in ("train", "test") for kind in ("cat", "dog") for i in range(10)))
    found = divided(str(tmp_path), split=split)
    assert found.test is None or not ids(found.train) & ids(found.test)
    assert found.test_unused == ("some of its images are training images" if split == "test" else None)
    scenes = divided("scenes", count=40, split="test")
    assert not ids(scenes.train) & ids(scenes.test)


@pytest.mark.parametrize(
    "data", [Memory(50, 3, labelled=False), Memory(50, 1), Memory(9, 2)], ids=["none", "one", "few"]
)
def test_without_labels_to_tell_apart_nothing_is_held_out(data: Memory) -> None:
    found = divided(data)
    assert found.test is None
    assert found.train is data


@pytest.mark.parametrize("data", [Memory(50, 3, labelled=False), Memory(50, 1)], ids=["none", "one"])
def test_who_needs_no_labels_has_a_tenth_held_out_without_them(data: Memory) -> None:
    found = divided(data, unlabelled=True)
    assert found.held_out
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (45, 5)
    assert not ids(found.train) & ids(found.test)
    assert not has_classes(found.train)
    assert divided(Memory(9, 3, labelled=False), unlabelled=True).test is None
    assert divided(Memory(19, 3, labelled=False), unlabelled=True).test is None  # one alone would always be found


def test_who_needs_no_labels_takes_a_test_split_without_them(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{split}/{i}" for split in ("train", "test") for i in range(4)))
    found = divided(str(tmp_path), unlabelled=True)
    assert found.test is not None
    assert (len(found.train), len(found.test), found.held_out, found.test_unused) == (4, 4, False, None)
    assert divided(str(tmp_path)).test is None
    same = divided(str(tmp_path), unlabelled=True, split="test")
    assert same.test_unused == "some of its images are training images"


def test_labels_that_are_there_count_whoever_needs_them() -> None:
    one, other = (divided(Partly(100, 5), unlabelled=unlabelled) for unlabelled in (True, False))
    assert ids(one.test) == ids(other.test)


class Partly(Memory):
    """Half of it has no label."""

    @property
    def labels(self) -> Tensor:
        return torch.where(torch.arange(len(self)) % 2 == 0, self._labels, -1)


def test_only_labelled_images_are_held_out() -> None:
    found = divided(Partly(100, 5))
    assert found.test is not None
    assert found.test.labels is not None
    assert len(found.test) == 5
    assert (found.test.labels >= 0).all()
    assert len(found.train) == 95


def test_imbalance_leaves_out_training_images_alone_and_they_are_still_known() -> None:
    found, plain = divided(Memory(400, 4), imbalance="linear"), divided(Memory(400, 4))
    assert found.test is not None
    assert plain.test is not None
    assert found.balanced is not None
    assert ids(found.test) == ids(plain.test)
    assert ids(found.balanced) == ids(plain.train)
    assert ids(found.train) == ids(imbalanced(plain.train, "linear"))
    assert plain.balanced is None


def test_some_are_chosen_by_their_ids_and_are_labelled() -> None:
    data = Partly(100, 5)
    few, more = some(data, 10), some(data, 20)
    assert (len(few), len(more), len(some(data, 1000))) == (10, 20, 50)
    assert ids(few) < ids(more)
    assert few.labels is not None
    assert (few.labels >= 0).all()
    assert few.ids.tolist() == [each for each in data.ids.tolist() if each in ids(few)]  # in the data's order
    assert some(Memory(10, 2), 10).__class__ is Memory
