"""A folder as a data set: ids, labels, splits, and what happens to awful files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from manyview.core.errors import UserError
from manyview.data.dataset import Dataset, Unreadable, id_of
from manyview.data.folder import Folder
from tests.data.awful import BROKEN, GOOD, STRAY, make_awful, picture


def fill(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture(seed=number).save(root / name)
    return root


def test_a_folder_is_a_dataset(tmp_path: Path) -> None:
    folder = Folder(fill(tmp_path, "b.png", "a.jpg"))
    assert isinstance(folder, Dataset)
    assert folder.modalities == ("image",)
    assert [folder.name(i) for i in range(2)] == ["a.jpg", "b.png"]
    sample = folder[1]
    assert (sample.id, sample.index, sample.targets) == (id_of("b.png"), 1, {})
    assert tuple(sample.modalities["image"].shape) == (3, 4, 5)
    assert folder.ids.tolist() == [id_of("a.jpg"), id_of("b.png")]
    assert folder[-1].index == 1
    with pytest.raises(IndexError):
        folder[2]


def test_every_awful_file_is_read_or_says_why_not(tmp_path: Path) -> None:
    folder = Folder(make_awful(tmp_path))
    outcomes: dict[str, object] = {}
    for index in range(len(folder)):
        relative = os.path.relpath(folder.path(index), tmp_path)
        try:
            outcomes[relative] = tuple(folder[index].modalities["image"].shape)
        except Unreadable as error:
            outcomes[relative] = str(error)
    outcomes.pop(STRAY, None)
    assert {name: shape for name, shape in outcomes.items() if not isinstance(shape, str)} == GOOD
    assert set(outcomes) - set(GOOD) == set(BROKEN)


def test_names_are_safe_to_print(tmp_path: Path) -> None:
    folder = Folder(make_awful(tmp_path))
    names = [folder.name(i) for i in range(len(folder))]
    assert all(name.isprintable() for name in names)
    assert r"new\nline.png" in names
    if os.path.exists(tmp_path / STRAY):
        assert r"caf\xe9.png" in names


def test_ids_stay_when_files_are_added_or_the_folder_moves(tmp_path: Path) -> None:
    before = Folder(fill(tmp_path / "here", "m.png"))
    after = Folder(fill(tmp_path / "there", "a.png", "m.png", "z.png"))
    assert before.ids[0] == after.ids[1]


def test_class_folders_are_evident(tmp_path: Path) -> None:
    folder = Folder(fill(tmp_path, "dog/1.png", "cat/1.png", "cat/2.png"))
    assert folder.classes == ("cat", "dog")
    assert folder.labels is not None
    assert folder.labels.tolist() == [0, 0, 1]
    assert folder[2].targets["label"] == 1


@pytest.mark.parametrize("names", [("a.png", "cat/1.png", "dog/1.png"), ("cat/1.png",), ("cat/x/1.png", "dog/1.png")])
def test_other_nestings_are_no_labels_unless_asked(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = Folder(fill(tmp_path, *names))
    assert folder.labels is None
    assert folder.classes == ()


def test_labels_on_request_take_the_first_folder(tmp_path: Path) -> None:
    folder = Folder(fill(tmp_path, "cat/x/1.png", "dog/1.png"), labels=True)
    assert folder.classes == ("cat", "dog")
    assert Folder(tmp_path, labels=False).labels is None


def test_an_image_outside_class_folders_is_named_if_labels_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'a\.png' lies in no class folder"):
        Folder(fill(tmp_path, "a.png", "cat/1.png"), labels=True)


def test_labels_that_are_no_word_of_ours_are_a_pattern_and_need_a_group(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="labels: 'yes' has no group; put what names the class in brackets"):
        Folder(fill(tmp_path, "a.png"), labels="yes")


def test_splits_share_class_numbers_and_no_ids(tmp_path: Path) -> None:
    fill(tmp_path, "train/cat/1.png", "train/dog/1.png", "train/emu/1.png", "test/cat/1.png", "test/emu/1.png")
    train, test = Folder(tmp_path), Folder(tmp_path, split="test")
    assert (len(train), len(test)) == (3, 2)
    assert train.classes == test.classes == ("cat", "dog", "emu")
    assert test.labels is not None
    assert test.labels.tolist() == [0, 2]
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    assert test.name(0) == "test/cat/1.png"
    everything = Folder(tmp_path, split=None)
    assert set(everything.ids.tolist()) == {*train.ids.tolist(), *test.ids.tolist()}


def test_a_missing_split_says_which_there_are(tmp_path: Path) -> None:
    fill(tmp_path, "train/1.png", "val/1.png")
    assert Folder(tmp_path, split="test").split_folder == "val"
    with pytest.raises(ValueError, match=r"no 'unlabeled'; .* has train, val"):
        Folder(tmp_path, split="unlabeled")
    with pytest.raises(ValueError, match="is not divided into splits"):
        Folder(tmp_path / "train", split="test")


def test_a_missing_folder_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"no folder .*phots/in.* has photos"):
        Folder(tmp_path / "phots" / "in")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    fill(tmp_path, "a.png")
    with pytest.raises(UserError, match="is a file"):
        Folder(tmp_path / "a.png")


def test_a_folder_without_images_says_what_it_found(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.avif"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"no images below .*; found 2 .txt, 1 .avif; expected files that end in .png"):
        Folder(tmp_path)


def test_nothing_is_opened_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.png")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr("PIL.Image.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    assert len(Folder(tmp_path)) == 1


def test_a_file_that_vanishes_is_unreadable(tmp_path: Path) -> None:
    folder = Folder(fill(tmp_path, "a.png"))
    (tmp_path / "a.png").unlink()
    with pytest.raises(Unreadable, match="gone"):
        folder[0]


def test_workers_can_take_it_along(tmp_path: Path) -> None:
    folder = Folder(fill(tmp_path, "cat/1.png", "dog/1.png"))
    copy = pickle.loads(pickle.dumps(folder))
    assert torch.equal(copy[1].modalities["image"], folder[1].modalities["image"])


def test_a_root_and_classes_whose_names_are_no_utf_8_are_as_good(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    folder = Folder(fill(root, os.fsdecode(b"\xff/1.png"), "dog/1.png"))
    assert folder.classes == ("dog", "\\xff")
    assert len({folder[row].modalities["image"].sum().item() for row in (0, 1)}) == 2
    assert folder.name(1) == "\\xff/1.png"
    with pytest.raises(UserError, match=r"caf.*xe9"):
        Folder(tmp_path / os.fsdecode(b"caf\xe9s"))
