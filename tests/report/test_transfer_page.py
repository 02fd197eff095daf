from __future__ import annotations

from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.report.transfer_page import write_transfer_page
from tests.report.sections.test_transfers import filled


def test_the_page_is_one_file_that_needs_no_network_and_is_written_again(tmp_path: Path) -> None:
    first = write_transfer_page(filled(tmp_path), "<u>run").read_text()
    assert write_transfer_page(tmp_path, "<u>run").read_text() == first
    assert first.startswith("<!doctype html>")
    assert "http://" not in first.replace("http://www.w3.org", "")
    assert "<u>run" not in first
    assert "Predictions, untrained" in first


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(UserError, match="out"):
        write_transfer_page(tmp_path, "run")
    assert (tmp_path / "report.html").read_text() == "mine"


def test_a_folder_without_results_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results"):
        write_transfer_page(tmp_path, "run")
