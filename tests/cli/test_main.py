"""The command line as a person meets it: in its own process where that matters."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import manyview
from manyview.cli import main as cli
from manyview.core.errors import UserError
from manyview.evaluate import protocols
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


WORKS = """
import contextlib, os, sys

def works() -> int:
    print("a result " * 5000)
    print("a warning", file=sys.stderr)
    with open("lock", "w") as file:
        file.write("mine")
    print("another", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        os.write(2, b"from a signal handler")
    return 0
"""


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">&-", 0, "a warning\nanother\nfrom a signal handler"),
        ("2>&-", 0, "a result"),
        ("<&- >&- 2>&-", 0, ""),
        ("2> /dev/full", 0, "a result"),
        ("> /dev/full", 1, "manyview: what was printed is lost: No space left on device\n"),
        ("> /dev/full 2>&1", 1, ""),
        ("> /dev/full 2>&-", 1, ""),
    ],
)
def test_streams_that_are_closed_or_full_end_no_command_and_no_file_gets_their_text(
    streams: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "busy.py").write_text(WORKS)
    program = (
        "from manyview.cli import main as m; m.COMMANDS['busy'] = ('busy:works', ''); m.sys.exit(m.main(['busy']))"
    )
    script = f'{sys.executable} -c "{program}" {streams}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, done
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "lock").read_text() == "mine"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 8.00 EiB for an array"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried ..."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_little_memory_is_one_line_in_every_command(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hungry() -> int:
        raise error

    monkeypatch.setattr("manyview.cli.check.check", hungry)
    assert cli.main(["check"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("manyview check: the memory is full (")
    assert said.err.endswith("; free some, or ask for less: a smaller batch, smaller images, fewer workers\n")
    assert said.err.count("\n") == 1


def test_no_library_runs_what_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (tmp_path.joinpath("sprung").touch, ())

    torch.save(Evil(), tmp_path / "evil.pth")
    monkeypatch.setattr("manyview.cli.check.check", lambda: torch.load(tmp_path / "evil.pth", weights_only=False))
    assert cli.main(["check"]) == 1
    assert not (tmp_path / "sprung").exists()


def test_python_m_answers_with_the_exit_code_of_the_command() -> None:
    done = run("chekc")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'check'?" in done.stderr


def test_a_protocol_that_is_taken_for_a_command_is_told_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fewshot"]) == 2
    advice = "it is a protocol of evaluate: manyview evaluate RUN --protocols fewshot"
    assert capsys.readouterr().err == f"manyview: there is no command 'fewshot'; {advice}\n"
    assert tuple(protocols.PROTOCOLS) == cli.PROTOCOLS
