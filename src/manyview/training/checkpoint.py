"""The checkpoints of a run: written atomically, and found again after a crash."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from manyview.core.atomic import atomic_write, naming_full_disk
from manyview.core.errors import UserError, is_memory

State = dict[str, Any]
STEP, EPOCH = re.compile(r"step-(\d{9,})\.pt"), re.compile(r"epoch-(\d{4,})\.pt")
SEAL, PIECE = 8, 2**20  # bytes: of the check sum, and read at a time
KEPT = 2  # checkpoints: one may be damaged


class Checkpoints:
    """The checkpoints of a run in files step-000000123.pt, the newest two of them, and epoch-0020.pt for ever.

    >>> kept = Checkpoints(Path("runs/first"))
    >>> kept.save({"step": 123, "towers": towers.state_dict()}, 123)
    >>> found = kept.latest()      # (state, path), or None; kept.damaged says what was passed over

    A state is nested dicts, lists and tuples of tensors, numbers, texts and None. Reading one runs no code from it.

    flaw  says what a state, of a file, lacks that somebody could go on with; None of one that is good
    """

    def __init__(self, folder: Path, *, flaw: Callable[[State, Path], str | None] = lambda state, file: None) -> None:
        self.folder, self._flaw = Path(folder), flaw
        self.damaged: list[str] = []

    def save(self, state: State, step: int, *, epoch_snapshot: int | None = None) -> Path:
        """Writes a checkpoint, also under the epoch's number if one is given, and then deletes old ones.

        Files of later steps are deleted too: the run was resumed before them, because they are damaged or were not
        wanted.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:09d}.pt"
        with naming_full_disk(path, self._remedy):
            if epoch_snapshot is None:
                write(state, path)
            else:  # first of all: who is killed in between goes on from an earlier step, and comes by again
                snapshot = self.folder / f"epoch-{epoch_snapshot:04d}.pt"
                write(state, snapshot)
                _also(snapshot, path)
        up_to_now = [file for number, file in self._numbered(STEP) if number <= step]
        for _, file in self._numbered(STEP):
            if file not in up_to_now[:KEPT]:
                file.unlink(missing_ok=True)
        return path

    def latest(self) -> tuple[State, Path] | None:
        """Returns the newest intact checkpoint, on the CPU, and its file; None where nothing was saved yet.

        Without an intact step file it is the newest epoch's. Damaged ones are passed over, and `damaged` says which and
        why.
        """
        self.damaged = []
        files = self._files()
        for file in files:
            try:
                state = read(file)
            except UserError as error:
                self.damaged.append(str(error))
                continue
            if (flaw := self._flaw(state, file)) is None:
                return state, file
            self.damaged.append(f"{file}: {flaw}")
        if files:
            raise UserError(
                None,
                f"{self.folder}: none of its {len(files)} checkpoints is whole ({self.damaged[0]}); "
                "bring one back from a copy, or delete them to start anew",
            )
        return None

    def _files(self) -> list[Path]:
        """Lists the files, the newest first; an epoch's file is never newer than the step files."""
        return [file for pattern in (STEP, EPOCH) for _, file in self._numbered(pattern)]

    def _numbered(self, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
        """Lists the files of a pattern, the largest number first."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        found = [(int(match[1]), file) for file in files if (match := pattern.fullmatch(file.name))]
        return sorted(found, reverse=True)

    def _remedy(self) -> str:
        last = next((file for file in self._files() if _flaw(file) is None), None)
        kept = "there is no checkpoint yet" if last is None else f"the last checkpoint {last} is whole"
        return f"{kept}; free some space and start the same command again, which goes on from there"


def write(state: State, path: Path) -> None:
    """Writes one file atomically, with a check sum."""
    with atomic_write(path) as draft:
        with draft.open("wb") as file:  # an open file, since torch's own writer loses the reason of a failure
            torch.save(state, file)
        if odd := torch.serialization.get_unsafe_globals_in_checkpoint(draft):
            kinds = "dicts, lists and tuples of tensors, numbers, texts and None"
            raise UserError(
                None, f"state: needs {', '.join(odd)}, which are not read again; a checkpoint holds {kinds}"
            )
        _seal(draft)


def _seal(path: Path) -> None:
    """Appends a check sum of a file of torch.save, as the comment that a zip archive may have.

    The archive's own check sums leave out its directory, where one flipped bit can make torch read uninitialised
    memory.
    """
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(SEAL.to_bytes(2, "little"))  # the last field is the length of the comment
        length = file.tell()
        file.write(_sum(file, length))


def _sum(file: BinaryIO, length: int) -> bytes:
    """Computes the CRC-32 of a file's first bytes, and leaves it open at their end."""
    file.seek(0)
    total = 0
    while length > 0 and (piece := file.read(min(length, PIECE))):
        total, length = zlib.crc32(piece, total), length - len(piece)
    return f"{total:0{SEAL}x}".encode()


def _also(path: Path, name: Path) -> None:
    """Gives a file a second name, which outlives the first one's deletion."""
    with atomic_write(name) as draft:
        draft.unlink()  # a link is made under a name that nothing has
        try:
            os.link(path, draft)
        except OSError:  # a file system without links
            shutil.copyfile(path, draft)


def read(path: Path) -> State:
    flaw = _flaw(path)
    if flaw is not None:
        raise UserError(None, f"{path}: is damaged: {flaw}")
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # a file of any content raises almost anything
        if is_memory(error):
            raise
        raise UserError(None, f"{path}: cannot be read: {_first_line(error)}") from None
    if not isinstance(state, dict):
        raise UserError(None, f"{path}: is no checkpoint: it holds a {type(state).__name__}, not a dict")
    return state


def _flaw(path: Path) -> str | None:
    """Describes what is wrong with a file, by its check sum; None where nothing is."""
    try:
        with path.open("rb") as file:
            fits = _sum(file, file.seek(0, os.SEEK_END) - SEAL) == file.read()
    except OSError as error:
        return _first_line(error)
    return None if fits else "its check sum does not fit, so it was cut off or has changed since it was written"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
