"""Named sets: read from their real formats where that is possible, and always opened with arguments that exist."""

from __future__ import annotations

import gzip
import inspect
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from manyview.core.errors import UserError
from manyview.data import named as module
from manyview.data.dataset import Batched, Dataset, Unreadable, id_of, label_sets
from manyview.data.named import NAMED, Named, default_root, open_named
from manyview.data.published import WNIDS
from manyview.data.selection import subset
from tests.data import fakes

ON_DISK: dict[
    str, tuple[Callable[[Path], None], int, list[int]]
] = {  # name -> files, classes, labels of its train split
    "cifar10": (fakes.cifar10, 10, [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]),
    "cifar100": (fakes.cifar100, 100, [0, 99]),
    "mnist": (fakes.mnist, 10, [3, 9]),
    "fashion-mnist": (fakes.fashion_mnist, 10, [3, 9]),
    "stl10": (fakes.stl10, 10, [0, 9]),
    "food101": (fakes.food101, 2, [1, 0]),
    "dtd": (fakes.dtd, 2, [1, 0]),
    "pets": (fakes.pets, 2, [0, 1]),
    "caltech101": (fakes.caltech101, 2, [0, 1]),
    "eurosat": (fakes.eurosat, 2, [0, 1]),
    "gtsrb": (fakes.gtsrb, 43, [0, 1]),
    "country211": (fakes.country211, 2, [0, 1]),
    "fgvc-aircraft": (fakes.aircraft, 2, [1, 0]),
    "fer2013": (fakes.fer2013, 7, [0, 6]),
    "rendered-sst2": (fakes.rendered_sst2, 2, [0, 1]),
    "hateful-memes": (fakes.hateful_memes, 2, [1, 0]),
    "kitti-distance": (fakes.kitti, 4, [0, 2, 3]),
    "resisc45": (fakes.resisc45, 2, [0, 1]),
    "imagenet": (fakes.imagenet, 2, [0, 1]),
}
TORCHVISIONS = [name for name, official in NAMED.items() if official.kind is not None]
ARRAYS = ("cifar10", "cifar100", "mnist", "fashion-mnist", "stl10", "svhn")


@pytest.fixture(autouse=True)
def _trust(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.trust_checksums(monkeypatch)


@pytest.mark.parametrize("name", ON_DISK)
def test_a_set_opens_from_its_files(tmp_path: Path, name: str) -> None:
    make, classes, labels = ON_DISK[name]
    make(tmp_path)
    data = open_named(name, root=tmp_path)
    assert isinstance(data, Dataset)
    assert data.modalities == ("image",)
    assert len(data.classes) == classes
    assert data.labels is not None
    assert data.labels.tolist() == labels
    assert len(data) == len(data.ids) == len(labels)
    if name == "caltech101":
        pytest.importorskip("scipy")  # torchvision asks for it with every image
    sample = data[1]
    assert (sample.id, sample.index, sample.targets["label"]) == (int(data.ids[1]), 1, labels[1])
    assert sample.modalities["image"].dtype == torch.uint8
    assert sample.modalities["image"].shape[0] == 3


@pytest.mark.parametrize("name", ON_DISK)
def test_no_two_splits_share_an_id(tmp_path: Path, name: str) -> None:
    ON_DISK[name][0](tmp_path)
    if "test" in NAMED[name].splits:
        train, test = open_named(name, root=tmp_path), open_named(name, root=tmp_path, split="test")
        assert not set(train.ids.tolist()) & set(test.ids.tolist())
        assert train.classes == test.classes
    else:
        with pytest.raises(ValueError, match=f"{name} has no 'test'; it has train"):
            open_named(name, root=tmp_path, split="test")


@pytest.mark.parametrize("name", TORCHVISIONS)
def test_torchvision_takes_the_arguments(name: str) -> None:
    official = NAMED[name]
    kind = getattr(datasets, str(official.kind))
    for arguments in official.splits.values():
        inspect.signature(kind).bind("root", **arguments)
    takes_download = "download" in inspect.signature(kind).parameters
    assert takes_download or not official.fetched


@pytest.mark.parametrize("name", TORCHVISIONS)
def test_torchvision_knows_the_splits(tmp_path: Path, name: str) -> None:
    """An unknown split is a ValueError, missing files are not: every split gets as far as the files."""
    for arguments in NAMED[name].splits.values():
        with pytest.raises((RuntimeError, OSError, ImportError)):
            getattr(datasets, str(NAMED[name].kind))(str(tmp_path), **arguments)


@pytest.mark.parametrize("name", NAMED)
def test_missing_files_are_one_line_that_says_where_to_put_them(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        open_named(name, root=tmp_path / "nothing")
    text = str(caught.value)
    assert "\n" not in text
    assert NAMED[name].place in text
    assert str(tmp_path) in text
    assert ("download=True" in text) == NAMED[name].fetched
    assert not (tmp_path / "nothing").exists()


def test_a_set_that_torchvision_has_not_is_missed_in_one_line_where_the_root_has_other_sets(tmp_path: Path) -> None:
    fakes.eurosat(tmp_path)
    with pytest.raises(UserError, match=r"^voc2007: not found; put VOCdevkit/VOC2007/ into .*nothing of it is there"):
        open_named("voc2007", root=tmp_path)


def test_images_of_voc_have_several_labels(tmp_path: Path) -> None:
    fakes.voc2007(tmp_path)
    data = open_named("voc2007", root=tmp_path)
    assert data.labels is None
    assert len(data.classes) == 20
    person, dog = data.classes.index("person"), data.classes.index("dog")
    assert data[0].targets == {"labels": (dog, person)}
    assert data[1].targets == {"labels": (person,)}
    assert data.label_sets is not None
    assert data.label_sets[1, dog] == -1  # difficult: counted neither way
    part = subset(data, [1])
    sets = label_sets(part)
    assert sets is not None
    assert torch.equal(sets, data.label_sets[1:])
    assert len(open_named("voc2007", root=tmp_path, split="test")) == 2


def test_every_split_of_the_table_can_be_asked_for_by_train() -> None:
    assert all("train" in official.splits for official in NAMED.values())
    assert set(NAMED["stl10"].splits) >= {"train", "test", "unlabeled"}


def test_an_array_set_gives_batches_equal_to_its_samples(tmp_path: Path) -> None:
    for name in ("cifar10", "mnist", "stl10"):
        ON_DISK[name][0](tmp_path)
        data = open_named(name, root=tmp_path)
        assert isinstance(data, Batched)
        batch = data.batch(torch.tensor([1, 0]))["image"]
        assert torch.equal(batch, torch.stack([data[1].modalities["image"], data[0].modalities["image"]]))


def test_pixels_come_from_the_right_place(tmp_path: Path) -> None:
    fakes.cifar10(tmp_path)
    assert fakes.colour_of(open_named("cifar10", root=tmp_path)[5].modalities["image"]) == [21, 22, 23]
    assert fakes.colour_of(open_named("cifar10", root=tmp_path, split="test")[1].modalities["image"]) == [51, 52, 53]
    fakes.stl10(tmp_path)
    image = open_named("stl10", root=tmp_path)[0].modalities["image"]
    assert image[:, 50, 5].tolist() == [200, 0, 0]
    assert image[:, 5, 50].tolist() == [0, 0, 0]
    fakes.mnist(tmp_path)
    digit = open_named("mnist", root=tmp_path)[0].modalities["image"]
    assert digit[:, 1, 2].tolist() == [30, 30, 30]


def test_stl10_has_images_without_labels(tmp_path: Path) -> None:
    fakes.stl10(tmp_path)
    data = open_named("stl10", root=tmp_path, split="unlabeled")
    assert (len(data), data.labels, data.classes) == (3, None, ())
    assert "label" not in data[0].targets
    both = open_named("stl10", root=tmp_path, split="train+unlabeled")
    assert both.ids.tolist() == [*open_named("stl10", root=tmp_path).ids.tolist(), *data.ids.tolist()]
    assert both.labels is not None
    assert both.labels.tolist() == [0, 9, -1, -1, -1]


def test_fer2013_without_test_labels_has_none(tmp_path: Path) -> None:
    fakes.write(tmp_path / "fer2013/test.csv", "pixels\n" + " ".join(["7"] * 48 * 48) + "\n")
    assert open_named("fer2013", root=tmp_path, split="test").labels is None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("home", [".", "fashion-mnist"])
def test_idx_files_load_as_they_are_published(tmp_path: Path, packed: bool, home: str) -> None:
    fakes.mnist(tmp_path, home)
    if packed:
        for file in (tmp_path / home).iterdir():
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    data = open_named("fashion-mnist", root=tmp_path, split="test")
    assert data.classes[9] == "Ankle boot"
    assert data[0].modalities["image"][:, 1, 2].tolist() == [31, 31, 31]


def test_svhn_is_turned_so_that_images_lie_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Fake:
        def __init__(self, root: str, split: str) -> None:
            stored = np.random.default_rng(len(split)).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
            self.data, self.labels = np.transpose(stored, (3, 2, 0, 1)), np.array([0, 1, 9, 0])

    monkeypatch.setattr(datasets, "SVHN", Fake)
    data = open_named("svhn", root=tmp_path)
    assert data.classes == tuple("0123456789")
    assert torch.equal(data[2].modalities["image"], torch.from_numpy(Fake("", "train").data[2].copy()))
    assert isinstance(data, Batched)
    assert data.batch(torch.tensor([0]))["image"].is_contiguous()


@pytest.mark.parametrize(("name", "attribute"), [("flowers102", "_labels"), ("cars", "_samples")])
def test_sets_that_need_scipy_open_in_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, attribute: str
) -> None:
    class Fake:
        def __init__(self, root: str, split: str) -> None:
            setattr(self, attribute, [0, 1] if attribute == "_labels" else [("a.jpg", 0), ("b.jpg", 1)])

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return fakes.pil(index), index

    kind = str(NAMED[name].kind)
    assert f"self.{attribute}" in inspect.getsource(getattr(datasets, kind))
    monkeypatch.setattr(datasets, kind, Fake)
    data = open_named(name, root=tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1]
    assert tuple(data[1].modalities["image"].shape) == (3, 4, 5)


def test_pcam_reads_labels_from_its_file_of_targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class File:
        def __init__(self, path: Path) -> None:
            self.values = {"y": np.array([1, 0, 1]).reshape(3, 1, 1, 1)} if path.name.endswith("train_y.h5") else {}

        def __enter__(self) -> dict[str, Any]:
            return self.values

        def __exit__(self, *_: object) -> None: ...

    class Reader:
        pass

    Reader.File = File  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "h5py", Reader)
    monkeypatch.setattr(datasets.PCAM, "_check_exists", lambda self: True)
    data = open_named("pcam", root=tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [1, 0, 1]
    assert data.classes == ("0", "1")


def test_a_damaged_image_is_unreadable(tmp_path: Path) -> None:
    fakes.eurosat(tmp_path)
    (tmp_path / "eurosat/2750/River/River_1.jpg").write_bytes(b"\xff\xd8\xff nothing")
    data = open_named("eurosat", root=tmp_path)
    assert data[0].targets["label"] == 0
    with pytest.raises(Unreadable):
        data[1]


@pytest.mark.parametrize("length", [0, 3, 10, 20])
def test_a_file_that_is_cut_short_is_named(tmp_path: Path, length: int) -> None:
    fakes.mnist(tmp_path)
    file = tmp_path / "MNIST/raw/train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UserError, match=rf"{file}: .*cut short at {length} bytes; delete it and fetch it again"):
        open_named("mnist", root=tmp_path)


def test_damaged_lists_of_a_set_are_told(tmp_path: Path) -> None:
    fakes.food101(tmp_path)
    (tmp_path / "food-101/meta/train.json").write_text("{")
    with pytest.raises(ValueError, match=r"food101: food-101/ in .* cannot be read \(.*\); replace the damaged file"):
        open_named("food101", root=tmp_path)


def test_imagenet_needs_no_devkit_if_its_folders_are_there(tmp_path: Path) -> None:
    fakes.imagenet(tmp_path)
    with_names = open_named("imagenet", root=tmp_path)
    (tmp_path / "meta.bin").unlink()
    without = open_named("imagenet", root=tmp_path)
    assert with_names.classes == ("first n01558993", "first n13040303")
    assert without.classes == ("n01558993", "n13040303")
    assert with_names.ids.tolist() == without.ids.tolist()


def test_photos_of_imagenet_are_decoded_as_small_as_views_need_them(tmp_path: Path) -> None:
    fakes.imagenet(tmp_path)
    file = sorted((tmp_path / "train").rglob("*.JPEG"))[0]
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (640, 320)).save(file, format="JPEG", exif=turned)
    data = open_named("imagenet", root=tmp_path)
    whole, small = data[0], data.smaller(0, lambda height, width: 4)
    assert whole.modalities["image"].shape == (3, 640, 320)  # upright
    assert small.modalities["image"].shape == (3, 160, 80)
    assert small.size == whole.size == (640, 320)
    assert small.id == whole.id


def test_imagenet100_is_a_part_of_imagenet_with_its_ids(tmp_path: Path) -> None:
    for wnid in ("n00000001", *WNIDS, "n99999999"):
        fakes.draw(tmp_path / "train" / wnid / "1.JPEG")
    whole, part = open_named("imagenet", root=tmp_path), open_named("imagenet100", root=tmp_path)
    assert (len(whole), len(part)) == (102, 100)
    assert part.ids.tolist() == whole.ids.tolist()[1:-1]
    assert part.classes == WNIDS
    assert part.labels is not None
    assert part.labels.tolist() == list(range(100))
    assert part.name(0) == "imagenet/train/1"
    assert torch.equal(part[0].modalities["image"], whole[1].modalities["image"])
    for other in ("n00000001", "n99999999"):
        shutil.rmtree(tmp_path / "train" / other)
    assert open_named("imagenet100", root=tmp_path).ids.tolist() == part.ids.tolist()
    assert int(part.ids[0]) == id_of(f"imagenet/train/{WNIDS[0]}/1.JPEG")


def test_imagenet100_names_a_missing_class(tmp_path: Path) -> None:
    fakes.imagenet(tmp_path)
    with pytest.raises(UserError, match="98 of 100 class folders are missing"):
        open_named("imagenet100", root=tmp_path)


def test_an_unknown_name_or_split_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no set called 'cifar'; there are cifar10"):
        open_named("cifar", root=tmp_path)
    with pytest.raises(ValueError, match="cifar10 has no 'val'; it has train, test"):
        open_named("cifar10", root=tmp_path, split="val")


def test_download_is_asked_for_only_when_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    class Fake:
        def __init__(self, root: str, **given: Any) -> None:
            asked.append(given)
            self.data, self.targets, self.classes = np.zeros((1, 32, 32, 3), np.uint8), [0], ["a"]

    monkeypatch.setattr(datasets, "CIFAR10", Fake)
    open_named("cifar10", root=tmp_path)
    open_named("cifar10", root=tmp_path, split="test", download=True)
    assert asked == [{"train": True}, {"train": False, "download": True}]
    with pytest.raises(ValueError, match="imagenet cannot be fetched"):
        open_named("imagenet", root=tmp_path, download=True)


def test_the_root_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYVIEW_DATA", str(tmp_path))
    fakes.cifar100(tmp_path)
    assert len(open_named("cifar100")) == 2
    monkeypatch.delenv("MANYVIEW_DATA")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_root() == Path("/home/somebody/.cache/manyview")


def test_workers_can_take_it_along(tmp_path: Path) -> None:
    fakes.cifar10(tmp_path)
    data = open_named("cifar10", root=tmp_path)
    copy: Named = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy[3].modalities["image"], data[3].modalities["image"])


def test_only_array_sets_are_kept_in_memory(tmp_path: Path) -> None:
    for name in ON_DISK:
        if name in ("imagenet", "caltech101"):
            continue
        home = tmp_path / name
        ON_DISK[name][0](home)
        assert isinstance(open_named(name, root=home), module.NamedArray) == (name in ARRAYS)
