"""The tasks by name, and `transfer`, which trains one from an encoder and from the baselines beside it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from manyview import __version__
from manyview.config.keys import Key, keys_of, typed
from manyview.core.atomic import atomic_write, check_writable, naming_setting
from manyview.core.bounds import MOST_WORKERS, AtLeast, AtMost, Between, check_bounds
from manyview.core.distributed import exchange, join_processes, rank
from manyview.core.errors import UserError, hint
from manyview.core.json_file import parse_json, read_json
from manyview.core.parallel import resolve_device
from manyview.core.text import digest
from manyview.data import Dataset
from manyview.data.dataset import few_samples, fingerprint
from manyview.embeddings.model_source import ALL, AnyModel, ModelSource, check_named, open_model, run_of
from manyview.evaluate.results import Result, find, put, read
from manyview.features.embedding_pass import naming_lost_worker
from manyview.training.load import normals_options, run_views
from manyview.training.run import Run
from manyview.transfer.detect import detect, instances, keypoints
from manyview.transfer.fit import MODEL, Training, fit
from manyview.transfer.loss_in_words import loss_in_words
from manyview.transfer.onnx_export import FILE as ONNX
from manyview.transfer.onnx_export import check_onnx
from manyview.transfer.prepared import DataSource, Prepared, Start
from manyview.transfer.records import HOME, SCORES, About, write_about
from manyview.transfer.segment import segment

Task = Callable[..., Prepared]
TASKS: dict[str, Task] = {"segment": segment, "detect": detect, "instances": instances, "keypoints": keypoints}
"""name -> a function of a `DataSource`, whose keyword arguments are the task's settings.

It refuses wrong settings and data in one line, and trains nothing yet.
"""

Data = str | os.PathLike[str] | Mapping[str, Any]


def transfer(
    model: AnyModel,
    task: str,
    data: Data | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    untrained: bool = True,
    supervised: bool = True,
    recompute: bool = False,
    onnx: bool = False,
    seed: int = 0,
    device: str | torch.device = "auto",
    workers: int | None = None,
    quiet: bool = True,
    say: Callable[[str], object] = lambda text: None,
    **encoder: Any,
) -> Result:
    """Trains a task from an encoder and scores it, beside the same from the untrained network, and from scratch.

    model       a run, a file, an encoder or the name of one, as for `open_model`; of a run with an encoder a view each
                of them is scored, and all side by side where the task can do that
    task        a name of `TASKS`
    data        a folder or a name, or a table of it and its options; of a run, without it, the run's own
    settings    of the task
    out         the folder of results.json and of all trainings; of a run, without it, RUN/transfer
    untrained   whether the untrained network is scored too, with the same settings
    supervised  whether the network trained from scratch is, where the settings keep the encoder as it is
    recompute   compute what is there already
    onnx        write the trained model as ONNX too, each into the folder of its training
    quiet       show no progress
    say         gets what is to be told
    encoder     size, weights, pretrained, stem: which one is meant, where `model` is a name

    Called again it goes on where it was stopped, and trains nothing twice. In processes that torchrun has started all
    take part, and the first one writes and tells.

    >>> result = transfer("runs/demo", "segment", "scenes", settings={"epochs": 5})
    >>> result.scores["miou"], result.untrained["miou"], result.supervised["miou"]
    """
    check_bounds("workers", workers, [AtLeast(0), AtMost(MOST_WORKERS)])
    check_bounds("seed", seed, [Between(0, (1 << 63) - 1)])
    chosen = settings_of(task, settings or {})
    if onnx:
        check_onnx()
    check_named(model)
    run, place = run_of(model), join_processes(resolve_device(device))
    folder = _folder(out, run)
    check_writable("out", folder, folder)
    read(folder)  # what cannot be added to is said before anything is computed
    prepared = TASKS[task](_source(data, run), **chosen)
    if rank():
        quiet, say = True, _nothing
    for note in prepared.notes:
        say(note)
    source = open_model(model, seed=seed, like=prepared.train, **encoder)
    fresh = _without_scores(task, chosen, source, prepared, seed)
    kept = None if recompute else find(folder, fresh)
    job = Trainings(task, prepared, folder, fresh.key, seed, place, workers, recompute, onnx, quiet, say)
    with naming_lost_worker():
        return job.run(source, fresh if kept is None else replace(kept, data=fresh.data, model=fresh.model),
                       untrained=untrained, supervised=supervised)  # fmt: skip


def settings_of(task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a task, those given and the others by default; texts are read as flags are."""
    keys = schema(task)
    named = {key.replace("-", "_"): value for key, value in given.items()}
    for key in named:
        if key not in keys:
            raise UserError(key, f"{task} has no such setting; {hint(key, keys)}")
    return typed(keys, {}, named)


def schema(task: str) -> dict[str, Key]:
    """The settings that a task has: the keyword arguments of its function."""
    if task not in TASKS:
        raise UserError("task", f"there is none named {task!r}; {hint(task, TASKS)}")
    keys = keys_of(task, TASKS[task], hidden=("data",), part="task")
    return {name.partition(".")[2]: key for name, key in keys.items()}


@dataclass(frozen=True, eq=False)
class Trainings:
    """Trains a task from one model after the other, each in a folder of its own, and writes down what is found.

    key  stands for all that the scores of the model depend on
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

    def run(self, model: ModelSource, result: Result, *, untrained: bool, supervised: bool) -> Result:
        """The model's scores, and then those of the baselines that are asked for and can be had."""
        own = "trained" if model.trained else "untrained"
        if not result.scores or self.onnx:
            begun = time.monotonic()
            scores = self._scores(model, own, self.prepared.training, onnx=self.onnx)
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
        self.say(f"{text}: {_logged_in_words(home)}")
        state = {name: each.detach().cpu().contiguous() for name, each in training.model.state_dict().items()}
        with atomic_write(home / MODEL) as draft:
            save_file({name: each.clone() for name, each in state.items()}, draft)
        training.write(home)
        write_about(home, about)
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


def _nothing(text: str) -> None:
    """What another process than the first one says."""


def _logged_in_words(home: Path) -> str:
    """What the loss did, from the log of a training."""
    losses = []
    with suppress(OSError, ValueError, KeyError):
        losses = [float(parse_json(line)["loss"]) for line in (home / "metrics.jsonl").read_text().splitlines()]
    return loss_in_words(losses) if losses else "trained"


def _folder(out: str | os.PathLike[str] | None, run: Run | None) -> Path:
    if out is None and run is None:
        raise UserError("out", "is needed; give the folder where the results are to be")
    folder = Path(out) if out is not None else run.folder / HOME  # type: ignore[union-attr]
    with naming_setting("out", folder):
        return folder.absolute() if not folder.exists() else folder


def _source(data: Data | None, run: Run | None) -> DataSource:
    """The data by its name, or the run's own, and what the encoders see of it."""
    several = () if run is None else run_views(run)
    views = several if run is None or several else run.config.views or ()
    more = {} if run is None else normals_options(run, views)
    given = data if isinstance(data, Mapping) else {}
    if data is None:
        if run is None or run.config.own_data:
            raise UserError("data", "is needed; give --data, a folder or a name of `manyview list data`")
        data = {"name": run.config.data["name"], **run.config.data_options}
    named = {"name": os.fspath(data)} if isinstance(data, str | os.PathLike) else dict(data)
    left_out = ("name", "imbalance", "statistics")
    options = {**more, **{key: value for key, value in named.items() if key not in left_out}}
    return DataSource(str(named["name"]), options, tuple(views), frozenset(options.keys() - given.keys()))


def _without_scores(
    task: str, settings: Mapping[str, Any], model: ModelSource, prepared: Prepared, seed: int
) -> Result:
    """A result that says what its scores would depend on."""
    splits = {"train": prepared.train, "test": prepared.test}
    data = {
        "name": prepared.name, "train": len(prepared.train), "test": len(prepared.test),
        "classes": list(prepared.classes), "held_out": prepared.held_out,
        "fingerprints": {split: _fingerprint(each, prepared.classes) for split, each in splits.items()},
    }  # fmt: skip
    about = {
        "name": model.name, "encoder": ", ".join(each.name for each in model.encoders.values()),
        "size": model.size, "trained": model.trained, "checksum": model.checksum,
        **({"views": list(model.encoders)} if len(model.encoders) > 1 else {}),
    }  # fmt: skip
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return Result(task, plain, {}, data, seed, about, __version__, when)


def _fingerprint(data: Dataset, classes: tuple[str, ...]) -> list[int]:
    return list(fingerprint(data, few_samples(data), classes=classes))
