"""The command line: a table of commands, imported when called."""

import importlib
import io
import os
import sys
import time
import traceback
import warnings
from contextvars import ContextVar
from typing import Any

from manyview.core.errors import UserError, is_memory, nearest
from manyview.core.text import one_line, reason

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("manyview.cli.demo:demo", "two minutes of training on generated images, to see how it goes"),
    "check": ("manyview.cli.check:check", "what a folder of images holds: counts, sizes, labels, unreadable files"),
    "pretrain": ("manyview.cli.pretrain:pretrain", "train an encoder on a folder of images, without labels"),
    "report": ("manyview.cli.report:report", "one HTML page of a run: curves, scores, figures, a map of images"),
    "evaluate": (
        "manyview.cli.evaluate:evaluate",
        "how good an encoder is, by labels: kNN, linear probes and more",
    ),
    "transfer": (
        "manyview.cli.transfer:transfer",
        "train a task on top of an encoder: segments, boxes, masks, keypoints",
    ),
    "compare": ("manyview.cli.compare:compare", "train several methods alike and say which is better"),
    "embed": ("manyview.cli.embed:embed", "the vectors of all images of a folder, in a file"),
    "search": ("manyview.cli.search:search", "the images most like one, by their vectors"),
    "export": ("manyview.cli.export:export", "a run's encoder for timm, torchvision, ONNX or a model hub"),
    "list": ("manyview.cli.list:list_", "names to choose from: methods, encoders, data, views, recipes, ..."),
    "show": ("manyview.cli.show:show", "a recipe with all its settings"),
}
"""name -> (where its function is, one line of help). The function's signature is what it can be given."""

PROTOCOLS = (
    "knn", "knn-sweep", "linear-fast", "linear", "mlp", "layers", "finetune", "semi", "fewshot", "shot-transfer",
    "retrieval", "cross-view",
)  # fmt: skip
"""Those of `evaluate`, which takes seconds to import: somebody may take one for a command."""

began: ContextVar[float] = ContextVar("began")
"""When the command was given, by `time.monotonic`: what it imports takes seconds."""
BUG, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141  # the last two as shells count: 128 + the signal's number
LESS = "free some, or ask for less: a smaller batch, smaller images, fewer workers"
REPORT_IT = "this is a bug: please report it, with the lines above, to the maintainers of manyview"


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. An error that the user can fix is one line on stderr and exit code 2; any other is a bug, code
    1."""
    began.set(time.monotonic())
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # no library runs what is in a file
    try:
        return _answer(arguments) or _lost()
    except KeyboardInterrupt as came:
        if hasattr(came, "exit_code"):  # a training, which has said so itself
            return int(came.exit_code)
        print("\ninterrupted", file=sys.stderr)  # after the line of progress, if there is one
        return INTERRUPTED


def run(name: str, arguments: list[str]) -> int:
    """Runs a command and lets its exceptions pass."""
    from manyview.cli.arguments import call

    module, function = COMMANDS[name][0].split(":")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL.TiffImagePlugin")  # a damaged file is counted and listed
        warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # pictures have a limit of ours, max_pixels
        warnings.showwarning = _warn
        return call(getattr(importlib.import_module(module), function), arguments)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {one_line(str(message))}", file=sys.stderr)


def _answer(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else BAD_INPUT
    if first == "--version":
        from manyview import __version__

        print(f"manyview {__version__}")
        return 0
    if first in PROTOCOLS:
        advice = f"it is a protocol of evaluate: manyview evaluate RUN --protocols {first}"
        return _complain(f"manyview: there is no command {first!r}; {advice}", BAD_INPUT)
    if first not in COMMANDS:
        near = nearest(first, COMMANDS, cutoff=0.5)
        there = f"the commands are {', '.join(COMMANDS)}" if near is None else f"did you mean {near!r}?"
        return _complain(f"manyview: there is no command {first!r}; {there}", BAD_INPUT)
    try:
        return run(first, arguments[1:])
    except UserError as error:
        told = getattr(error, "told", False)  # by another process
        return error.exit_code if told else _complain(f"manyview {first}: {error}", error.exit_code)
    except Exception as error:
        if is_memory(error):
            return _complain(f"manyview {first}: the memory is full ({reason(error)[:150]}); {LESS}", BUG)
        if isinstance(error, OSError) and error.filename is not None:  # of a file that nobody could foresee
            return _complain(f"manyview {first}: {os.fsdecode(error.filename)}: {error.strerror}", BAD_INPUT)
        traceback.print_exc()
        return _complain(f"manyview {first}: {REPORT_IT}", BUG)


class _Stream(io.FileIO):
    """stdout or stderr; it remembers why it could not be written to, and lets the work go on."""

    lost: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost = self.lost or error
            return len(data)


def _prepare_streams() -> None:
    """Prepares stdout and stderr so that a closed pipe, a full disk or an odd character ends no command."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # closed: what is opened next would get its number, and what is printed
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None or stream is getattr(sys, f"__{name}__"):
            unbuffered = stream is not None and (stream.line_buffering or stream.write_through)  # python -u
            raw, at_once = _Stream(number, "w", closefd=False), name == "stderr" or os.isatty(number) or unbuffered
            encoding = "utf-8" if stream is None else stream.encoding
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), encoding, line_buffering=at_once))
        if hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _lost() -> int:
    """Returns the exit code of a command whose output could not be written."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = raw.lost if isinstance(raw, _Stream) else None
    if error is None or isinstance(error, BrokenPipeError):
        return 0 if error is None else BROKEN_PIPE
    return _complain(f"manyview: what was printed is lost: {error.strerror}", BUG)


def _complain(text: str, code: int) -> int:
    print(one_line(text), file=sys.stderr)
    return code


def _help() -> str:
    commands = "\n".join(f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: manyview COMMAND ...\n\n"
        "Trains image encoders without labels, from many views and many positives.\n\n"
        f"{commands}\n\n"
        "To begin with your own images:\n\n"
        "  manyview check my/photos\n"
        "  manyview pretrain --data my/photos --minutes 30 --out runs/mine\n"
        "  manyview export runs/mine --to onnx\n\n"
        "manyview COMMAND --help tells more of one; manyview --version tells the version."
    )
