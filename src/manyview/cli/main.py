"""The command line: a table of commands, imported when called."""

from __future__ import annotations

import importlib
import os
import sys
from difflib import get_close_matches

from manyview.core.text import reason

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("manyview.cli.commands:demo", "two minutes of training on generated images"),
    "pretrain": ("manyview.cli.commands:pretrain", "learn an encoder from a folder of images"),
    "compare": ("manyview.cli.compare:command", "train several methods alike and say which is better"),
    "evaluate": ("manyview.cli.evaluate:command", "how good an encoder is: kNN, linear probes and more"),
    "report": ("manyview.cli.report:command", "one HTML page of a run: curves, scores, figures, a map of images"),
    "embed": ("manyview.cli.embed:command", "the vectors of all images of a folder, in a file"),
    "search": ("manyview.embeddings.search:command", "the images most like one, by their vectors"),
    "export": ("manyview.cli.commands:export", "a run's encoder for timm, torchvision, ONNX"),
    "check": ("manyview.data.check:command", "say what a data set holds: counts, sizes, labels, broken files"),
    "list": ("manyview.cli.commands:listed", "what there is: methods, encoders, data, augmentations, recipes, losses"),
    "show": ("manyview.cli.commands:show", "a recipe with all its settings"),
}
"""name -> (where its function is, one line of help). The function takes the arguments and returns the exit code."""

BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as shells count: 128 + the signal's number


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. What the user can mend is one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no command
    try:
        code = _answer(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)  # after the line of progress, if there is one
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout once more when it ends
        return BROKEN_PIPE


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
        return _complain(_unknown(first))
    return _run(first, arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    try:
        module, function = COMMANDS[name][0].split(":")
        return int(getattr(importlib.import_module(module), function)(arguments))
    except BrokenPipeError:
        raise
    except SystemExit as end:  # how argparse says that it printed help or a usage line
        return end.code if isinstance(end.code, int) else 0
    except (ValueError, OSError, ImportError) as error:
        code = getattr(error, "exit_code", BAD_INPUT)
        told = getattr(error, "told", False)  # by another process
        return code if told else _complain(f"manyview {name}: {reason(error)}", code)


def _complain(text: str, code: int = BAD_INPUT) -> int:
    print(text, file=sys.stderr)
    return code


def _help() -> str:
    commands = "\n".join(f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: manyview COMMAND ...\n\n"
        "Image representations without labels, from many views and many positives.\n\n"
        f"{commands}\n\n"
        "manyview COMMAND --help tells more of one; manyview --version tells the version."
    )


def _unknown(name: str) -> str:
    near = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(COMMANDS)}"
    return f"manyview: there is no command {name!r}; {hint}"
