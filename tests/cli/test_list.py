"""`manyview list`: what there is, by name."""

from __future__ import annotations

import pytest

from manyview.cli import main as cli
from manyview.cli.list import LISTS
from tests.cli.said import one_line


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("methods", "cacr_moco"), ("losses", "info_nce"), ("augmentations", "moco-v2"), ("encoders", "timm/resnet18"),
        ("data", "cifar10"), ("recipes", "demo"), ("heads", "mlp"), ("memories", "queue"), ("momentum", "cosine"),
        ("views", "DbDr"),
    ],
)  # fmt: skip
def test_lists_name_what_there_is(what: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", what]) == 0
    assert name in [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_lists_can_be_narrowed_and_an_unknown_one_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "methods", "moco"]) == 0
    assert all("moco" in line.split()[0] for line in capsys.readouterr().out.splitlines())
    assert cli.main(["list", "methods", "zzz"]) == 2
    one_line(capsys, "no name has 'zzz' in it")
    assert cli.main(["list", "metods"]) == 2
    one_line(capsys, "there is no list of 'metods'; did you mean 'methods'?")


def test_without_a_name_it_says_which_lists_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"manyview list {name}" for name in LISTS]


@pytest.mark.parametrize("what", [name for name in LISTS if name != "encoders"])
def test_what_is_said_of_a_name_is_whole(what: str) -> None:
    assert not [about for about in LISTS[what]().values() if about.endswith((":", ","))]


def test_encoders_are_few_lines_until_a_word_narrows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "encoders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 20
    assert lines[-1].endswith("manyview list encoders WORD")
    assert cli.main(["list", "encoders", "resnet18"]) == 0
    assert "timm/resnet18" in capsys.readouterr().out.split()
