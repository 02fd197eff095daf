"""A run's folder while it is trained: it belongs to one run, and to one process at a time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from manyview.config.config import Config, differences
from manyview.config.yaml_file import from_yaml, to_yaml
from manyview.core import distributed
from manyview.core.atomic import atomic_write
from manyview.core.disk import naming_full_disk
from manyview.core.distributed import fail_together
from manyview.core.errors import UserError
from manyview.core.lock import locked
from manyview.data.decoded import local_processes
from manyview.training import build
from manyview.training.checkpoint import Checkpoints
from manyview.training.run import CHECKPOINTS, CONFIG, ENCODER, encoder_files

FORMAT = 3  # of the state in a checkpoint
NAMED = 3  # settings that differ are named, at most
ANEW = "of the run in this folder nothing had been saved yet: it begins anew"


class RunFolder:
    """The folder of a run with these settings and this data."""

    def __init__(self, config: Config, data: build.RunData) -> None:
        self.path, self.config, self.data = Path(config.out or ""), config, data
        self.checkpoints = Checkpoints(self.path / CHECKPOINTS)

    def complete(self) -> bool:
        """Whether the folder holds this very run, with nothing left to do: its encoders are written last of all."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError("out", f"{self.path} is a file; give a folder, which is made if it is not there")
        if not (self.path / CONFIG).is_file() or not encoder_files(self.path):
            return False
        saved = None
        with suppress(UserError):  # what is complete needs no whole checkpoint
            saved = self.checkpoints.latest()
        files = [] if saved is None else saved[0].get("encoders", [ENCODER])
        if not all((self.path / file).is_file() for file in files):
            return False
        self._check_settings()
        if saved is not None:
            self._check_data(saved[0])
        return True

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keeps others out of the folder, and refuses one where another run was begun."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path))
            except OSError as error:
                why = f"{self.path} cannot be written to: {error.strerror}"
                raise UserError("out", f"{why}; give another --out") from None
            begun = any((self.path / CHECKPOINTS).glob("*.pt")) or encoder_files(self.path)
            if begun:  # before, settings may still change
                if not (self.path / CONFIG).is_file():
                    missing = f"{self.path} holds a run without its {CONFIG}"
                    raise UserError("out", f"{missing}; bring that back, or give another --out")
                self._check_settings()
            self.checkpoints.tidy()
            yield

    def saved(self) -> dict[str, Any] | None:
        """The last checkpoint, if there is one; all processes must find the same."""
        with fail_together():
            found = self.checkpoints.latest()
            if found is not None and found[0].get("format") != FORMAT:
                state, path = found
                raise UserError(str(path), f"is of format {state.get('format')!r}, this version reads {FORMAT}")
        steps = [int(each) for (each,) in distributed.exchange([-1 if found is None else found[0]["state"]["step"]])]
        with fail_together():
            if len(set(steps)) > 1:
                said = ", ".join("none" if each < 0 else f"step {each}" for each in steps)
                differ = f"processes see different checkpoints in {self.path} ({said})"
                raise UserError("out", f"{differ}; give a folder that all machines share")
            if found is not None:
                self._check_data(found[0])
        return None if found is None else found[0]

    def write_settings(self) -> None:
        path = self.path / CONFIG
        with naming_full_disk(path, lambda: "free some space"), atomic_write(path) as draft:
            draft.write_text(to_yaml(self.config), encoding="utf-8")

    def _check_settings(self) -> None:
        changed = differences(from_yaml(self.path / CONFIG), self.config)
        if changed:
            more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
            raise UserError(
                "out",
                f"{self.path} holds a run with other settings ({'; '.join(changed[:NAMED])}{more}); give another "
                f"--out, or go on with that one: {resume_command(self.config, distributed.world_size())}",
            )

    def _check_data(self, state: dict[str, Any]) -> None:
        """Refuses data that is not what the run was begun with."""
        then, now = tuple(state["data"]), self.data.fingerprint
        if then != now:
            said = f"{then[0]:,} images then, {now[0]:,} {'others ' if then[0] == now[0] else ''}now"
            changed = f"the data of {self.path} has changed: {said}"
            raise UserError("data", f"{changed}; give another --out, or bring the data back")


def resume_command(config: Config, world: int) -> str:
    """The command that goes on with a run, in as many processes."""
    if config.data["name"] == build.OWN:
        return f"manyview.pretrain(data=..., resume={config.out!r}), with the same data"
    here = local_processes() if world == distributed.world_size() else world
    nodes = "" if here == world else f"--nnodes {world // here} "
    command = "manyview" if world == 1 else f"torchrun {nodes}--nproc-per-node {here} -m manyview"
    return f"{command} pretrain --resume {shlex.quote(str(config.out))}"
