"""Tables of paths: columns are modalities, empty cells are missing ones, label and split are what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyarrow import parquet, table

from manyview.core.errors import UserError
from manyview.data.check import as_text, open_splits
from manyview.data.dataset import Dataset, Unreadable
from manyview.data.factory import open_data
from manyview.data.selection import missing
from manyview.data.survey import survey
from manyview.data.table import Table, table_splits
from tests.data.test_paired import put

COLUMNS = {
    "depth": ["d/0.png", "", "d/2.png", "d/3.png"],
    "rgb": ["rgb/0.jpg", "rgb/1.jpg", "rgb/2.jpg", "gone.jpg"],
    "label": ["cat", "dog", "", "cat"],
    "split": ["train", "training", "train", "test"],
    "taken": ["monday", "", "tuesday", "friday"],
    "mask": ["rgb/0.jpg", "", "", ""],
}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    for number in range(3):
        put(tmp_path / "rgb" / f"{number}.jpg")
        put(tmp_path / "d" / f"{number}.png", "depth")
    put(tmp_path / "d" / "3.png", "depth")
    return write(tmp_path / "pairs.csv", COLUMNS)


def write(path: Path, columns: dict[str, list[str]], between: str = ",") -> Path:
    lines = [columns.keys(), *zip(*columns.values(), strict=True)]
    path.write_text("\n".join(between.join(line) for line in lines) + "\n")
    return path


def test_columns_are_modalities_and_empty_cells_missing_ones(pairs: Path) -> None:
    data = Table(pairs)
    assert isinstance(data, Dataset)
    assert data.modalities == ("rgb", "depth")
    assert data.left_out == ("mask",)
    assert [sorted(data[row].modalities) for row in range(3)] == [["depth", "rgb"], ["rgb"], ["depth", "rgb"]]
    assert missing(data) == {"depth": 1}
    assert [data.name(row) for row in range(3)] == ["rgb/0.jpg", "rgb/1.jpg", "rgb/2.jpg"]
    assert data[0].modalities["depth"].unique().tolist() == [1234.0]
    assert Table(pairs, modalities=("mask", "rgb")).modalities == ("mask", "rgb")


def test_labels_and_splits_are_those_of_the_columns(pairs: Path) -> None:
    train, test = Table(pairs), Table(pairs, split="test")
    assert train.classes == test.classes == ("cat", "dog")
    assert train.labels is not None
    assert test.labels is not None
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, -1], [0])
    assert len(Table(pairs, split=None)) == 4
    assert Table(pairs, split=None).ids.tolist() == train.ids.tolist() + test.ids.tolist()
    assert Table(pairs, labels=False).labels is None
    assert table_splits(str(pairs)) == ["train", "test"]
    assert Table(pairs, modalities=("mask", "rgb")).ids.tolist() == train.ids.tolist()


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_any_of_the_usual_separators_will_do(tmp_path: Path, between: str) -> None:
    path = write(
        tmp_path / "pairs.csv", {"image": ["a, b.png" if between != "," else "a.png"], "x": ["a.npy"]}, between
    )
    assert Table(path).modalities == ("image", "x")


def test_parquet_is_the_same(pairs: Path) -> None:
    columns = {name: [cell or None for cell in cells] for name, cells in COLUMNS.items()}
    parquet.write_table(table(columns), pairs.with_suffix(".parquet"))
    first, second = Table(pairs), open_data(pairs.with_suffix(".parquet"))
    assert first.ids.tolist() == second.ids.tolist()
    assert (first.modalities, first.classes) == (second.modalities, second.classes)


def test_check_says_the_same_of_a_table_as_of_folders(pairs: Path) -> None:
    splits, absent = open_splits(str(pairs))
    text = as_text("pairs", survey(splits), absent)
    assert "samples     4: train 3, test 1" in text
    assert "depth is missing in 1 of 4 samples: rgb/1.jpg" in text
    assert "left out    mask: label maps by name" in text
    assert "gone.jpg: rgb: the file is gone, or a link that leads nowhere" in text


def test_a_path_that_leads_nowhere_is_unreadable(pairs: Path) -> None:
    with pytest.raises(Unreadable, match="rgb: the file is gone"):
        Table(pairs, split="test")[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column of .* holds paths"),
        ("a,b\n1,2\n", "no column of .* holds paths of images or arrays; its columns are a, b"),
        ("rgb,rgb\na.png,b.png\n", "every column needs a name of its own"),
        ("rgb,depth\na.png\n", "row 1 has 1 cells, the header 2"),
        ("rgb,depth\na.png,b.png\na.png,b.png\n", "two rows name the same files"),
        ("rgb,depth,split\na.png,b.png,val\n", "no 'train'; .* has val; give one of those"),
    ],
)
def test_what_is_no_table_of_paths_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=reason) as error:
        open_data(tmp_path / "a.csv")
    assert "\n" not in str(error.value)


def test_columns_and_splits_that_are_not_there_are_named(pairs: Path) -> None:
    with pytest.raises(UserError, match="no column of paths named 'taken'; there are depth, rgb, mask"):
        Table(pairs, modalities=("taken",))
    with pytest.raises(UserError, match=r"no 'unlabeled'; .* has test, train"):
        Table(pairs, split="unlabeled")
    plain = write(pairs.parent / "plain.csv", {"rgb": ["rgb/0.jpg"], "depth": ["d/0.png"]})
    with pytest.raises(UserError, match="has no column 'split'; leave the split out"):
        Table(plain, split="test")
    with pytest.raises(UserError, match="no column 'label'"):
        Table(plain, labels=True)


@pytest.mark.parametrize(("name", "content"), [("a.csv", b"\xff\xfe\x00rgb"), ("a.parquet", b"PAR1 and no more")])
def test_a_damaged_table_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"cannot be read as a table|is no Parquet file") as error:
        Table(tmp_path / name)
    assert "\n" not in str(error.value)


def test_without_pyarrow_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'manyview\[parquet\]'"):
        Table(tmp_path / "a.parquet")
