"""Trains a task from one model after the other, each in a folder of its own, and writes down what is found."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from manyview.core.atomic import atomic_write
from manyview.core.distributed import exchange, rank
from manyview.core.errors import UserError
from manyview.core.json_file import parse_json, read_json
from manyview.core.text import digest
from manyview.embeddings.model_source import ALL, ModelSource
from manyview.evaluate.results import Result, put
from manyview.transfer.fit import MODEL, Training, fit
from manyview.transfer.loss_in_words import loss_in_words
from manyview.transfer.onnx_export import FILE as ONNX
from manyview.transfer.prepared import Prepared, Start
from manyview.transfer.records import SCORES, About, write_about


@dataclass(frozen=True, eq=False)
class Trainings:
    """Trainings of one task from a model and from the baselines beside it.

    key   stands for all that the scores of the model depend on
    told  what was said of the data, which other trainings do not repeat
    """

    task: str
    prepared: Prepared
    folder: Path
    key: str
    seed: int
    device: torch.device
    workers: int | None
    recompute: bool
    onnx: bool
    quiet: bool
    say: Callable[[str], object]
    told: set[str] = field(default_factory=set)

    def run(self, model: ModelSource, result: Result, *, untrained: bool, supervised: bool) -> Result:
        """The model's scores, and then those of the baselines that are asked for and can be had."""
        own = "trained" if model.trained else "untrained"
        if not result.scores or self.onnx:
            begun = time.monotonic()
            scores = self._scores(model, own, self.prepared.training, onnx=self.onnx)
            if not result.scores:
                result = self._keep(replace(result, scores=scores, seconds=round(time.monotonic() - begun, 2)))
        first = self._first(model) if (untrained and model.trained) or supervised else None
        if first is None:
            return result
        if untrained and model.trained and result.untrained is None:
            result = self._keep(replace(result, untrained=self._scores(first, "untrained", self.prepared.training)))
        if supervised and result.supervised is None and self.prepared.supervised is not None:
            found = self._supervised(first, self.prepared.supervised)
            result = result if found is None else self._keep(replace(result, supervised=found))
        return result

    def _supervised(self, first: ModelSource, make: Callable[[Start], Training]) -> dict[str, float] | None:
        """The scores of the supervised baseline; None where it needs published weights that cannot be had."""
        try:
            return self._scores(first, "supervised", make)
        except UserError as error:
            if error.setting != "pretrained":
                raise
            self.say(f"no supervised score: {error}")
            return None

    def _first(self, model: ModelSource) -> ModelSource | None:
        """The networks before any training; None where they cannot be made again."""
        try:
            return model.untrained()
        except (ValueError, OSError) as error:
            self.say(f"no score of the untrained network: {error}")
            return None

    def _scores(
        self, model: ModelSource, kind: str, make: Callable[[Start], Training], *, onnx: bool = False
    ) -> dict[str, float]:
        """The scores of each part of a model: of the only encoder, or of each view's and of all side by side."""
        views = list(model.encoders)
        parts = {"": model} if len(views) == 1 else {view: model.only(view) for view in views}
        if len(views) > 1 and self.prepared.joins:
            parts[ALL] = model
        found: dict[str, float] = {}
        for part, each in parts.items():
            scores, home = self._of_part(each, part, kind, make)
            if onnx and not rank() and not (home / ONNX).is_file():
                self._export(make(self._start(each, kind)), home)
            found |= {f"{part} {name}" if part else name: value for name, value in scores.items()}
        return found

    def _start(self, model: ModelSource, kind: str) -> Start:
        return Start(model, self.seed, self.device, self.workers, baseline=kind != "trained")

    def _export(self, training: Training, home: Path) -> None:
        """Writes a model that was trained before as ONNX."""
        training.model.load_state_dict(load_file(home / MODEL))
        training.onnx(home / ONNX)
        self.say(f"wrote {home / ONNX}")

    def _of_part(
        self, model: ModelSource, part: str, kind: str, make: Callable[[Start], Training]
    ) -> tuple[dict[str, float], Path]:
        """Trains one part, or finds what was scored of it before; and the folder of its training."""
        known = digest([self.key, model.checksum, kind, part])
        home = self.folder / "-".join(filter(None, [self.task, part, kind, known[:8]]))
        if self.recompute:
            self._clear(home)
        elif (home / SCORES).is_file():
            found: dict[str, float] = read_json(home / SCORES, dict[str, float], remedy="remove it")
            return found, home
        exchange([0.0])  # what was cleared is gone for all processes
        text = " ".join(filter(None, [part, kind]))
        training = make(self._start(model, kind))
        fit(training, home, seed=self.seed, text=text, quiet=self.quiet)
        scores = dict(training.score())
        if not rank():
            self._write(training, home, scores, About(self.key, kind, part), text)
        exchange([0.0])  # all is written when the next one is asked for
        return scores, home

    def _write(self, training: Training, home: Path, scores: dict[str, float], about: About, text: str) -> None:
        """Writes what a training has come to, the scores last."""
        loss = _logged_in_words(home)
        self.say(f"{text}: {loss}")
        for line in training.remarks():
            if line not in self.told:
                self.say(line)
            self.told.add(line)
        state = {name: each.detach().cpu().contiguous() for name, each in training.model.state_dict().items()}
        with atomic_write(home / MODEL) as draft:
            save_file({name: each.clone() for name, each in state.items()}, draft)
        training.write(home)
        write_about(home, replace(about, loss=loss))
        with atomic_write(home / SCORES) as draft:
            draft.write_text(json.dumps(scores, indent=1, allow_nan=False))
        self._clear(home, "step-*.pt")

    def _clear(self, home: Path, *patterns: str) -> None:
        """Removes files of a training: its checkpoints, or all that it has written."""
        if rank():
            return
        for pattern in patterns or ("step-*.pt", SCORES, MODEL, ONNX, "metrics.jsonl"):
            for file in home.glob(pattern):
                file.unlink(missing_ok=True)

    def _keep(self, result: Result) -> Result:
        if not rank():
            put(self.folder, result)
        return result


def _logged_in_words(home: Path) -> str:
    """What the loss did, from the log of a training."""
    losses = []
    with suppress(OSError, ValueError, KeyError):
        losses = [float(parse_json(line)["loss"]) for line in (home / "metrics.jsonl").read_text().splitlines()]
    return loss_in_words(losses) if losses else "trained"
