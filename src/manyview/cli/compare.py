"""`manyview compare`"""

from __future__ import annotations

import sys
from typing import Any

from manyview.comparison.compare import compare
from manyview.comparison.outcome import OUTCOME
from manyview.comparison.scheduler import Stopped
from manyview.config.flags import read_flags
from manyview.config.keys import Flat, flag_name
from manyview.config.values import parse_bool
from manyview.core.errors import UserError

HELP = """usage: manyview compare --data PATH|NAME --methods A,B,... [--epochs N | --minutes T] [--seeds N]

Trains every method with every seed on the same images, from the same weights, and says which is better and by how much.
The same command goes on with a comparison that was stopped.

  --data PATH|NAME      a folder of images with labels, or a name of `manyview list data`
  --methods A,B,...     names of `manyview list methods`; the others are compared with the first
  --epochs N            how often each image is seen, by every method alike
  --minutes T           or the same time of training for all; their speeds are measured first
  --seeds N|A,B,...     how many, from 0, or which; 3
  --batch-size N        images a step of methods with two views; those with more get as many views, so fewer images
  --same-batch          as many images a step for all
  --recipe NAME|FILE    settings for all; {method} in it stands for the method: cifar10-cpu-{method}
  --jobs N              runs at a time, which share the cores; 1
  --protocols A,B,...   of `manyview evaluate`, beside the kNN of training
  --out FOLDER          runs/compare-DATA
  --KEY VALUE           any setting of `manyview pretrain`, for all"""

FAILED, STOPPED = 1, 130
VALUES = {
    "data.name": "PATH|NAME", "methods": "A,B,...", "minutes": "T", "seeds": "N", "recipe": "NAME|FILE", "jobs": "N",
    "protocols": "A,B,...", "out": "FOLDER",
}  # fmt: skip
OURS = {"methods", "epochs", "minutes", "seeds", "same_batch", "recipe", "jobs", "protocols", "out", "help"}


def command(arguments: list[str]) -> int:
    given = read_flags(["--help" if word == "-h" else word for word in arguments])
    ours = {key: given.pop(key) for key in list(given) if key in OURS - {"epochs"}}
    if "help" in ours:
        print(HELP)
        return 0
    _check_values({**ours, **given})
    for key in ("methods", "data.name"):
        if key not in {**ours, **given}:
            raise UserError(None, f"{key.partition('.')[0]}: is needed; `manyview compare --help` tells more")
    try:
        found = compare(given.pop("data.name"), **_read(ours), **given)
    except Stopped as stopped:
        print(f"stopped; {stopped}", file=sys.stderr)
        return STOPPED
    print(f"\n{found.table()}\n")
    print(
        f"Scores in points, ± one standard deviation over the seeds. kNN is measured on {found.queries:,} images, a "
        f"standard error of {100 * found.standard_error:.1f}. All of it is in {found.folder / OUTCOME}"
    )
    for name in found.failed:
        print(f"left out: {name} has failed", file=sys.stderr)
    return FAILED if found.failed else 0


def _check_values(given: Flat) -> None:
    """That no flag that wants a value is without."""
    for key, value in VALUES.items():
        if key in given and (given[key] is True or not str(given[key]).strip(" ,")):
            raise UserError(None, f"{flag_name(key)}: expected a value, got none; write --{flag_name(key)} {value}")


def _read(ours: Flat) -> dict[str, Any]:
    """Texts as what they mean."""
    read: dict[str, Any] = {key: ours[key] for key in ("recipe", "out") if key in ours}
    read["methods"] = _names(ours["methods"])
    read["protocols"] = _names(ours.get("protocols", ""))
    read["same_batch"] = parse_bool("same_batch", ours.get("same_batch", False))
    for key, kind in (("jobs", int), ("minutes", float)):
        if key in ours:
            read[key] = _number(key, ours[key], kind)
    if "seeds" in ours:
        numbers = [_number("seeds", text, int) for text in _names(ours["seeds"])]
        read["seeds"] = numbers[0] if len(numbers) == 1 else numbers
    return read


def _names(text: Any) -> list[str]:
    return [name.strip() for name in str(text).split(",") if name.strip()]


def _number(key: str, text: Any, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UserError(None, f"{key}: expected a number, got {text!r}") from None
