from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path

import pytest
import torch

from manyview.data import Folder
from manyview.report import after_training, write
from manyview.report.page import page
from manyview.training.run import Run
from tests.report.test_run_record import copy
from tests.tiny import pictures, pretrain

FIGURES = [
    "Entropy on held-out images", "Agreement of augmented views", "Variance of augmented views",
    "Spectrum of the features",
    "Coupling by batch size", "Weights of positives and negatives", "A query&#x27;s neighbourhood",
    "Purity of neighbours", "Confusion of classes",
]  # fmt: skip


def left_out(text: str) -> list[str]:
    return re.findall('class="left-out">(.*?)</p>', text)


def sections(text: str) -> list[str]:
    return re.findall('<section id="([a-z]*)"', text)


def test_a_finished_run_is_shown_whole(report: Path) -> None:
    text = report.read_text()
    assert left_out(text) == []
    assert sections(text) == ["scores", "map", "neighbours", "curves", "diagnostics", "classes", "settings"]
    assert [title for title in FIGURES if f"<h3>{title}</h3>" not in text] == []
    assert text.count('class="plane"') == 3  # before training, the snapshot, the end


def test_several_runs_stand_side_by_side_over_the_same_images(both: Path) -> None:
    text = both.read_text()
    assert left_out(text) == []
    assert text.count('class="map"') == 2
    assert text.count(".sheet0{") == 1
    assert ".sheet1{" not in text
    assert "Settings that differ" in text


def test_names_with_markup_in_them_are_text(report: Path) -> None:
    text = report.read_text()
    assert "alert(" in text
    assert not re.search(r"<(img|b)[ >]", text)
    assert len(re.findall("<script", text)) == 2  # our own, and its values


def test_the_page_asks_for_nothing_from_anywhere(report: Path) -> None:
    text = report.read_text()
    assert "default-src 'none'" in unescape(text)
    assert set(re.findall(r'(?:src|href|srcset|action)="(.)', text)) == {"#"}
    assert set(re.findall(r"url\((\w+):", text)) == {"data"}


def test_without_labels_the_page_comes_without_scores_and_classes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert pretrain(folder, "--quiet", data=pictures(tmp_path / "data", 30), max_steps=2) == 0
    text = page([Run(folder)], seconds=60)
    (reason,) = left_out(text)
    assert reason.endswith("is left out: the data has no labels, or kNN was turned off")
    assert "classes" not in sections(text)
    assert "The images have no labels" in text


def test_of_data_that_has_moved_away_the_rest_is_shown(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(re.sub("(?m)^  name: .*evil.*$", "  name: /gone/away", config.read_text()))
    text = page([Run(tmp_path / "run")])
    assert sections(text) == ["scores", "map", "curves", "diagnostics", "settings"]
    assert all("/gone/away" in reason for reason in left_out(text))


def test_a_run_that_has_just_begun_has_a_page(run: Run, tmp_path: Path) -> None:
    text = page([copy(run, tmp_path / "begun")])
    assert "Not finished" in text
    assert any("has no encoder and no checkpoint yet" in reason for reason in left_out(text))


def test_without_checkpoints_the_encoder_is_still_shown(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    text = page([Run(tmp_path / "run")], seconds=60)
    assert text.count('class="map"') == 1
    assert "<h3>Agreement of augmented views</h3>" in text
    assert len(left_out(text)) == 3
    assert all("has no checkpoint" in reason for reason in left_out(text))


def test_an_encoder_that_has_diverged_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = lambda *_, **__: (torch.full((40, 8), torch.nan), torch.zeros(40))  # noqa: E731
    monkeypatch.setattr("manyview.report.run_embeddings.features", nothing)
    text = page([run])
    assert any("NaN or infinite" in reason for reason in left_out(text))


def test_what_a_slow_encoder_would_take_too_long_for_is_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.report.run_embeddings._seconds_per_image", lambda _: 0.06)  # a ResNet-50 on one core
    text = page([run])
    assert text.count('class="map"') == 1
    assert len(left_out(text)) == 5
    assert all("embedding an image takes 60 ms here" in reason for reason in left_out(text))


def test_data_of_ones_own_is_given(evil: Path, tmp_path: Path) -> None:
    from manyview import pretrain as learn

    own = Folder(evil, split=None, labels=False)
    small = {"options": {"widths": [8, 16], "blocks": [1, 1]}}
    made = learn(
        data=own, out=str(tmp_path / "own"), encoder=small, max_steps=2, batch_size=8, quiet=True, evaluate_every=0
    )
    assert any("data set of your own" in reason for reason in left_out(page([made], seconds=60)))
    assert 'class="map"' in page([made], own=own, seconds=60)


def test_the_file_is_bounded_whatever_the_data(report: Path, both: Path) -> None:
    assert report.stat().st_size < 1_000_000
    assert both.stat().st_size < 1_500_000


def test_what_is_no_run_or_a_wrong_number_is_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is no run's folder, it has no config\.yaml"):
        write([Run(tmp_path)], tmp_path / "report.html")
    with pytest.raises(ValueError, match="images: expected 16 to 5000, got 3"):
        write([run], tmp_path / "report.html", images=3)
    with pytest.raises(ValueError, match="at least one run"):
        write([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_after_training_whatever_goes_wrong_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    warned: list[str] = []
    after_training(copy(run, tmp_path / "a"), say=said.append, warn=warned.append)
    assert (len(said), warned) == (1, [])
    assert (tmp_path / "a" / "report.html").is_file()
    monkeypatch.setattr("manyview.report.page.header", lambda *_: 1 / 0)
    after_training(copy(run, tmp_path / "b"), say=said.append, warn=warned.append)
    assert len(warned) == 1
    assert "division by zero" in warned[0]
    assert "\n" not in warned[0]


def test_the_callers_random_numbers_are_left_alone(run: Run) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    page([run], seconds=0.1)
    assert torch.equal(torch.get_rng_state(), before)
