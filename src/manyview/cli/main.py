"""The command line: a table of commands, imported when called."""

import importlib
import os
import sys
import traceback
import warnings

from manyview.core.errors import UserError, nearest

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("manyview.cli.demo:demo", "two minutes of training on generated images"),
    "pretrain": ("manyview.cli.pretrain:pretrain", "learn an encoder from a folder of images"),
    "compare": ("manyview.cli.compare:compare", "train several methods alike and say which is better"),
    "evaluate": ("manyview.cli.evaluate:evaluate", "how good an encoder is: kNN, linear probes and more"),
    "report": ("manyview.cli.report:report", "one HTML page of a run: curves, scores, figures, a map of images"),
    "embed": ("manyview.cli.embed:embed", "the vectors of all images of a folder, in a file"),
    "search": ("manyview.cli.search:search", "the images most like one, by their vectors"),
    "export": ("manyview.cli.export:export", "a run's encoder for timm, torchvision, ONNX"),
    "check": ("manyview.cli.check:check", "say what a data set holds: counts, sizes, labels, unreadable files"),
    "list": ("manyview.cli.list:list_", "what there is: methods, encoders, data, augmentations, recipes, losses"),
    "show": ("manyview.cli.show:show", "a recipe with all its settings"),
}
"""name -> (where its function is, one line of help). The function's signature is what it can be given."""

BUG, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141  # the last two as shells count: 128 + the signal's number
REPORT_IT = "this is a bug: please report it, with the lines above, to the maintainers of manyview"


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. What the user can mend is one line on stderr and exit code 2; all else is a bug, and code 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no command
    try:
        code = _answer(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as came:
        if hasattr(came, "exit_code"):  # a training, which has said so itself
            return int(came.exit_code)
        print("\ninterrupted", file=sys.stderr)  # after the line of progress, if there is one
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout once more when it ends
        return BROKEN_PIPE


def run(name: str, arguments: list[str]) -> int:
    """Runs a command, and lets through what it raises."""
    from manyview.cli.arguments import call

    module, function = COMMANDS[name][0].split(":")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # pictures have a limit of ours, max_pixels
        warnings.showwarning = _warn
        return call(getattr(importlib.import_module(module), function), arguments)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


def _answer(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else BAD_INPUT
    if first == "--version":
        from manyview import __version__

        print(f"manyview {__version__}")
        return 0
    if first not in COMMANDS:
        near = nearest(first, COMMANDS, cutoff=0.5)
        there = f"the commands are {', '.join(COMMANDS)}" if near is None else f"did you mean {near!r}?"
        return _complain(f"manyview: there is no command {first!r}; {there}", BAD_INPUT)
    try:
        return run(first, arguments[1:])
    except BrokenPipeError:
        raise
    except UserError as error:
        told = getattr(error, "told", False)  # by another process
        return error.exit_code if told else _complain(f"manyview {first}: {error}", error.exit_code)
    except OSError as error:  # of a file that nobody could foresee
        if error.filename is None:
            return _bug(first)
        return _complain(f"manyview {first}: {os.fsdecode(error.filename)}: {error.strerror}", BAD_INPUT)
    except Exception:
        return _bug(first)


def _bug(name: str) -> int:
    traceback.print_exc()
    return _complain(f"manyview {name}: {REPORT_IT}", BUG)


def _complain(text: str, code: int) -> int:
    print(" ".join(text.split()), file=sys.stderr)
    return code


def _help() -> str:
    commands = "\n".join(f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: manyview COMMAND ...\n\n"
        "Image representations without labels, from many views and many positives.\n\n"
        f"{commands}\n\n"
        "manyview COMMAND --help tells more of one; manyview --version tells the version."
    )
