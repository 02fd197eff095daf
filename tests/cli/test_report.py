from __future__ import annotations

from pathlib import Path

import pytest

from manyview.cli.main import run as run_command
from manyview.training.run import Run
from tests.report.test_run_record import copy


def test_the_page_is_written_into_the_runs_folder(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = copy(run, tmp_path / "begun")
    assert run_command("report", [str(begun.folder)]) == 0
    assert (begun.folder / "report.html").is_file()
    assert f"wrote {begun.folder / 'report.html'} (0.0 MB)" in capsys.readouterr().out


def test_or_where_one_says(run: Run, tmp_path: Path) -> None:
    begun = copy(run, tmp_path / "begun")
    assert (
        run_command("report", [str(begun.folder), "--out", str(tmp_path / "new" / "page.html"), "--images", "20"]) == 0
    )
    assert (tmp_path / "new" / "page.html").is_file()
    assert run_command("report", [str(begun.folder), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").is_file()


def test_as_many_images_as_one_says_are_compared_over_their_copies(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run_command("report", [str(run.folder), "--out", str(page), "--images", "16", "--spread-images", "12"])
    assert "augmented views of an image, for 12 images" in page.read_text()
    with pytest.raises(ValueError, match=r"spread_images: expected 2 to 1,000,000, got 1"):
        run_command("report", [str(run.folder), "--out", str(page), "--spread-images", "1"])


def test_a_folder_named_twice_is_one_run(run: Run, tmp_path: Path) -> None:
    begun = copy(run, tmp_path / "begun")
    run_command("report", [str(begun.folder), str(begun.folder)])
    assert "runs side by side" not in (begun.folder / "report.html").read_text()


@pytest.mark.parametrize("arguments", [[], ["nowhere"], ["nowhere", "--images", "many"]])
def test_what_is_wrong_is_one_line(arguments: list[str]) -> None:
    with pytest.raises(
        ValueError, match=r"runs: is needed; give RUNS|nowhere is no run's folder|images: expected a whole number"
    ):
        run_command("report", arguments)


def test_a_page_that_cannot_be_written_is_named_as_it_was_given(run: Run, tmp_path: Path) -> None:
    begun = copy(run, tmp_path / "begun")
    long = tmp_path / f"{'a' * 251}.html"  # a name has at most 255 bytes
    with pytest.raises(ValueError, match=f"^out: {long} cannot be written to: File name too long; give another$"):
        run_command("report", [str(begun.folder), "--out", str(long)])
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"^out: .*below.html cannot be written to: {tmp_path}/file is no folder"):
        run_command("report", [str(begun.folder), "--out", str(tmp_path / "file" / "below.html")])
