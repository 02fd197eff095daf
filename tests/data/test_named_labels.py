"""Labels from file names and from tables: which class a file has, and one line for what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.data.factory import divided, open_data
from manyview.data.named_labels import named_labels
from tests.tiny import pictures, pretrain, sensors

PETS = ["cat_1.jpg", "old_dog_12.jpg", "cat_22.jpg", "readme.jpg"]
PATTERN = r"([A-Za-z_]+)_\d+"


def test_the_first_group_in_a_files_name_is_its_class() -> None:
    labels, classes = named_labels(PETS, PATTERN)
    assert (labels.tolist(), classes) == ([0, 1, 0, -1], ("cat", "old_dog"))
    labels, classes = named_labels(["in_1/a_1.png", "in_1/b_2.png"], PATTERN)  # folders have no say
    assert (labels.tolist(), classes) == ([0, 1], ("a", "b"))
    assert named_labels(["x/a/1.png", "x/b/2.png"], "/([^/]+)/")[1] == ("a", "b")


def test_classes_have_the_same_number_in_all_splits() -> None:
    labels, classes = named_labels(["dog_1.jpg", "dog_2.jpg"], PATTERN, prefix="test/", others=["train/cat_1.jpg"])
    assert (labels.tolist(), classes) == ([1, 1], ("cat", "dog"))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("([A-Z]+)9", "labels: '([A-Z]+)9' finds no class in the 4 files, such as 'cat_1.jpg'; mend it, or give false"),
        ("(cat)", "labels: '(cat)' finds one class alone, 'cat'"),
        ("cat", "labels: 'cat' has no group; put what names the class in brackets"),
        ("(cat", "labels: '(cat' is neither a table nor a regular expression: missing )"),
        (
            "there-is-none.csv",
            "labels: there is no file 'there-is-none.csv'; give a table with the columns file and label",
        ),
    ],
)
def test_what_fits_no_file_is_one_line(pattern: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        named_labels(PETS, pattern)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def table(folder: Path, text: str) -> str:
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    return str(folder / "labels.csv")


def test_a_table_names_files_from_the_root_or_by_their_names_with_endings_or_without(tmp_path: Path) -> None:
    found = named_labels(
        ["a/1.png", "a/2.png", "b/3.png"], table(tmp_path, "file,label\n./a/1.png,x\na/2,y\n3.png,x\n")
    )
    assert (found[0].tolist(), found[1]) == ([0, 1, 0], ("x", "y"))
    of = table(tmp_path, "Filename,label\n1.png,x\n2.v3.png,y")
    assert named_labels(["1.png", "2.v3.png", "3.png"], of)[0].tolist() == [0, 1, -1]
    assert named_labels(["1", "2.v3", "3"], of)[0].tolist() == [0, 1, -1]  # samples of several sensors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,label\n1.png,x\n7.png,y\n8.png,y\n", "names 2 files that are not there, first '7.png'"),
        ("file,label\n1.png,x\n7.png,y\n", "names a file that is not there, '7.png'"),
        ("file,class\n1.png,x\n", "needs the columns file and label; it has file, class"),
        ("file,label\n1.png\n", "row 1 has 1 cells, the header 2"),
        ("file,label\n1.png,x\n2.png,x\n", "finds one class alone, 'x'"),
        ("file,label\n5.png,x\n", "'5.png' may be a/5.png and b/5.png; name it from the data's root"),
    ],
)
def test_a_table_that_does_not_fit_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        named_labels(["1.png", "2.png", "a/5.png", "b/5.png"], table(tmp_path, text))
    assert str(error.value).startswith("labels: ")
    assert said in str(error.value)


def named(folder: Path) -> Path:
    for number, file in enumerate(sorted(pictures(folder, 40).iterdir())):
        file.rename(folder / f"{'cat' if number % 2 else 'dog'}_{number}.png")
    return folder


def test_a_flat_folder_is_labelled_and_divided(tmp_path: Path) -> None:
    found = divided(str(named(tmp_path / "pets")), labels=PATTERN)
    assert found.train.classes == ("cat", "dog")
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (36, 4)


def test_a_run_takes_labels_from_names_and_refuses_a_pattern_that_fits_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pets = named(tmp_path / "pets")
    assert pretrain(tmp_path / "run", data=pets, data__labels=PATTERN, max_steps=1) == 0
    assert "kNN of the untrained encoder" in capsys.readouterr().out
    assert pretrain(tmp_path / "other", data=pets, data__labels="([0-9]{9})") == 2
    assert "data.labels" in (said := capsys.readouterr().err) or "labels: " in said
    assert "Traceback" not in said


def test_samples_of_several_sensors_are_labelled_by_name_and_a_folder_labels_is_no_sensor(tmp_path: Path) -> None:
    root = sensors(tmp_path, 4, splits=("train",))
    for file in (root / "train" / "rgb").iterdir():
        home = root / "train" / "labels"
        home.mkdir(exist_ok=True)
        (home / file.name).write_bytes(file.read_bytes())
    found = open_data(str(root), labels=r"([0-1])|([2-3])")
    assert "labels" not in found.modalities
    assert found.classes == ("0", "1", "2", "3")
