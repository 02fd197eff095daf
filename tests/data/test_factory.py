"""What a name or a path opens as."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from manyview.core.errors import UserError
from manyview.data.factory import open_data
from manyview.data.files import scan
from manyview.data.folder import Folder
from manyview.data.named import Named
from manyview.data.paired import Paired
from tests.data import fakes
from tests.data.awful import picture


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
