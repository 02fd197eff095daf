"""Finds a network's weights in the files of others, whatever training scripts wrap around them."""

from __future__ import annotations

import pickletools
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.encoders.backbone import State

BEGINNINGS = (b"PK\x03\x04", b"\x80")  # of files of torch.save: a zip, or before PyTorch 1.6 a pickle
LAYERS = "torch.nn.modules."  # what the names of a whole model's classes begin with
DEEPEST = 8  # tables inside one another that are looked into
COUNTER = "num_batches_tracked"  # of batch norms, which no evaluation uses and some files lack
AVERAGED = {"teacher", "ema"}  # words of beginnings that are preferred, as DINO and timm do; MoCo v3 and BYOL do not


def read_torch_file(path: str | Path) -> State:
    """Reads all tensors of a file of torch.save by their dotted names; nothing in the file is executed.

    A file of {"state_dict": {"module.conv1.weight": ...}} has "state_dict.module.conv1.weight".
    """
    try:
        with torch.serialization.safe_globals([Namespace]):  # the settings that many scripts save beside the weights
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file raises almost anything
        raise UserError(None, f"{path}: {_why_unreadable(path)}") from None
    found = _flat(content)
    if not found:
        raise UserError(None, f"{path}: has no weights by name, but a {type(content).__name__}; save a state dict")
    return found


def _why_unreadable(path: str | Path) -> str:
    """Says what a file is that PyTorch does not read without running code, and what to do. Nothing in it is executed.

    PyTorch's own message is left out: it is a page about how to run what is in the file.
    """
    with open(path, "rb") as opened:
        beginning = opened.read(4)
    if not beginning.startswith(BEGINNINGS):
        return "is no file of weights; give one in safetensors, .pt or .pth"
    try:
        names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # of a damaged file, or one of before PyTorch 1.6, whose names cannot be asked for
        names = _named_in(path)
    if not names:
        return "is damaged or not complete; fetch or save it again"
    save = "torch.save(model.state_dict(), FILE)"
    if any(name.startswith(LAYERS) for name in names):
        return f"holds a whole model, not its weights; save these alone where its code is: {save}"
    return (
        f"holds more than weights that PyTorch reads without running code ({names[0][:80]}); save these alone: {save}"
    )


def _named_in(path: str | Path) -> list[str]:
    """The classes and functions that a pickle of an older PyTorch names, as far as its text can be read."""
    found: list[str] = []
    with open(path, "rb") as opened, suppress(Exception):
        while True:  # several pickles, one after the other
            for operation, argument, _ in pickletools.genops(opened):
                found += [str(argument).replace(" ", ".")] if operation.name == "GLOBAL" else []
    return [name for name in found if name.startswith(LAYERS) or not name.startswith(("torch.", "collections."))]


def _flat(content: Any, name: str = "", depth: int = 0) -> State:
    if isinstance(content, Tensor):
        return {name: content}
    if not isinstance(content, Mapping) or depth > DEEPEST:
        return {}
    found: State = {}
    for key, value in content.items():
        found |= _flat(value, f"{name}.{key}" if name else str(key), depth + 1)
    return found


def beginning_of(state: Collection[str], wanted: Collection[str]) -> str:
    """Tells what the names of a network's weights begin with in a file: "", or "state_dict.module.encoder_q.".

    It is the one with which most weights are found; of several a teacher's or an average's, then the first.
    """
    counts: Counter[str] = Counter()
    for key in state:
        parts = key.split(".")
        counts.update(
            ".".join([*parts[:split], ""]) for split in range(len(parts)) if ".".join(parts[split:]) in wanted
        )
    most = max(counts.values(), default=0)
    complete = [beginning for beginning, count in counts.items() if count == most]
    averaged = [each for each in complete if AVERAGED.intersection(re.split("[._]", each))]
    return next(iter([*averaged, *complete]), "")


def matched_by_order(state: State, wanted: State) -> State | None:
    """The weights of a file under the names of a network, where the two differ in nothing but names.

    So it is where a network was written down twice: as many weights, of the same kinds (weight, bias, running_mean) and
    shapes, in the same order, which is that of their making. A classifier may follow. None where anything else differs.
    """
    given, names = ([key for key in each if not key.endswith(COUNTER)] for each in (state, wanted))
    classifier = given[len(names) :]
    if len(given) < len(names) or len(classifier) > 2 or any(state[key].dim() > 2 for key in classifier):
        return None
    pairs = list(zip(given, names, strict=False))
    alike = all(_kind(mine) == _kind(own) and state[mine].shape == wanted[own].shape for mine, own in pairs)
    return {own: state[mine] for mine, own in pairs} if alike else None


def _kind(key: str) -> str:
    return key.rpartition(".")[2]


def under(state: State, beginning: str) -> State:
    """The weights whose names begin so, by the rest of their names."""
    return {key.removeprefix(beginning): value for key, value in state.items() if key.startswith(beginning)}
