"""A run's folder: what training left there, and the encoders that came out of it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from manyview import encoders
from manyview.config.config import Config
from manyview.config.yaml_file import from_yaml
from manyview.core.errors import UserError
from manyview.encoders.towers import SHARED
from manyview.features.preprocess import Preprocess
from manyview.methods.method import VIEW
from manyview.training import build
from manyview.training.checkpoint import Checkpoints
from manyview.views.view import view_named

CONFIG, METRICS, ENCODER, CHECKPOINTS = "config.yaml", "metrics.jsonl", "encoder.safetensors", "checkpoints"
REPORT = "report.html"


def encoder_files(folder: Path) -> list[Path]:
    """The files of the encoders that a run has written at its end."""
    return sorted(folder.glob("encoder*.safetensors"))


def encoder_file(view: str) -> str:
    """The name of the file of a view's encoder; of one that all views share, plain encoder.safetensors."""
    return ENCODER if view == SHARED else f"encoder-{view}.safetensors"


@dataclass(frozen=True)
class Run:
    """What `manyview.pretrain` gives back, and what the command line calls RUN: a folder.

    config.yaml          all settings; `manyview pretrain --recipe config.yaml --out NEW` runs the job again
    metrics.jsonl        what was measured, every 20 steps
    train.log            what was said
    checkpoints/         the last two, and the snapshots
    encoder.safetensors  what it was all for; `manyview.load(run)`. One a view where the method has that
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))  # for those who give a text

    @property
    def config(self) -> Config:
        return from_yaml(self.folder / CONFIG)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; what a run that was killed has half written is passed over."""
        path, found = self.folder / METRICS, []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
            with suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict) and isinstance(line.get("step"), int)]

    @property
    def knn(self) -> list[tuple[int, float]]:
        """(step, kNN accuracy), step 0 untrained; empty where the data has no labels."""
        return [(line["step"], line["knn"]) for line in self.metrics if line.get("knn") is not None]


def load(run: Run | str | Path, view: str | None = None) -> encoders.Encoder:
    """The encoder of a run, in eval mode, with the preprocessing it was trained with.

    view  whose encoder, where the run has one a view; without, the first

    >>> encoder = manyview.load("runs/dcl-photos-1a2b3c")
    >>> encoder(encoder.preprocess("cat.jpg"))                # (1, dim)

    Of a run that has not ended, the encoder of its last checkpoint.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    if not (folder / CONFIG).is_file():
        hint = "; a file of weights is for manyview.encoders.load" if folder.is_file() else ""
        raise UserError("run", f"{folder} is no run's folder, it has no {CONFIG}{hint}")
    config = from_yaml(folder / CONFIG)
    path = _file(folder, view)
    encoder = _of_checkpoint(folder, config, view) if path is None else encoders.load(path)
    seen = view_named(view or next(iter(config.views or ()), VIEW), VIEW)
    channels = 3 if seen.space is not None else encoder.options["channels"]
    encoder.preprocess = Preprocess(encoder.options["size"], channels, build.picture(config), seen)
    return encoder.eval()


def _file(folder: Path, view: str | None) -> Path | None:
    """The file of a view's encoder, or of the one that all views share; None where a checkpoint must be asked."""
    names = (ENCODER,) if view is None else (encoder_file(view), ENCODER)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _of_checkpoint(folder: Path, config: Config, view: str | None) -> encoders.Encoder:
    found = Checkpoints(folder / CHECKPOINTS).latest()
    if found is None:
        there = ", ".join(file.stem.removeprefix("encoder-") for file in encoder_files(folder))
        if there:
            raise UserError("view", f"{folder} has an encoder a view; give one of {there}, got {view!r}")
        raise UserError("run", f"{folder} has no encoder and no checkpoint yet; train it first")
    state, _ = found
    with torch.random.fork_rng():  # a method is drawn from its seed, which is no business of who loads one
        method = build.method(config, state["channels"], state["data"][0], begun=True)
    method.load_state_dict(state["method"])
    return method.towers.encoder(view)
