"""Real comparisons of a second: what is done is kept, and what fails says so; and the process of one run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from manyview.cli import main as cli
from manyview.comparison import workers
from manyview.comparison.outcome import COST, OUTCOME, cost_of
from manyview.comparison.plan import PlannedRun
from manyview.config.recipes import to_yaml
from manyview.config.sections import flat
from manyview.core.lock import locked
from manyview.training.launch import configured
from manyview.training.run import Run
from tests.patience import PATIENCE, wait_until
from tests.tiny import flags, pictures

HELD = """
import time
from pathlib import Path
from manyview.training.run_log import RunLog

def write_and_wait(self, *given, **named):
    write(self, *given, **named)
    lines = (self.folder / "metrics.jsonl").read_text().splitlines()
    while self.folder.name == "cacr-0" and len(lines) >= 3 and not Path(__file__).with_name("go on").exists():
        time.sleep(0.01)

write, RunLog.write = RunLog.write, write_and_wait
"""
"""A sitecustomize.py: the second run waits in the middle, until it is told to go on."""
METHODS = ["--methods", "simclr,cacr", "--seeds", "1", "--batch-rule", "copies"]


def compare(out: Path, *more: str) -> int:
    return cli.main(["compare", *flags(out=out), *METHODS, *more])


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("comparison")
    assert compare(out, "--jobs", "2") == 0
    return out


def test_a_comparison_leaves_every_run_and_its_outcome(compared: Path) -> None:
    methods = json.loads((compared / OUTCOME).read_text())["methods"]
    assert [each["method"] for each in methods] == ["simclr", "cacr"]
    assert [each["batch_size"] for each in methods] == [8, 3]  # 16 copies, five of a picture
    for each in methods:
        run = Run(compared / f"{each['method']}-0")
        assert each["scores"]["kNN"] == [run.knn[-1][1]]
        assert [point["score"] for point in each["curves"][0]] == [score for _, score in run.knn]
        assert each["memory"] > 50 << 20
        assert each["processor_seconds"] > 0.5  # of imports alone


def test_called_again_it_only_tells(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in compared.glob("*-0/encoder.safetensors")}
    assert compare(compared) == 0
    assert "2 of 2 runs are done already" in (said := capsys.readouterr().out)
    assert "| cacr | 3 x 5 |" in said
    assert len(before) == 2
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


def test_other_settings_in_the_same_folder_are_refused(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(compared, "--weight-decay", "0.5") == 2
    assert "optimizer.weight_decay" in capsys.readouterr().err


def test_other_images_in_the_same_folder_are_refused(
    compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = pictures(tmp_path / "data", 54, classes=2, flat=True)  # of the same names
    assert cli.main(["compare", *flags(out=compared, data=other), *METHODS]) == 2
    assert "comparison on other images" in capsys.readouterr().err


def test_its_page_compares_the_methods(compared: Path) -> None:
    page = (compared / "report.html").read_text()
    assert 'id="comparison"' in page
    assert "kNN by time" in page
    assert "against simclr" in page


def test_what_fails_is_left_out_and_the_others_go_on(
    compared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(compared / "plan.json", tmp_path)
    (tmp_path / "simclr-0").write_text("a file where its folder should be")
    assert compare(tmp_path) == 1
    said = capfd.readouterr()
    assert "simclr, seed 0 has failed" in said.out
    assert "left out: simclr, seed 0" in said.err
    assert "| cacr | 3 x 5 |" in said.out


def test_a_run_that_another_process_trains_is_waited_for(
    compared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(compared, folder)
    (folder / "simclr-0" / "encoder.safetensors").unlink()
    hold = "import sys; from manyview.core.lock import locked; from pathlib import Path\n"
    hold += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(folder / "simclr-0")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    waited: list[str] = []

    def say(line: str) -> None:
        if "is waited for" in line:
            waited.append(line)
            other.communicate("")  # it ends, and what was waited for goes on

    config = configured(None, {**flat(Run(folder / "simclr-0").config.nested()), "out": str(folder / "simclr-0")})
    assert workers.run_all([PlannedRun("simclr", 0, config)], 1, say) == []
    assert waited == ["simclr, seed 0 is waited for, since another process trains it, as it says above"]
    assert f"is being trained by process {other.pid} on" in capfd.readouterr().err
    assert (folder / "simclr-0" / "encoder.safetensors").is_file()


def test_a_comparison_in_use_is_refused(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(compared, busy="compared"):
        assert compare(compared) == 2
    assert f"{compared} is being compared by process {os.getpid()} on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--jobs", "0"], "jobs: expected 1 to 1024, got 0"),
        (["--jobs", "1000000000"], "jobs: expected 1 to 1024"),
        (["--minutes", "1"], "minutes: 1 and epochs 2 are both given"),
        (["--batch-siz", "4"], "did you mean 'batch_size'"),
        (["--evaluate-every", "0"], "no kNN"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(tmp_path, *more) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_what_is_needed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--data", "scenes"]) == 2
    assert "methods: is needed" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_halfway_it_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, or a cluster's signal to the first process alone, in the second run.

    The first is kept, the second goes on, and the end is that of a comparison never stopped. The second run waits for
    the signal, so that it cannot end before, however late that comes on a busy machine.
    """
    folder, hook = tmp_path / "out", tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HELD)
    path = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "manyview", "compare", *flags(out=folder), *METHODS]
    process = subprocess.Popen(command, start_new_session=True, env={**os.environ, "PYTHONPATH": path})
    second = folder / "cacr-0" / "metrics.jsonl"
    wait_until(lambda: second.is_file() and len(second.read_text().splitlines()) >= 3, process)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.terminate()
    (hook / "go on").touch()
    assert process.wait(PATIENCE) == 130
    assert not (folder / "cacr-0" / "encoder.safetensors").exists()
    assert subprocess.run(command).returncode == 0
    alone = tmp_path / "alone"
    assert compare(alone) == 0
    for name in ("simclr-0", "cacr-0"):
        ends = [(each / name / "encoder.safetensors").read_bytes() for each in (folder, alone)]
        assert ends[0] == ends[1]


@pytest.mark.slow
def test_in_equal_time_each_trains_as_many_epochs_as_it_was_measured_to_manage(tmp_path: Path) -> None:
    more = [word for word in flags(out=tmp_path) if word not in ("--epochs", "2")]
    assert cli.main(["compare", *more, *METHODS, "--minutes", "0.05"]) == 0
    measured = json.loads((tmp_path / "plan.json").read_text())["epochs"]
    epochs = {method: each["epochs"] for method, each in measured.items()}
    assert min(epochs.values()) > 0
    assert {method: Run(tmp_path / f"{method}-0").config.epochs for method in ("simclr", "cacr")} == epochs


def test_the_largest_peak_of_all_sittings_is_kept_and_their_processor_time_is_added(tmp_path: Path) -> None:
    (tmp_path / COST).write_text(json.dumps({"memory": 1}))  # by an older version
    workers.note_cost(tmp_path)
    first = cost_of(tmp_path)
    assert first.memory is not None
    assert first.processor_seconds is not None
    assert first.memory > 50 << 20
    assert first.processor_seconds > 0
    (tmp_path / COST).write_text(json.dumps({"memory": 1 << 60, "processor_seconds": 1000.0}))
    workers.note_cost(tmp_path)
    assert cost_of(tmp_path).memory == 1 << 60
    assert (cost_of(tmp_path).processor_seconds or 0) >= 1000 + first.processor_seconds


def test_a_run_that_cannot_begin_is_one_line_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a file"
    out.write_text("")
    settings = tmp_path / "settings.yaml"
    settings.write_text(to_yaml(configured(None, {"data.name": "scenes", "data.count": 64, "out": str(out)})))
    assert workers.main(str(settings)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{out}: ")
    assert not (tmp_path / COST).exists()
