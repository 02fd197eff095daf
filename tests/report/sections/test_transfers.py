from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image

from manyview.evaluate.results import Result, put
from manyview.report.sections.transfers import MAX_ROWS, transfers
from manyview.transfer.records import About, write_about

RESULT = Result(
    "segment", {"decoder": "unet"}, {"miou": 0.5, "iou <b>": 0.25},
    {"name": "<i>street", "train": 8, "test": 4, "classes": ["<b>"], "held_out": True}, 0,
    {"name": "run", "encoder": "patchnet", "size": 32, "trained": True}, "0", "2026-01-01T00:00:00+00:00",
    untrained={"miou": 0.3, "iou <b>": 0.25}, supervised={"miou": 0.75},
)  # fmt: skip


def filled(folder: Path, result: Result = RESULT) -> Path:
    put(folder, result)
    for kind in ("trained", "untrained"):
        home = folder / f"segment-{kind}"
        home.mkdir(exist_ok=True)
        write_about(home, About(result.key, kind, ""))
        Image.new("RGB", (40, 30)).save(home / "predictions.png")
    return folder


def test_scores_stand_beside_the_baselines_and_pictures_below(tmp_path: Path) -> None:
    text = transfers([("run", filled(tmp_path))])
    assert text is not None
    assert ">50.0<small> +20.0" in text
    assert ">75.0<" in text
    assert text.count("data:image/jpeg;base64,") == 2
    assert "Predictions, trained" in text
    assert "8 training images, 4 held out, 1 classes" in text


def test_what_a_loss_did_stands_below_its_pictures_and_settings_as_they_are_typed(tmp_path: Path) -> None:
    made = replace(RESULT, settings={"frozen": True, "ignore": [0, 255], "lr": None})
    home = filled(tmp_path, made) / "segment-trained"
    write_about(home, About(made.key, "trained", "", "the loss rose from 1 to 2: the learning rate is too high"))
    text = transfers([("run", tmp_path)])
    assert text is not None
    assert "The loss rose from 1 to 2: the learning rate is too high. Test pictures" in text
    assert "frozen true, ignore 0 255<" in text


def test_names_are_text(tmp_path: Path) -> None:
    text = transfers([("run", filled(tmp_path))])
    assert text is not None
    assert "<b>" not in text
    assert "<i>" not in text
    assert "iou &lt;b&gt;" in text


def test_scores_of_many_classes_are_folded(tmp_path: Path) -> None:
    many = {f"iou {number}": 0.1 for number in range(2 * MAX_ROWS)}
    text = transfers([("run", filled(tmp_path, replace(RESULT, scores={"miou": 0.5, **many})))])
    assert text is not None
    assert f"{MAX_ROWS + 1} more scores" in text


def test_pictures_of_other_results_are_not_shown(tmp_path: Path) -> None:
    filled(tmp_path)
    write_about(tmp_path / "segment-trained", About("another", "trained", ""))
    text = transfers([("run", tmp_path)])
    assert text is not None
    assert text.count("data:image/jpeg") == 1


def test_without_results_there_is_no_such_section(tmp_path: Path) -> None:
    assert transfers([("run", tmp_path)]) is None
