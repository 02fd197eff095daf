"""A run's folder: it belongs to one run and one process, and its encoders are loaded from it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

import manyview
from manyview.cli.main import main
from manyview.config.resolve import resolve
from manyview.core import distributed
from manyview.core.lock import locked
from manyview.training import run_data
from manyview.training.checkpoint import Checkpoints
from manyview.training.launch import resumed
from manyview.training.run import ANEW, Run, RunFolder, checkpoints, read_metrics, resume_command
from tests.tiny import pictures, pretrain, sensors
from tests.training.whole_runs import LabelledPairs, at_step, differences_but_checkpoints, stop_with


def test_how_to_go_on_is_told_for_every_way_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve({}, {"data.name": "photos", "out": "my runs/a"})
    assert resume_command(config, 1) == "manyview pretrain --resume 'my runs/a'"
    assert resume_command(config, 2) == "torchrun --nproc-per-node 2 -m manyview pretrain --resume 'my runs/a'"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(distributed, "world_size", lambda: 8)
    assert resume_command(config, 8).startswith("torchrun --nnodes 2 --nproc-per-node 4 -m manyview pretrain")
    own = resolve({}, {"data.name": "(own)", "out": "a"})
    assert resume_command(own, 1) == "manyview.pretrain(data=..., resume='a'), with the same data"


def test_a_run_of_which_nothing_was_saved_says_that_it_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, max_steps=2) == 0
    assert ANEW not in capsys.readouterr().err
    (tmp_path / "encoder.safetensors").unlink()
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    assert main(["pretrain", "--resume", str(tmp_path)]) == 0
    assert ANEW in capsys.readouterr().err


def test_other_settings_are_refused_with_what_differs(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert pretrain(whole, health_every=2, lr=0.5) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "optimizer.lr: 0.02 -> 0.5" in said
    assert f"manyview pretrain --resume {whole}" in said
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_settings_may_change_as_long_as_nothing_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", encoder="no_such") == 2
    assert "there is no encoder 'no_such'" in capsys.readouterr().err
    assert pretrain(tmp_path / "run", max_steps=1) == 0


def test_a_complete_run_says_so_and_nothing_changes(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert pretrain(whole, health_every=2) == 0
    assert main(["pretrain", "--resume", str(whole)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.startswith(f"{whole} is complete; nothing is left to do") for line in said] == [True, True]
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_run_that_was_begun_without_normalisation_does_not_go_on_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = tmp_path / "run", sensors(tmp_path / "street", 8)
    assert pretrain(run, data=data, method="cmc", views="rgb,depth", max_steps=1) == 0
    kept = checkpoints(run)
    state, file = kept.latest() or ({}, Path())
    del state["settings"]["data.statistics"]  # as an earlier version left it
    file.unlink()
    kept.save(state, 1)
    for encoder in run.glob("encoder*.safetensors"):
        encoder.unlink()
    settings = yaml.safe_load((run / "config.yaml").read_text())
    measured = settings["data"].pop("statistics")
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    capsys.readouterr()
    assert main(["pretrain", "--resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "an earlier version began the run without normalising depth; to go on so write `statistics: {" in said
    assert measured["depth"]["mean"] != [0.0]
    settings["data"] |= yaml.safe_load(said.split("`")[1])
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    assert main(["pretrain", "--resume", str(run)]) == 0
    assert Run(run).config.data["statistics"]["depth"] == {"mean": [0.0], "std": [1.0]}


def test_checkpoints_without_their_settings_are_not_taken_for_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Checkpoints(tmp_path / "run" / "checkpoints").save({"step": 3}, 3)
    assert pretrain(tmp_path / "run") == 2
    assert "holds a run without its config.yaml" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_passed_over_and_the_end_is_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 8, stop_with(signal.SIGTERM))
        assert pretrain(out, health_every=2) == 143
    newest = out / "checkpoints" / "step-000000008.pt"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    capsys.readouterr()
    assert pretrain(out, health_every=2) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"warning: passed over a checkpoint: {newest}: is damaged")
    assert "going on after step 6 of 12" in said.out
    assert differences_but_checkpoints(whole, out) == []


def test_a_second_process_says_that_the_folder_is_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from manyview.core.lock import locked; from pathlib import Path\n" + (
        "with locked(Path(sys.argv[1])): print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        assert pretrain(tmp_path) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"is being trained by process {other.pid}" in said
        assert other.stdin is not None
        other.stdin.close()
    with locked(tmp_path):
        pass


def test_other_data_than_a_run_was_begun_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = pictures(tmp_path / "data", 40), tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 1, stop_with(signal.SIGTERM))
        assert pretrain(out, data=folder) == 143
    before = (out / "checkpoints" / "step-000000001.pt").read_bytes()
    (folder / "0.png").rename(tmp_path / "0.png")
    capsys.readouterr()
    assert pretrain(out, data=folder) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has changed: 36 images then, 36 others now; give another --out, or bring the data back" in said
    assert (out / "checkpoints" / "step-000000001.pt").read_bytes() == before
    (tmp_path / "0.png").rename(folder / "0.png")
    assert pretrain(out, data=folder) == 0
    (folder / "0.png").rename(folder / "other.png")  # and so it is with a complete run
    assert pretrain(out, data=folder) == 2
    assert "36 images then, 36 others now" in capsys.readouterr().err


def test_an_image_replaced_in_place_is_refused_and_a_copy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = pictures(tmp_path / "data", 40), tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 1, stop_with(signal.SIGTERM))
        assert pretrain(out, data=folder) == 143
    before = (folder / "1.png").read_bytes()  # none of the few whose pixels are looked at
    Image.new("RGB", (32, 32)).save(folder / "1.png")
    assert pretrain(out, data=folder) == 2
    assert "36 images then, 36 others now" in capsys.readouterr().err
    (folder / "1.png").write_bytes(before)
    os.utime(folder / "1.png", (1e9, 1e9))
    assert pretrain(out, data=folder) == 0
    assert "warning: the image files are of another time than before: copies, or others" in capsys.readouterr().err


def test_a_complete_run_needs_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path, max_steps=1) == 0
    (tmp_path / "checkpoints" / "step-000000001.pt").write_text("cut off")
    assert pretrain(tmp_path, max_steps=1) == 0
    assert "nothing is left to do" in capsys.readouterr().out


def test_a_run_of_two_encoders_is_complete_when_both_are_there(
    two_views: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = shutil.copytree(two_views.folder, tmp_path / "run"), LabelledPairs()
    before = {path.name: path.read_bytes() for path in out.glob("encoder*.safetensors")}
    assert sorted(before) == ["encoder-depth.safetensors", "encoder-image.safetensors"]
    config = resumed(out, {})
    folder = RunFolder(config, run_data.open_data(config, data))
    assert folder.complete()
    manyview.pretrain(data, resume=out)
    assert (
        f"{out} is complete; nothing is left to do. Its encoders {out / 'encoder-depth.safetensors'}, "
        in capsys.readouterr().out
    )
    for name in before:
        (out / name).unlink()
        assert not folder.complete()
        manyview.pretrain(data, resume=out)
        assert "going on after step 4 of 4" in capsys.readouterr().out
        assert {path.name: path.read_bytes() for path in out.glob("encoder*.safetensors")} == before


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path, max_steps=1) == 0
    (tmp_path / "encoder.safetensors").unlink()
    kept = Checkpoints(tmp_path / "checkpoints")
    kept.save({"format": 2, "progress": {"step": 5}}, 5)  # a whole one of this version lies before it
    capsys.readouterr()
    assert pretrain(tmp_path, max_steps=1) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "step-000000005.pt: is of format 2, this version reads 4; go on with the version that began" in said
    assert len(list(kept.folder.iterdir())) == 2


def test_checkpoints_that_are_all_damaged_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path, max_steps=1) == 0
    (tmp_path / "encoder.safetensors").unlink()
    (tmp_path / "checkpoints" / "step-000000001.pt").write_text("cut off")
    capsys.readouterr()
    assert pretrain(tmp_path, max_steps=1) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "step-000000001.pt" in said


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert pretrain(folder, "--quiet", max_steps=3) == 0
    return Run(folder)


def test_a_run_tells_its_settings_metrics_and_scores(run: Run) -> None:
    assert run.config.batch_size == 8
    assert [line["step"] for line in run.metrics] == [0, 1, 3, 3]
    assert [step for step, _ in run.knn] == [0, 3]
    assert all(0 <= score <= 1 for _, score in run.knn)


def test_a_folder_without_metrics_has_none(tmp_path: Path) -> None:
    assert Run(tmp_path).metrics == []
    assert Run(tmp_path).knn == []


def test_what_training_does_not_write_is_left_out_of_the_metrics_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sound = {"step": 1, "epoch": 1, "seconds": 0.5, "loss": None, "health": "healthy", "not_finite": {"loss": "nan"}}
    odd = {"step": 2, "epoch": -1, "seconds": "long", "loss": [1], "knn": 10**400, "health": 3, "rank": 2.5}
    path.write_text("\n".join([json.dumps(sound), json.dumps(odd), "[" * 100_000, '{"loss": 1}', '{"step": 3, "lo']))
    assert read_metrics(path) == ([sound, {"step": 2, "rank": 2.5}], 4)
    assert read_metrics(tmp_path / "none") == ([], 0)
    assert Run(tmp_path).knn == []


def content(folder: Path) -> dict[str, bytes]:
    """All that is below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(said: pytest.CaptureFixture[str]) -> str:
    """What was said, which must be one line that is no traceback."""
    line = said.readouterr().err
    assert line.count("\n") == 1, line
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize(
    "files",
    [
        {"config.yaml": "name: my project", "lock": "mine", "metrics.jsonl": "{}\n"},
        {"notes.txt": "mine"},
        {"config.yaml": "data: scenes"},  # a recipe of somebody's own
        {"lock": "1 host", "metrics.jsonl": "{}\n"},
        {"config.yaml": "name: my project", "checkpoints/a.pt": "mine"},
        {"config.yaml": "name: my project", "encoder.safetensors": "mine"},
        {"encoder.safetensors": "mine"},
        {"checkpoints": "mine"},
    ],
)
def test_a_folder_that_is_not_empty_and_holds_no_run_is_refused_and_left_as_it_is(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = content(tmp_path)
    assert pretrain(tmp_path) == 2
    assert str(tmp_path) in refusal(capsys)
    assert content(tmp_path) == before


def test_a_folder_of_a_run_that_was_killed_at_its_very_beginning_is_taken(tmp_path: Path) -> None:
    with locked(tmp_path):
        pass
    (tmp_path / ".hidden").write_text("")
    assert pretrain(tmp_path, max_steps=1) == 0


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("temperature: 0.1", "temperature: 0.5"), ("seed: 0", "seed: 1"), ("lr: 0.02", "lr: 0.5"),
        ("batch_size: 8", "batch_size: 16"), ("epochs: 2", "epochs: 3"), ("precision: fp32", "precision: bf16"),
        ("size: 32", "size: 48"),
    ],
)  # fmt: skip
def test_settings_edited_after_a_run_has_begun_are_refused_with_what_may_change(
    old: str, new: str, complete: bool, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    settings = (out / "config.yaml").read_text().replace(f"out: {whole}", f"out: {out}")
    assert settings.count(old) == 1
    (out / "config.yaml").write_text(settings.replace(old, new))
    if not complete:
        (out / "encoder.safetensors").unlink()
    before = content(out)
    assert main(["pretrain", "--resume", str(out)]) == 2
    said = refusal(capsys)
    assert "config.yaml: was changed after its run had begun" in said
    assert f"{old.split(': ')[1]} -> {new.split(': ')[1]}" in said
    assert "--workers" in said.partition("Only")[2]
    assert content(out) == {**before, **({} if complete else {"lock": (out / "lock").read_bytes()})}


def test_a_setting_that_an_earlier_version_did_not_have_is_no_change(whole: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    kept = checkpoints(out)
    found = kept.latest()
    assert found is not None
    del found[0]["settings"]["health_every"]
    kept.save(found[0], found[0]["state"]["step"])
    assert main(["pretrain", "--resume", str(out), "--quiet"]) == 0


@pytest.mark.parametrize("length", [0, 5, 400, -1])
def test_an_encoder_that_was_cut_short_is_written_again(
    length: int, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    encoder = out / "encoder.safetensors"
    good = encoder.read_bytes()
    encoder.write_bytes(good[:length])
    assert main(["pretrain", "--resume", str(out)]) == 0
    assert "warning: encoder.safetensors was damaged, and is written again" in capsys.readouterr().err
    assert encoder.read_bytes() == good
    encoder.write_bytes(good[:length])
    shutil.rmtree(out / "checkpoints")
    assert main(["pretrain", "--resume", str(out)]) == 2
    assert "encoder.safetensors is damaged, and there is no checkpoint to write it again from" in refusal(capsys)


ODD_STATES = [
    {"state": None}, {"state": {}}, {"method": 3}, {"optimizer": []}, {"data": "x"}, {"world": "two"}, {"settings": 1},
    {"format": "4"}, {"encoders": {}}, {"channels": (1,)},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_STATES)
def test_a_sealed_checkpoint_that_is_none_of_a_run_is_passed_over(
    odd: dict[str, object], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    (out / "encoder.safetensors").unlink()
    found = checkpoints(out).latest()
    assert found is not None
    Checkpoints(out / "checkpoints").save({**found[0], **odd}, 12)
    assert main(["pretrain", "--resume", str(out), "--quiet"]) == 0
    said = capsys.readouterr().err
    assert "passed over a checkpoint" in said
    assert f"is no checkpoint of a run: {next(iter(odd))}" in said
    assert differences_but_checkpoints(whole, out) == []


def test_a_checkpoint_whose_tensors_do_not_fit_is_one_line(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    (out / "encoder.safetensors").unlink()
    found = checkpoints(out).latest()
    assert found is not None
    odds: list[dict[str, Any]] = [
        {"method": {}},
        {"optimizer": {"state": {}}},
        {"state": {**found[0]["state"], "health": {}}},
    ]
    for odd in odds:
        Checkpoints(out / "checkpoints").save({**found[0], **odd}, 12)
        assert main(["pretrain", "--resume", str(out)]) == 2
        assert "does not fit this run" in refusal(capsys)


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"no weights at all")
    assert pretrain(tmp_path / "run", encoder__pretrained=weights) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_run_says_which_weights_of_a_file_it_starts_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "first", "--quiet", max_steps=1) == 0
    state = {
        f"module.encoder_q.{key}": each for key, each in manyview.load(tmp_path / "first").network.state_dict().items()
    }
    torch.save({"state_dict": state, "epoch": 1}, tmp_path / "checkpoint.pth")
    assert pretrain(tmp_path / "next", encoder__pretrained=tmp_path / "checkpoint.pth", max_steps=1) == 0
    said = capsys.readouterr().out
    assert f"it starts from {tmp_path}/checkpoint.pth, what is named state_dict.module.encoder_q.* there" in said
