"""NYU-Depth v2 from a small file of the published layout."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from manyview.core.errors import UserError
from manyview.data.check import as_text, open_splits
from manyview.data.dataset import Dataset
from manyview.data.factory import open_data
from manyview.data.normals import normals_of
from manyview.data.nyu import CAMERA, NyuDepth
from manyview.data.survey import survey

PAIRS, HEIGHT, WIDTH = 6, 8, 10


def write(folder: Path, splits: bool = True) -> Path:
    """MATLAB's arrays (H, W, 3, n) and (H, W, n), which HDF5 holds from the last axis to the first."""
    rng, path = np.random.default_rng(0), folder / "nyu_depth_v2_labeled.mat"
    images = rng.integers(0, 256, (HEIGHT, WIDTH, 3, PAIRS), np.uint8)
    depths = rng.uniform(1, 5, (HEIGHT, WIDTH, PAIRS)).astype(np.float32)
    with h5py.File(path, "w") as file:
        file["images"], file["depths"], file["rawDepths"] = images.T, depths.T, np.zeros_like(depths).T
        file["labels"] = rng.integers(0, 894, (HEIGHT, WIDTH, PAIRS), np.uint16).T
        file["instances"] = rng.integers(0, 9, (HEIGHT, WIDTH, PAIRS), np.uint8).T
        types = ["kitchen", "office", "kitchen", "bathroom", "office", "kitchen"]
        for number, text in enumerate(types):
            file[f"#refs#/{number}"] = np.array([[ord(letter)] for letter in text], np.uint16)
        references = [file[f"#refs#/{number}"].ref for number in range(PAIRS)]
        file.create_dataset("sceneTypes", data=np.array([references], dtype=h5py.ref_dtype), dtype=h5py.ref_dtype)
    np.savez(folder / "truth.npz", images=images, depths=depths)
    if splits:
        savemat(folder / "splits.mat", {"trainNdxs": [[1], [2], [4], [6]], "testNdxs": [[3], [5]]})
    return path


def test_pictures_and_depths_are_upright(tmp_path: Path) -> None:
    data, truth = NyuDepth(write(tmp_path, splits=False)), np.load(tmp_path / "truth.npz")
    assert isinstance(data, Dataset)
    assert len(data) == PAIRS
    for row in (0, 5):
        sample = data[row].modalities
        np.testing.assert_array_equal(sample["rgb"], truth["images"][..., row].transpose(2, 0, 1))
        np.testing.assert_array_equal(sample["depth"][0], truth["depths"][..., row])
    assert {name: (x.dtype, tuple(x.shape)) for name, x in data[0].modalities.items()} == {
        "rgb": (torch.uint8, (3, HEIGHT, WIDTH)),
        "depth": (torch.float32, (1, HEIGHT, WIDTH)),
    }


def test_splits_and_scene_types_are_the_published_ones(tmp_path: Path) -> None:
    path = write(tmp_path)
    train, test = open_data(path), open_data(path, split="test")
    assert [train.name(row) for row in range(len(train))] == ["0001", "0002", "0004", "0006"]
    assert [test.name(row) for row in range(len(test))] == ["0003", "0005"]
    assert train.classes == test.classes == ("bathroom", "kitchen", "office")
    assert train.labels is not None
    assert train.labels.tolist() == [1, 2, 0, 1]
    assert len(open_data(path, split=None)) == PAIRS
    assert set(train.ids.tolist()).isdisjoint(test.ids.tolist())


def test_other_fields_are_there_by_name_and_normals_are_made_by_its_camera(tmp_path: Path) -> None:
    path = write(tmp_path)
    labels = open_data(path, modalities=("rgb", "labels", "raw_depth"))[0].modalities
    assert labels["labels"].dtype == torch.float32
    assert labels["raw_depth"].unique().tolist() == [0.0]
    sample = open_data(path, modalities=("depth", "normals"))[0].modalities
    assert sample["normals"].equal(normals_of(sample["depth"], CAMERA))
    assert list(open_data(path, modalities=("rgb", "normals"))[0].modalities) == ["rgb", "normals"]
    with pytest.raises(UserError, match="there is no 'flow'; there are rgb, depth, raw_depth, labels, instances"):
        open_data(path, modalities=("rgb", "flow"))


def test_another_process_opens_the_file_for_itself(tmp_path: Path) -> None:
    data = NyuDepth(write(tmp_path))
    copy: NyuDepth = pickle.loads(pickle.dumps(data))
    assert copy[0].modalities["rgb"].equal(data[0].modalities["rgb"])


def test_check_describes_it(tmp_path: Path) -> None:
    splits, missing = open_splits(str(write(tmp_path)))
    text = as_text("nyu", survey(splits), missing)
    assert "samples     6: train 4, test 2" in text
    assert "left out    labels, instances: label maps by name" in text
    assert "1 x float32" in text


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_that_there_is_not_is_one_line(tmp_path: Path, split: str) -> None:
    with pytest.raises(UserError, match=rf"no '{split}'; the published splits are read from splits.mat"):
        open_data(write(tmp_path, splits=split == "val"), split=split)


def test_splits_of_other_data_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    savemat(tmp_path / "splits.mat", {"trainNdxs": [[1], [7]], "testNdxs": [[2]]})
    with pytest.raises(UserError, match="is not for its 6 pairs"):
        open_data(path)
    (tmp_path / "splits.mat").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"splits.mat beside .* cannot be read"):
        open_data(path)


def test_another_mat_file_is_one_line(tmp_path: Path) -> None:
    savemat(tmp_path / "old.mat", {"images": [1]})
    with pytest.raises(UserError, match=r"is no MATLAB 7.3") as error:
        open_data(tmp_path / "old.mat")
    assert "\n" not in str(error.value)
    with h5py.File(tmp_path / "other.mat", "w") as file:
        file["x"] = [1]
    with pytest.raises(UserError, match=r"expected images .* and depths .* found x"):
        open_data(tmp_path / "other.mat")


def test_without_h5py_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'manyview\[hdf5\]'"):
        open_data(path)
