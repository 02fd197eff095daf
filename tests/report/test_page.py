from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict
from html import unescape
from pathlib import Path

import pytest
import torch

from manyview.cli import main as cli
from manyview.data import Folder
from manyview.evaluate.results import Result
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
    assert sections(text) == ["scores", "map", "neighbours", "places", "curves", "diagnostics", "classes", "settings"]
    assert [title for title in FIGURES if f"<h3>{title}</h3>" not in text] == []
    assert text.count('class="plane"') == 3  # before training, the snapshot, the end


def test_several_runs_stand_side_by_side_over_the_same_images(both: Path) -> None:
    text = both.read_text()
    assert left_out(text) == []
    assert text.count('class="map"') == 2
    assert text.count(".sheet0{") == 1
    assert ".sheet1{" not in text
    assert "Settings that differ" in text


def test_a_run_of_several_views_is_shown_whole(many: Run) -> None:
    text = page([many], seconds=60)
    assert left_out(text) == []
    shown = [
        "scores",
        "across",
        "samples",
        "map",
        "neighbours",
        "places",
        "curves",
        "diagnostics",
        "classes",
        "settings",
    ]
    assert sections(text) == shown
    assert text.count("Of several views it is rgb.") == 5
    assert text.count("Of several views it is that of rgb, the query of the first contrast.") == 5
    assert "Not finished" not in text
    assert not re.search(r"<(i|b|img)[ >]", text)
    assert len(text) < 1_000_000


def test_a_prediction_is_shown_without_what_only_a_contrast_has(pairs: Path, tmp_path: Path) -> None:
    settings = {"method": "prediction", "views": "depth,L", "method__target": "depth", "decoder__side": 4}
    assert pretrain(tmp_path / "run", "--quiet", data=pairs, **settings) == 0
    text = page([Run(tmp_path / "run")], seconds=60)
    assert left_out(text) == []
    assert sections(text) == [
        "scores",
        "samples",
        "map",
        "neighbours",
        "places",
        "curves",
        "diagnostics",
        "classes",
        "settings",
    ]
    assert "Of several views it is L." in text  # the first that has an encoder
    for title in (*FIGURES[:1], *FIGURES[4:7]):
        assert f"<h3>{title}</h3>" not in text
    assert f"<h3>{FIGURES[1]}</h3>" in text


def test_names_with_markup_in_them_are_text(report: Path) -> None:
    text = report.read_text()
    assert "alert(" in text
    assert not re.search(r"<(img|b)[ >]", text)
    assert len(re.findall("<script", text)) == 2  # our own, and its values


def test_the_page_asks_for_nothing_from_anywhere(report: Path) -> None:
    text = report.read_text()
    assert "default-src 'none'" in unescape(text)
    links = re.findall(r'(?:src|href|srcset|action)="([^"]*)', text)
    assert links
    assert all(link.startswith(("#", "data:image/jpeg;base64,")) for link in links)
    assert set(re.findall(r"url\((\w+):", text)) == {"data"}


def test_without_labels_the_page_comes_without_classes_and_its_map_is_of_training_images(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert pretrain(folder, "--quiet", data=pictures(tmp_path / "data", 90), max_steps=2) == 0
    text = page([Run(folder)], seconds=60)
    assert left_out(text) == []
    assert "81 of the 81 training images" in text
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


def test_after_training_a_page_takes_a_share_of_the_time_and_says_what_completes_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def written(runs: object, path: Path, *, seconds: float, lacking: Callable[[float], object], **_: object) -> Path:
        asked.append(seconds)
        if seconds < 100:
            lacking(41.2)
            lacking(90.5)
        return path

    monkeypatch.setattr("manyview.report.page.write", written)
    said: list[str] = []
    for trained in (10.0, 4000.0, 1e6):
        here = copy(run, tmp_path / str(trained))
        with (here.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 1000, "epoch": 1, "seconds": trained}) + "\n")
        after_training(here, say=said.append, warn=pytest.fail)
    assert asked == [8.0, 200.0, 600.0]  # a twentieth, within bounds
    assert len(said) == 4
    assert said[1] == (
        "2 figures would take longer than 8 s, 5% of the training's time (but 8 to 600 s); to complete the report: "
        f"manyview report {tmp_path / '10.0'} --seconds 91"
    )
    after_training(here, say=said.append, warn=pytest.fail, seconds=1.0)
    assert said[-1].startswith("2 figures left out to end on time; to complete the report: manyview report ")


def test_after_training_whatever_goes_wrong_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    warned: list[str] = []
    after_training(copy(run, tmp_path / "a"), say=said.append, warn=warned.append)
    assert (len(said), warned) == (1, [])
    assert (tmp_path / "a" / "report.html").is_file()
    monkeypatch.setattr("manyview.report.page.title", lambda *_: 1 / 0)
    after_training(copy(run, tmp_path / "b"), say=said.append, warn=warned.append)
    assert len(warned) == 1
    assert "division by zero" in warned[0]
    assert "\n" not in warned[0]


def test_what_is_not_a_page_of_ours_is_left_as_it_is(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.report.page.page", lambda *_, **__: pytest.fail("it has been made"))
    mine, link, pipe = tmp_path / "mine.html", tmp_path / "link.html", tmp_path / "pipe.html"
    mine.write_text("<!doctype html><title>about manyview</title>")
    link.symlink_to(tmp_path / "elsewhere.html")
    os.mkfifo(pipe)
    for path in (mine, link, pipe, tmp_path):
        with pytest.raises(ValueError, match=f"^out: {path} is there already, and does not say that"):
            write([run], path)
    assert mine.read_text() == "<!doctype html><title>about manyview</title>"
    assert link.is_symlink()
    assert not (tmp_path / "elsewhere.html").exists()


def test_an_empty_file_and_an_older_page_are_written_over(run: Run, tmp_path: Path) -> None:
    begun, path = copy(run, tmp_path / "begun"), tmp_path / "page.html"
    path.touch()
    write([begun], path)
    assert '<meta name="generator" content="manyview 0' in path.read_text()[:1000]
    path.write_text(path.read_text() + "older")
    write([begun], path)
    assert not path.read_text().endswith("older")


def test_a_link_to_a_page_of_ours_is_not_followed(run: Run, tmp_path: Path) -> None:
    begun, link = copy(run, tmp_path / "begun"), tmp_path / "link.html"
    link.symlink_to(write([begun], tmp_path / "page.html"))
    with pytest.raises(ValueError, match=r"link.html is there already"):
        write([begun], link)


def test_a_file_that_appears_while_the_page_is_made_stays(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*_: object, **__: object) -> str:
        (tmp_path / "page.html").write_text("mine")
        return "a page"

    monkeypatch.setattr("manyview.report.page.page", slowly)
    with pytest.raises(ValueError, match=r"page.html is there already"):
        write([run], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"


ODD = [
    [1], "text", None, {"step": "1"}, {"step": -1}, {"step": True}, {"step": 10**40}, {"step": 1.5}, {"loss": 1},
    {"step": 1, "epoch": "one", "seconds": [1], "loss": "low", "knn": {"a": 1}, "health": ["healthy"]},
    {"step": 2, "epoch": -1, "seconds": "NaN", "loss": 10**400, "knn": "high", "health": 3, "rank": {}},
    {"step": 3, "epoch": 1e-300, "seconds": 1e308, "loss": 1e308, "knn": True, "not_finite": 3, "negatives": "all"},
    {"step": 4, "epoch": 0, "seconds": None, "loss": None, "knn": None, "not_finite": {"loss": "nan"}},
    {"step": 5, "health": "<script>", "loss": -1e299, "gradient_norm": 1e299, "rank": -5, "rank_limit": 0},
]  # fmt: skip


def test_odd_values_in_the_metrics_are_left_out_and_said(run: Run, tmp_path: Path) -> None:
    odd = copy(run, tmp_path / "odd")
    lines = [json.dumps(line) for line in ODD] + ["[" * 100_000, '{"step": 9, "loss": NaN}', "\udc80"]
    lines += [json.dumps({"step": number, "loss": 1.0, "negatives": -5.0}) for number in range(10, 2000, 200)]
    (odd.folder / "metrics.jsonl").write_text("\n".join(lines), errors="surrogateescape")
    text = page([odd])
    assert sections(text) == ["scores", "map", "curves", "diagnostics", "settings"]
    (said,) = [line for line in left_out(text) if "metrics.jsonl" in line]
    assert "Part of 17 lines of dcl&#x27;s metrics.jsonl</strong> is left out: it is not what training writes" in said
    assert "<h3>Loss</h3>" in text


@pytest.mark.parametrize(
    "text",
    ["[1]", "[[]]", "null", '[{"protocol": "knn"}]', "[" * 100_000, "\udc80", '{"a": ', "1" * 5000, "[{}]"],
)
def test_odd_results_are_left_out_and_said(run: Run, tmp_path: Path, text: str) -> None:
    odd = copy(run, tmp_path / "odd")
    shutil.copy(run.folder / "metrics.jsonl", odd.folder)
    (odd.folder / "results.json").write_text(text, errors="surrogateescape")
    made = page([odd])
    assert "kNN, last epoch" in made
    assert any("The evaluation of dcl" in line for line in left_out(made))


def test_results_with_odd_scores_are_left_out_and_said(run: Run, tmp_path: Path) -> None:
    result = Result("knn", {"k": 20}, {"top1": 0.5}, {"name": "scenes"}, 0, {"checksum": "a"}, "0", "now")
    odd_values = {"scores": {"top1": "high"}, "settings": 3, "data": [], "untrained": {"top1": []}}
    for number, (name, value) in enumerate(odd_values.items()):
        odd = copy(run, tmp_path / str(number))
        shutil.copy(run.folder / "metrics.jsonl", odd.folder)
        (odd.folder / "results.json").write_text(json.dumps([{**asdict(result), name: value}]))
        made = page([odd])
        assert "kNN, last epoch" in made
        assert any("The evaluation of dcl" in line for line in left_out(made))


def test_a_folder_and_labels_that_are_no_utf8_are_shown(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9<b>"))
    try:
        (Path(os.fsdecode(os.fsencode(data) + b"/\xe9<i>"))).mkdir(parents=True)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    pictures(data, 160, classes=2)
    for number, file in enumerate(sorted(data.glob("class1/*"))):
        file.rename(Path(os.fsdecode(os.fsencode(data) + b"/\xe9<i>/%d\xff.png" % number)))
    (data / "class1").rmdir()
    assert pretrain(tmp_path / "run", "--quiet", data=data, max_steps=2) == 0
    (tmp_path / "run").rename(folder)
    path = write([Run(folder)], folder / "report.html", seconds=60)
    text = path.read_text(encoding="utf-8")
    assert "caf\ufffd&lt;b&gt;" in text
    assert "\\xe9&lt;i&gt;" in text
    assert not re.search(r"<(i|b)>", text)
    assert left_out(text) == []


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes in the middle of every page, and a training would note it and go on."""

    def ctrl_c(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "a page that goes on"

    monkeypatch.setattr("manyview.report.page.title", ctrl_c)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_leaves_the_old_page_whole(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = copy(run, tmp_path / "begun")
    old = '<meta name="generator" content="manyview 0.0">'
    (begun.folder / "report.html").write_text(old)
    before = sorted(begun.folder.iterdir())
    assert cli.main(["report", str(begun.folder)]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"
    assert (begun.folder / "report.html").read_text() == old
    assert sorted(begun.folder.iterdir()) == before


@pytest.mark.usefixtures("interrupted")
def test_after_training_ctrl_c_ends_the_page_and_not_the_run(run: Run, tmp_path: Path) -> None:
    begun, warned, noted = copy(run, tmp_path / "begun"), list[str](), list[int]()
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))  # as training does
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            after_training(begun, say=warned.append, warn=warned.append)
        assert signal.getsignal(signal.SIGINT) not in (before, signal.default_int_handler)
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.value.exit_code == 130  # type: ignore[attr-defined]
    assert warned == [f"no report was written: interrupted; try `manyview report {begun.folder}`"]
    assert noted == []


def test_the_callers_random_numbers_are_left_alone(run: Run) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    page([run], seconds=0.1)
    assert torch.equal(torch.get_rng_state(), before)
