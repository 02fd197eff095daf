"""The command line as a person meets it: in its own process where that matters."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import manyview
from manyview.cli import main as cli
from manyview.core.errors import UserError
from tests.data.awful import picture
from tests.patience import PATIENCE


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "manyview", *arguments], capture_output=True, text=True, timeout=PATIENCE
    )


def test_importing_and_asking_for_help_wait_for_no_torch() -> None:
    code = (
        "import sys, manyview; from manyview.cli.main import main; assert main(['--help']) == 0; "
        "assert manyview.__version__; assert not {'torch', 'numpy', 'PIL'} & set(sys.modules), 'imported early'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "check" in done.stdout


def test_public_names_are_still_there() -> None:
    for name in manyview.__all__:
        assert getattr(manyview, name) is not None
        assert name in dir(manyview)
    from manyview import Negatives, contrast
    from manyview.core.negatives import Negatives as Same

    assert Negatives is Same
    assert callable(contrast)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        manyview.nothing  # noqa: B018


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"manyview {manyview.__version__}\n"


def test_no_command_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: manyview COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "hint"), [("chekc", "did you mean 'check'?"), ("zzz", "the commands are demo, ")])
def test_an_unknown_command_gets_the_nearest_name(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 2
    said = capsys.readouterr()
    assert hint in said.err
    assert said.out == ""


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_there_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"usage: manyview {name}" in capsys.readouterr().out


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(tmp_path / "nothing")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("manyview check: data: there is no folder")


def test_bad_flags_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "somewhere", "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("error", [IndexError("gone"), ValueError("of torch's, say"), OSError("no path")])
def test_a_mistake_in_the_program_shows_its_traceback_and_where_to_report_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: str) -> int:
        raise error

    monkeypatch.setattr("manyview.cli.check.check", broken)
    assert cli.main(["check", "photos"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert f"{type(error).__name__}: {error}" in said
    assert said.endswith("please report it, with the lines above, to the maintainers of manyview\n")


def test_a_file_that_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(data: str) -> int:
        raise PermissionError(13, "Permission denied", data)

    monkeypatch.setattr("manyview.cli.check.check", refused)
    assert cli.main(["check", "photos"]) == 2
    assert capsys.readouterr() == ("", "manyview check: photos: Permission denied\n")


def test_an_error_says_its_own_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Full(UserError):
        exit_code = 1

    def full() -> int:
        raise Full("disk", "is full\nindeed")

    monkeypatch.setattr("manyview.cli.check.check", full)
    assert cli.main(["check"]) == 1
    assert capsys.readouterr() == ("", "manyview check: disk: is full indeed\n")


def test_an_interrupt_is_one_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("manyview.cli.check.check", interrupted)
    assert cli.main(["check"]) == 130
    assert capsys.readouterr() == ("", "\ninterrupted\n")


CHECK = """
import sys
from manyview.cli.main import main

def tell(event, given):
    if event == "open" and str(given[0]).endswith("9.png") and not told:
        told.append(given[0])
        print("reading", flush=True)

told = []
sys.addaudithook(tell)
sys.exit(main(["check", sys.argv[1], "--threads", "1"]))
"""


def test_a_real_interrupt_ends_a_check_quickly_and_quietly(tmp_path: Path) -> None:
    picture(400, 400).save(tmp_path / "0.png")
    for number in range(1, 4000):
        (tmp_path / f"{number}.png").hardlink_to(tmp_path / "0.png")
    running = subprocess.Popen(
        [sys.executable, "-c", CHECK, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "reading\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out, err) == (130, "", "\ninterrupted\n")


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("def run() -> int:\n    print('word\\n' * 100_000)\n    return 0\n")
    loud = "m.COMMANDS['loud'] = ('loud:run', '')"
    code = f"import sys; from manyview.cli import main as m; {loud}; sys.exit(m.main(['loud']))"
    script = f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("word\n141\n", "")


def test_python_m_answers_with_the_exit_code_of_the_command() -> None:
    done = run("chekc")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'check'?" in done.stderr
