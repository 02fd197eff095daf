"""Tiny data sets in the real on-disk formats of the named ones, two images a split, and one in memory."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data.listed import VOC_CLASSES
from tests.data.awful import picture


class Memory:
    """n samples of k classes in turn, each of its own colour."""

    modalities = ("image",)

    def __init__(self, count: int, classes: int, labelled: bool = True) -> None:
        self._ids = torch.arange(count) * 7 + 3
        self._labels = torch.arange(count) % classes
        self._labelled, self._classes = labelled, tuple(f"class {i}" for i in range(classes))

    @property
    def ids(self) -> Tensor:
        return self._ids

    @property
    def labels(self) -> Tensor | None:
        return self._labels if self._labelled else None

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes if self._labelled else ()

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> Sample:
        image = torch.full((3, 2, 2), index % 256, dtype=torch.uint8)
        return Sample(int(self._ids[index]), index, {"image": image}, {"label": int(self._labels[index])})

    def name(self, index: int) -> str:
        return f"number {index}"


class BatchedMemory(Memory):
    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {"image": torch.stack([self[int(i)].modalities["image"] for i in index])}


def trust_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision knows the checksums of the real files."""
    for module in ("cifar", "stl10", "fer2013"):
        monkeypatch.setattr(f"torchvision.datasets.{module}.check_integrity", lambda *_, **__: True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def draw(path: Path, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed=seed).save(path)


def write_pickle(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value))


def cifar10(root: Path) -> None:
    """Image i of file f has the colour 10 f + i + (0, 1, 2) everywhere."""
    home = root / "cifar-10-batches-py"
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        rows = np.stack([np.repeat(10 * number + i + np.arange(3), 1024) for i in range(2)]).astype(np.uint8)
        write_pickle(home / name, {"data": rows, "labels": [number % 10, 9]})
    write_pickle(home / "batches.meta", {"label_names": [f"c{i}" for i in range(10)]})


def cifar100(root: Path) -> None:
    home = root / "cifar-100-python"
    for name in ("train", "test"):
        write_pickle(home / name, {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 99]})
    write_pickle(home / "meta", {"fine_label_names": [f"c{i}" for i in range(100)]})


def idx(path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def mnist(root: Path, home: str = "MNIST/raw") -> None:
    for number, part in enumerate(("train", "t10k")):
        pixels = np.arange(2 * 28 * 28, dtype=np.int64).reshape(2, 28, 28) % 251 + number
        idx(root / home / f"{part}-images-idx3-ubyte", pixels.astype(np.uint8))
        idx(root / home / f"{part}-labels-idx1-ubyte", np.array([3, 9], np.uint8))


def fashion_mnist(root: Path) -> None:
    mnist(root, "FashionMNIST/raw")


def stl10(root: Path) -> None:
    home = root / "stl10_binary"
    write(home / "class_names.txt", "\n".join(f"c{i}" for i in range(10)))
    for part, count in (("train", 2), ("test", 2), ("unlabeled", 3)):
        # columns come first in the file
        pixels = np.zeros((count, 3, 96, 96), np.uint8)
        pixels[:, 0, 5, :] = 200  # column 5 is red
        (home / f"{part}_X.bin").write_bytes(pixels.tobytes())
        (home / f"{part}_y.bin").write_bytes(bytes([1, 10][:count]))


def food101(root: Path) -> None:
    for split in ("train", "test"):
        write(root / "food-101/meta" / f"{split}.json", json.dumps({c: [f"{c}/{split}"] for c in ("pie", "apple")}))
        for kind in ("pie", "apple"):
            draw(root / "food-101/images" / kind / f"{split}.jpg")


def dtd(root: Path) -> None:
    for split in ("train", "val", "test"):
        write(root / "dtd/dtd/labels" / f"{split}1.txt", f"dotted/{split}.jpg\nbanded/{split}.jpg\n")
        for kind in ("dotted", "banded"):
            draw(root / "dtd/dtd/images" / kind / f"{split}.jpg")


def pets(root: Path) -> None:
    home = root / "oxford-iiit-pet"
    for number, split in enumerate(("trainval", "test")):
        write(home / "annotations" / f"{split}.txt", f"Bombay_{number} 1 1 1\npug_{number} 2 2 1\n")
        for kind in ("Bombay", "pug"):
            draw(home / "images" / f"{kind}_{number}.jpg")


def caltech101(root: Path) -> None:
    for kind in ("BACKGROUND_Google", "ant", "bass"):
        draw(root / "caltech101/101_ObjectCategories" / kind / "image_0001.jpg")
    (root / "caltech101/Annotations").mkdir()


def eurosat(root: Path) -> None:
    for kind in ("Forest", "River"):
        draw(root / "eurosat/2750" / kind / f"{kind}_1.jpg")


def gtsrb(root: Path) -> None:
    home = root / "gtsrb"
    for number in range(2):
        draw(home / "GTSRB/Training" / f"{number:05}" / "0.ppm")
        draw(home / "GTSRB/Final_Test/Images" / f"{number:05}.ppm")
    write(home / "GT-final_test.csv", "Filename;ClassId\n00000.ppm;16\n00001.ppm;1\n")


def country211(root: Path) -> None:
    for split in ("train", "valid", "test"):
        for kind in ("AD", "ZW"):
            draw(root / "country211" / split / kind / "1.jpg")


def aircraft(root: Path) -> None:
    home = root / "fgvc-aircraft-2013b/data"
    write(home / "variants.txt", "707-320\nA300B4\n")
    for number, split in enumerate(("train", "val", "trainval", "test")):
        write(home / f"images_variant_{split}.txt", f"{number} A300B4\n1{number} 707-320\n")
        for name in (f"{number}", f"1{number}"):
            draw(home / "images" / f"{name}.jpg")


def fer2013(root: Path) -> None:
    (root / "fer2013").mkdir(parents=True)
    with (root / "fer2013/fer2013.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("emotion", "pixels", "Usage"))
        for usage in ("Training", "PublicTest"):
            for emotion in (0, 6):
                rows.writerow((emotion, " ".join(["7"] * 48 * 48), usage))


def rendered_sst2(root: Path) -> None:
    for split in ("train", "valid", "test"):
        for kind in ("negative", "positive"):
            draw(root / "rendered-sst2" / split / kind / "1.png")


def voc2007(root: Path) -> None:
    """Image 1 shows a dog and a person, 2 a person, and a dog that is hardly to be seen."""
    home = root / "VOCdevkit/VOC2007"
    for number, split in enumerate(("train", "val", "trainval", "test")):
        stems = (f"00{number}001", f"00{number}002")
        shown = {"dog": ("1", "0"), "person": ("1", "1")}
        for name in VOC_CLASSES:
            lines = [f"{stem} {sign:>2}" for stem, sign in zip(stems, shown.get(name, ("-1", "-1")), strict=True)]
            write(home / "ImageSets/Main" / f"{name}_{split}.txt", "\n".join(lines) + "\n")
        for stem in stems:
            draw(home / "JPEGImages" / f"{stem}.jpg")


def hateful_memes(root: Path) -> None:
    home = root / "hateful_memes"
    for number, split in enumerate(("train", "dev_seen")):
        rows = [{"id": number, "img": f"img/{split}{label}.png", "label": label, "text": "a joke"} for label in (1, 0)]
        write(home / f"{split}.jsonl", "\n".join(json.dumps(row) for row in rows) + "\n")
        for row in rows:
            draw(home / str(row["img"]))


KITTI_LABEL = "{} 0.00 0 -1.57 100.0 120.0 200.0 220.0 1.5 1.6 3.7 0.0 1.5 {} 0.0\n"


def kitti(root: Path) -> None:
    home = root / "kitti/training"
    near, far = KITTI_LABEL.format("Car", 7.5), KITTI_LABEL.format("Van", 20.5)
    walking = KITTI_LABEL.format("Pedestrian", 3.0)
    for number, text in enumerate((near + far, walking + far, walking)):
        write(home / "label_2" / f"{number:06}.txt", text)
        draw(home / "image_2" / f"{number:06}.png")


def resisc45(root: Path) -> None:
    for kind in ("river", "airport"):
        draw(root / "NWPU-RESISC45" / kind / f"{kind}_001.jpg")
        write(root / "NWPU-RESISC45" / kind / "Thumbs.db", "no picture")


def imagenet(root: Path) -> None:
    """Two of ImageNet-100's classes with the meta file that torchvision makes of the devkit."""
    wnids = ("n01558993", "n13040303")
    for split in ("train", "val"):
        for wnid in wnids:
            draw(root / split / wnid / "1.JPEG")
    torch.save(({wnid: (f"first {wnid}", "second") for wnid in wnids}, []), root / "meta.bin")


def colour_of(image: Tensor) -> list[int]:
    return [int(value) for value in image[:, 3, 4]]


def pil(seed: int) -> Image.Image:
    return picture(seed=seed)
