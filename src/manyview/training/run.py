"""A run's folder: the files that training writes, by one process at a time, and the encoders among them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from manyview.config.config import MAY_CHANGE, Config, differences
from manyview.config.keys import Flat
from manyview.config.recipes import from_yaml, to_yaml
from manyview.core import distributed
from manyview.core.atomic import atomic_write, naming_full_disk, remove_drafts
from manyview.core.distributed import fail_together
from manyview.core.errors import UserError
from manyview.core.json_file import LARGEST, parse_json
from manyview.core.lock import NAME as LOCK
from manyview.core.lock import is_lock, locked
from manyview.core.text import printable
from manyview.data.decoded import local_processes
from manyview.encoders.towers import SHARED
from manyview.encoders.weights import openable
from manyview.training import run_data, settle
from manyview.training.checkpoint import Checkpoints
from manyview.training.state import odd_entries

CONFIG, METRICS, ENCODER, CHECKPOINTS = "config.yaml", "metrics.jsonl", "encoder.safetensors", "checkpoints"
REPORT = "report.html"
FORMAT = 4  # of the state in a checkpoint
STATE = {
    "format": int, "channels": dict, "data": tuple, "encoders": list, "settings": dict, "unreadable": dict,
    "at_once": bool, "world": int, "state": dict, "method": dict, "optimizer": dict, "precision": dict,
}  # fmt: skip
"""What a checkpoint of a run holds, and of which kind."""
NAMED = 3  # settings that differ are named, at most
ANEW = "of the run in this folder nothing had been saved yet: it begins anew"


def checkpoints(folder: Path) -> Checkpoints:
    """Returns the checkpoints of the run in a folder."""
    return Checkpoints(folder / CHECKPOINTS, flaw=_flaw)


def as_begun(config: Config, views: int) -> Config:
    """Returns the settings, with those left open as they were chosen when the run in their folder was begun."""
    folder = Path(config.out or "")
    if not config.auto or not (folder / CONFIG).is_file():
        return config
    if not (any((folder / CHECKPOINTS).glob("*.pt")) or encoder_files(folder)):
        return config
    before = from_yaml(folder / CONFIG).flat()
    chosen = {key: before[key] for key in config.auto if key in before and key != "augmentation.name"}
    if "augmentation.size" in chosen:
        config = settle.with_size(config, views, chosen["augmentation.size"])
    return replace(settle.with_chosen(config, chosen), auto=())


def encoder_files(folder: Path) -> list[Path]:
    """Lists the files of the encoders that a run has written at its end."""
    return sorted(folder.glob("encoder*.safetensors"))


def encoder_file(view: str) -> str:
    """Names the file of a view's encoder; for one that all views share, encoder.safetensors."""
    return ENCODER if view == SHARED else f"encoder-{view}.safetensors"


@dataclass(frozen=True)
class Run:
    """A run's folder, which `manyview.pretrain` returns and the command line calls RUN.

    config.yaml          all settings; `manyview pretrain --recipe config.yaml --out NEW` runs the job again
    metrics.jsonl        what was measured, every 20 steps
    train.log            the messages
    checkpoints/         the last two, and the snapshots
    encoder.safetensors  the result; `manyview.load(run)`. One per view where the method has that
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))  # for those who give a text

    @property
    def config(self) -> Config:
        return from_yaml(self.folder / CONFIG)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that are valid."""
        return read_metrics(self.folder / METRICS)[0]

    @property
    def knn(self) -> list[tuple[int, float]]:
        """(step, kNN accuracy), with step 0 for the untrained encoder; empty where the data has no labels."""
        return [(line["step"], line["knn"]) for line in self.metrics if line.get("knn") is not None]


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Reads the valid lines of metrics.jsonl, and counts the others.

    A line without a step is passed over, such as one that a killed run has half written; in others, a value that is
    neither a number nor what its name promises.
    """
    found, odd = [], 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            line = parse_json(text)
        except ValueError:
            line = None
        sound = {key: value for key, value in line.items() if _sound(key, value)} if isinstance(line, dict) else {}
        whole = isinstance(sound.get("step"), int)
        odd += not whole or line != sound
        found += [sound] if whole else []
    return found, odd


def _sound(key: str, value: Any) -> bool:
    """Tells whether training may have written a value: it is a number, or None for one that was not finite."""
    if key == "not_finite" or key.partition("/")[0] == "health":  # of the run, or of a view: health/rgb
        return isinstance(value, dict if key == "not_finite" else str)
    number = type(value) in (int, float) and abs(value) <= LARGEST
    return number and value >= 0 if key in ("step", "epoch", "seconds") else number or value is None


class RunFolder:
    """The folder of a run with these settings and this data."""

    def __init__(self, config: Config, data: run_data.RunData) -> None:
        self.path, self.config, self.data = Path(config.out or ""), config, data
        self.checkpoints = checkpoints(self.path)
        self.damaged_encoders: list[str] = []

    def complete(self) -> bool:
        """Tells whether the folder holds this very run with its encoders, which are written last."""
        self._check_ours()
        there = encoder_files(self.path)
        if not there:
            return False
        saved = None
        with suppress(UserError):  # what is complete needs no whole checkpoint
            saved = self.checkpoints.latest()
        files = there if saved is None else [self.path / name for name in saved[0]["encoders"]]
        if not all(file.is_file() for file in files):
            return False
        self._check_begun(None if saved is None else saved[0])
        self.damaged_encoders = [file.name for file in files if not _is_whole(file)]
        if self.damaged_encoders and saved is None:
            cut = (
                f"{self.path / self.damaged_encoders[0]} is damaged, and there is no checkpoint to write it again from"
            )
            raise UserError("out", f"{cut}; bring one back, delete the file to train anew, or give another --out")
        return not self.damaged_encoders

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Locks the folder. One that was made for a run which then could not begin is removed."""
        new = not self.path.exists()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path))
            except OSError as error:
                why = f"{self.path} cannot be written to: {error.strerror}"
                raise UserError("out", f"{why}; give another --out") from None
            for folder in (self.path, self.checkpoints.folder):
                if folder.is_dir():
                    remove_drafts(folder)  # of killed processes
            try:
                yield
            except BaseException:
                if new and [each.name for each in self.path.iterdir()] == [LOCK]:
                    (self.path / LOCK).unlink()
                    self.path.rmdir()
                raise

    def saved(self) -> dict[str, Any] | None:
        """Returns the last checkpoint, if there is one; all processes must find the same."""
        with fail_together():
            found = self.checkpoints.latest()
        steps = [int(each) for (each,) in distributed.exchange([-1 if found is None else found[0]["state"]["step"]])]
        with fail_together():
            if len(set(steps)) > 1:
                said = ", ".join("none" if each < 0 else f"step {each}" for each in steps)
                differ = f"processes see different checkpoints in {self.path} ({said})"
                raise UserError("out", f"{differ}; give a folder that all machines share")
            if found is not None or encoder_files(self.path):  # before, settings may still change
                self._check_begun(None if found is None else found[0])
            if found is not None:
                self._check_normalised(found[0])
        return None if found is None else found[0]

    def write_settings(self) -> None:
        path = self.path / CONFIG
        with naming_full_disk(path, lambda: "free some space"), atomic_write(path) as draft:
            draft.write_text(to_yaml(self.config), encoding="utf-8")

    def _check_ours(self) -> None:
        """Refuses a folder with files of anything but a run, before anything is written."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError("out", f"{self.path} is a file; give a folder, which is made if it is not there")
        there = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
        if CHECKPOINTS in there and not (self.path / CHECKPOINTS).is_dir():
            raise UserError(
                "out", f"{self.path / CHECKPOINTS} is no folder, and checkpoints go there; give another --out"
            )
        begun = any((self.path / CHECKPOINTS).glob("*.pt")) or encoder_files(self.path)
        if begun and CONFIG not in there:
            raise UserError(
                "out", f"{self.path} holds a run without its {CONFIG}; bring it back, or give another --out"
            )
        if begun:
            from_yaml(self.path / CONFIG)  # which says what is wrong with it
        elif odd := sorted(name for name in there - {LOCK} if not name.startswith(".")):
            with suppress(UserError):
                if is_lock(self.path / LOCK) and from_yaml(self.path / CONFIG):
                    return
            foreign = f"{self.path} is not empty and holds no run, but {odd[0]}"
            raise UserError("out", f"{foreign}{' and more' if odd[1:] else ''}; give another --out, which is made")

    def _check_begun(self, state: dict[str, Any] | None) -> None:
        """Refuses other settings or data than the run was begun with, by its checkpoint or else its file."""
        written = from_yaml(self.path / CONFIG).fixed()
        then: Flat = written if state is None else state["settings"]
        now = {key: value for key, value in self.config.fixed().items() if key in then}  # a later version has more keys
        if changed := differences(then, now):
            said = "; ".join(changed[:NAMED]) + (f" and {len(changed) - NAMED} more" if len(changed) > NAMED else "")
            if state is not None and differences(then, {key: value for key, value in written.items() if key in then}):
                edited = f"was changed after its run had begun ({said}); change it back. Only {MAY_CHANGE} may change"
                raise UserError(str(self.path / CONFIG), edited)
            go_on = resume_command(self.config, distributed.world_size())
            other = f"{self.path} holds a run with other settings ({said})"
            raise UserError("out", f"{other}; give another --out, or go on with that one: {go_on}")
        if state is not None:
            self._check_data(state)

    def _check_normalised(self, state: dict[str, Any]) -> None:
        """Refuses to normalise modalities in a run that an earlier version began without normalisation."""
        now = self.config.data.get("statistics", {})
        raw = {name: {"mean": [0.0] * len(each["mean"]), "std": [1.0] * len(each["std"])} for name, each in now.items()}
        if "data.statistics" not in state["settings"] and now != raw:
            begun = f"an earlier version began the run without normalising {', '.join(map(printable, now))}"
            go_on = f"to go on so write `statistics: {raw}` under `data:` in {self.path / CONFIG}"
            raise UserError("out", f"{begun}; {go_on}, or give another --out")

    def _check_data(self, state: dict[str, Any]) -> None:
        """Refuses data that the run was not begun with; copies, whose times alone differ, are accepted."""
        then = tuple(state["data"])[:3]
        now = self.data.fingerprint[: len(then)]
        if then != now:
            said = f"{then[0]:,} images then, {now[0]:,} {'others ' if then[0] == now[0] else ''}now"
            changed = f"the data of {self.path} has changed: {said}"
            raise UserError("data", f"{changed}; give another --out, or bring the data back")


def _flaw(state: dict[str, Any], file: Path) -> str | None:
    """Describes why a checkpoint is not one of a run. An intact one of another version is refused and kept."""
    if isinstance(state.get("format"), int) and state["format"] != FORMAT:
        other = f"is of format {state['format']}, this version reads {FORMAT}"
        raise UserError(str(file), f"{other}; go on with the version that began the run, or give another --out")
    odd = [name for name, kind in STATE.items() if not isinstance(state.get(name), kind)]
    odd = odd or [f"state.{name}" for name in odd_entries(state["state"])]
    return f"is no checkpoint of a run: {odd[0]} is missing, or no such thing" if odd else None


def _is_whole(path: Path) -> bool:
    """Tells whether a file of weights is as long as its header says."""
    try:
        with open(path, "rb") as opened, safe_open(openable(path, opened.fileno()), "pt") as file:
            return bool(file.keys())
    except (SafetensorError, OSError):
        return False


def resume_command(config: Config, world: int) -> str:
    """Returns the command that resumes a run, in as many processes."""
    if config.own_data:
        return f"manyview.pretrain(data=..., resume={config.out!r}), with the same data"
    here = local_processes() if world == distributed.world_size() else world
    nodes = "" if here == world else f"--nnodes {world // here} "
    command = "manyview" if world == 1 else f"torchrun {nodes}--nproc-per-node {here} -m manyview"
    return f"{command} pretrain --resume {shlex.quote(str(config.out))}"
