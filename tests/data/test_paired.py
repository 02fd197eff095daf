"""Paired views: matching, missing views, and each view in its own unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.core.errors import UserError
from manyview.data.dataset import Dataset, Unreadable, id_of
from manyview.data.paired import Paired, open_if_paired
from manyview.data.reader import Reader
from manyview.views import Augmentation, ViewPipeline
from manyview.views.view import View
from tests.data.awful import picture


def put(path: Path, kind: str = "rgb") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "rgb":
        picture().save(path)
    elif kind == "grey":
        Image.new("L", (5, 4), 9).save(path)
    elif kind == "depth":
        Image.fromarray(np.full((4, 5), 1234, np.uint16)).save(path)
    else:
        np.save(path, np.full((4, 5, 2), -1.5, np.float64))


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    """a has all views, b lacks flow, c has depth alone."""
    for name in "ab":
        put(tmp_path / "rgb" / f"{name}.jpg")
        put(tmp_path / "depth" / f"{name}.png", "depth")
        put(tmp_path / "thermal" / f"{name}.png", "grey")
    put(tmp_path / "flow" / "a.npy", "flow")
    put(tmp_path / "depth" / "c.png", "depth")
    return tmp_path


def test_views_are_matched_by_name_without_extension(rooms: Path) -> None:
    data = Paired(rooms)
    assert isinstance(data, Dataset)
    assert data.modalities == ("rgb", "depth", "flow", "thermal")
    assert data.counts == {"rgb": 2, "depth": 3, "flow": 1, "thermal": 2}
    assert [data.name(i) for i in range(3)] == ["a", "b", "c"]
    assert data.ids.tolist() == [id_of(name) for name in "abc"]
    assert [list(data[i].modalities) for i in range(3)] == [
        ["rgb", "depth", "flow", "thermal"],
        ["rgb", "depth", "thermal"],
        ["depth"],
    ]


def test_each_view_keeps_its_own_unit(rooms: Path) -> None:
    views = Paired(rooms)[0].modalities
    assert {view: (tensor.dtype, tuple(tensor.shape)) for view, tensor in views.items()} == {
        "rgb": (torch.uint8, (3, 4, 5)),
        "depth": (torch.float32, (1, 4, 5)),
        "flow": (torch.float32, (2, 4, 5)),
        "thermal": (torch.uint8, (1, 4, 5)),
    }
    assert views["depth"].unique().tolist() == [1234.0]
    assert views["flow"].unique().tolist() == [-1.5]


def test_complete_only_leaves_out_what_lacks_a_view(rooms: Path) -> None:
    assert len(Paired(rooms, complete_only=True)) == 1
    assert len(Paired(rooms, modalities=("rgb", "depth"), complete_only=True)) == 2


def test_the_first_view_given_is_the_reference(rooms: Path) -> None:
    assert Paired({"d": rooms / "depth", "c": rooms / "rgb"}).modalities == ("d", "c")
    assert Paired(rooms, modalities=("thermal", "rgb")).modalities == ("thermal", "rgb")


def test_an_id_is_the_same_without_one_of_the_views(rooms: Path) -> None:
    whole, part = Paired(rooms), Paired(rooms, modalities=("rgb", "thermal"))
    assert part.ids.tolist() == whole.ids.tolist()[:2]


def test_a_split_holds_the_folders_of_the_views(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for view in ("rgb", "thermal"):
            for number in range(count):
                put(tmp_path / split / view / f"{number}.png", "rgb" if view == "rgb" else "grey")
    train, test = Paired(tmp_path), Paired(tmp_path, split="test")
    assert (len(train), len(test)) == (3, 2)
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    assert train.name(0) == "train/0"


def test_class_folders_below_the_views_are_labels(tmp_path: Path) -> None:
    for view in ("rgb", "depth"):
        for name in ("bed/1", "bed/2", "sofa/1"):
            put(tmp_path / view / f"{name}.png", "rgb" if view == "rgb" else "depth")
    data = Paired(tmp_path)
    assert data.classes == ("bed", "sofa")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1]
    assert Paired(tmp_path, labels=False).labels is None


def test_splits_share_class_numbers(tmp_path: Path) -> None:
    for name in ("train/{}/bed/1", "train/{}/sofa/1", "test/{}/sofa/2", "test/{}/wall/2"):
        for view in ("rgb", "thermal"):
            put(tmp_path / f"{name.format(view)}.png")
    assert Paired(tmp_path).classes == Paired(tmp_path, split="test").classes == ("bed", "sofa", "wall")
    assert Paired(tmp_path, split="test")[0].targets["label"] == 1


def test_names_that_never_match_are_shown(tmp_path: Path) -> None:
    put(tmp_path / "rgb" / "1_rgb.png")
    put(tmp_path / "depth" / "1_depth.png", "depth")
    with pytest.raises(ValueError, match=r"in two modalities; rgb has '1_rgb\.png', depth has '1_depth\.png'"):
        Paired(tmp_path)


def test_no_complete_sample_is_told(rooms: Path) -> None:
    (rooms / "flow" / "a.npy").rename(rooms / "flow" / "c.npy")
    with pytest.raises(ValueError, match="no file has all modalities"):
        Paired(rooms, complete_only=True)


def test_two_files_for_one_modality_are_refused(rooms: Path) -> None:
    put(rooms / "rgb" / "a.png")
    with pytest.raises(ValueError, match=r"modality 'rgb': 'a.jpg' and 'a.png' differ only in their extension"):
        Paired(rooms)


def test_one_folder_is_not_paired(tmp_path: Path) -> None:
    put(tmp_path / "rgb" / "a.png")
    with pytest.raises(ValueError, match="at least two folders with images, found rgb"):
        Paired(tmp_path)


def test_an_unknown_or_missing_modality_is_named(rooms: Path) -> None:
    with pytest.raises(ValueError, match="there is no 'normals'; there are rgb, depth, flow, thermal"):
        Paired(rooms, modalities=("rgb", "normals"))
    with pytest.raises(UserError, match="modality 'd': there is no folder"):
        Paired({"rgb": rooms / "rgb", "d": rooms / "deth"})
    (rooms / "empty").mkdir()
    with pytest.raises(ValueError, match="modality 'e': no images"):
        Paired({"rgb": rooms / "rgb", "e": rooms / "empty"})


def test_a_broken_view_makes_the_sample_unreadable(rooms: Path) -> None:
    (rooms / "depth" / "b.png").write_bytes(b"")
    data = Paired(rooms)
    assert data[0].index == 0
    with pytest.raises(Unreadable, match="depth: the file is empty"):
        data[1]


def test_only_a_known_reference_view_makes_a_root_look_paired(rooms: Path, tmp_path: Path) -> None:
    assert open_if_paired(str(rooms)) is not None
    for name in ("cats/1.png", "dogs/1.png"):
        put(tmp_path / "classes" / name)
    assert open_if_paired(str(tmp_path / "classes")) is None


def test_grey_among_rgb_becomes_rgb(rooms: Path) -> None:
    Image.new("L", (5, 4), 9).save(rooms / "rgb" / "b.jpg")
    view = Paired(rooms)[1].modalities["rgb"]
    assert (tuple(view.shape), view.dtype, view.unique().tolist()) == ((3, 4, 5), torch.uint8, [9])


@pytest.mark.parametrize(
    ("view", "kind", "told"),
    [
        ("thermal", "rgb", "thermal: 3 channels of uint8, but others, such as 'a.png', have 1 of uint8"),
        ("thermal", "depth", "thermal: 1 channel of float32, but others, such as 'a.png', have 1 of uint8"),
        ("depth", "grey", "depth: 1 channel of uint8, but others, such as 'a.png', have 1 of float32"),
    ],
)
def test_a_file_that_differs_from_its_view_is_unreadable(rooms: Path, view: str, kind: str, told: str) -> None:
    put(rooms / view / "b.png", kind)
    data = Paired(rooms)
    assert data[0].index == 0
    with pytest.raises(Unreadable, match=told):
        data[1]


def test_the_first_files_that_can_be_read_decide_whichever_is_asked_for_first(rooms: Path) -> None:
    (rooms / "thermal" / "a.png").write_bytes(b"")
    put(rooms / "rgb" / "c.png")
    put(rooms / "thermal" / "c.png")
    with pytest.raises(Unreadable, match=r"thermal: 3 channels of uint8, but others, such as 'b\.png', have 1"):
        Paired(rooms)[2]


def test_one_named_folder_is_a_modality_read_in_its_own_unit(rooms: Path) -> None:
    alone = Paired({"depth": rooms / "depth"})
    assert alone.modalities == ("depth",)
    assert alone[0].modalities["depth"].dtype == torch.float32


def test_label_maps_are_no_modality_unless_they_are_named(rooms: Path) -> None:
    for folder in ("labels", "masks", "Annotations", "labels_fine", "gt", "sem_seg"):
        put(rooms / folder / "a.png", "grey")
    put(rooms / "labelled-lidar" / "a.png", "grey")  # which only begins like one
    data = Paired(rooms)
    assert data.left_out == ("Annotations", "gt", "labels", "labels_fine", "masks", "sem_seg")
    assert data.modalities == ("rgb", "depth", "flow", "labelled-lidar", "thermal")
    assert Paired(rooms, modalities=("rgb", "masks")).modalities == ("rgb", "masks")
    assert Paired({"rgb": rooms / "rgb", "m": rooms / "masks"}).left_out == ()


def test_pictures_beside_label_maps_are_one_modality(tmp_path: Path) -> None:
    put(tmp_path / "rgb" / "a.jpg")
    put(tmp_path / "masks" / "a.png", "grey")
    data = open_if_paired(str(tmp_path))
    assert data is not None
    assert (data.modalities, data.left_out, len(data)) == (("rgb",), ("masks",), 1)


def test_of_a_sample_only_the_files_that_are_asked_for_are_opened(rooms: Path) -> None:
    (rooms / "depth" / "a.png").write_bytes(b"broken")
    data = Paired(rooms)
    assert list(data.sample(0, ("rgb", "flow")).modalities) == ["rgb", "flow"]
    with pytest.raises(Unreadable, match="depth: "):
        data[0]


@pytest.fixture
def streets(tmp_path: Path) -> Path:
    """Photos of 64 x 96, a grey one among them, with depth of half the size and a thermal picture in grey."""
    for name in ("rgb", "depth", "thermal"):
        (tmp_path / name).mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        photo = Image.fromarray(rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)).resize((96, 64))
        (photo.convert("L") if number == 2 else photo).save(tmp_path / "rgb" / f"{number}.jpg")
        photo.convert("L").save(tmp_path / "thermal" / f"{number}.jpg")
        np.save(tmp_path / "depth" / f"{number}.npy", rng.random((32, 48), dtype=np.float32))
    return tmp_path


def test_the_reference_is_decoded_smaller_and_nothing_else(streets: Path) -> None:
    data = Paired(streets, modalities=["rgb", "depth", "thermal"])
    for index in range(3):
        sample, whole = data.smaller(index, lambda height, width: 4), data[index]
        assert {name: tuple(x.shape) for name, x in sample.modalities.items()} == {
            "rgb": (3, 16, 24),
            "depth": (1, 32, 48),
            "thermal": (1, 64, 96),
        }
        assert (sample.id, sample.index, sample.size, whole.size) == (whole.id, index, (64, 96), None)
        small, large = (x.modalities["rgb"].float() for x in (sample, whole))
        assert (small - large.unflatten(1, (-1, 4)).unflatten(3, (-1, 4)).mean((2, 4))).abs().mean() < 3


def test_what_is_no_picture_of_colours_or_no_jpeg_stays_whole(streets: Path) -> None:
    def refuse(height: int, width: int) -> int:
        raise AssertionError("nobody may ask")

    assert Paired(streets, modalities=["thermal", "rgb"]).smaller(0, refuse).size is None
    assert Paired(streets, modalities=["depth", "rgb"]).smaller(0, refuse).size is None
    (streets / "rgb" / "1.jpg").unlink()
    picture(6, 4).save(streets / "rgb" / "1.png")
    sample = Paired(streets, modalities=["rgb", "depth"]).smaller(1, refuse)
    assert tuple(sample.modalities["rgb"].shape[1:]) == (picture(6, 4).height, picture(6, 4).width)


def test_a_broken_reference_is_unreadable_by_its_name(streets: Path) -> None:
    file = streets / "rgb" / "0.jpg"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(Unreadable, match=r"^rgb: "):
        Paired(streets, modalities=["rgb", "depth"]).smaller(0, lambda height, width: 2)


def test_views_are_cropped_alike_where_the_reference_was_decoded_smaller(streets: Path) -> None:
    """Depth is the same to the bit; of the photo the box is rounded to whole pixels of the smaller one."""
    data = Paired(streets, modalities=["rgb", "depth"])
    reader = Reader(data, ViewPipeline([Augmentation(16, (0.9, 1.0))]), seed=0, colour=True)
    plan = reader.plan(0, data.ids)
    for row in range(3):
        assert plan.shrink(row, 64, 96) == 2
        whole = plan.prepare(row, data[row].modalities)
        views = reader.prepared((0, row), plan, row).views
        assert views["depth"][0].equal(whole["depth"][0])
        assert 0 < (views["rgb"][0].float() - whole["rgb"][0]).abs().mean() < 12


def test_nothing_is_decoded_smaller_whose_size_no_crop_is_drawn_on(streets: Path) -> None:
    data = Paired(streets, modalities=["rgb", "depth"])
    pipeline = ViewPipeline([Augmentation(4)], views={"depth": View("depth")})
    reader = Reader(data, pipeline, seed=0, colour=True)
    plan = reader.plan(0, data.ids)
    expected = plan.prepare(1, {"depth": data[1].modalities["depth"]})
    assert reader.prepared((0, 1), plan, 1).views["depth"][0].equal(expected["depth"][0])
