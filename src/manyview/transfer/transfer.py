"""The tasks by name, and `transfer`, which trains one from an encoder and from the baselines beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from manyview.config.keys import Key, keys_of, typed
from manyview.core.atomic import check_writable, naming_setting
from manyview.core.bounds import MOST_WORKERS, AtLeast, AtMost, Between, check_bounds
from manyview.core.distributed import join_processes, rank
from manyview.core.errors import UserError, hint
from manyview.core.parallel import resolve_device
from manyview.data import Dataset, TooManyUnreadable
from manyview.data.dataset import few_samples, fingerprint
from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.open_model import AnyModel, check_named, open_model, run_of
from manyview.evaluate.results import Result, find, read, result_without_scores
from manyview.features.embedding_pass import naming_lost_worker
from manyview.training.load import normals_options, run_views
from manyview.training.run import Run
from manyview.transfer.detect import detect, instances, keypoints
from manyview.transfer.onnx_export import check_onnx
from manyview.transfer.prepared import DataSource, Prepared
from manyview.transfer.records import HOME
from manyview.transfer.segment import segment
from manyview.transfer.trainings import Trainings

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
    known = fresh if kept is None else replace(kept, data=fresh.data, model=fresh.model)
    try:
        with naming_lost_worker():
            return job.run(source, known, untrained=untrained, supervised=supervised)
    except TooManyUnreadable as error:  # which names a setting of pre-training
        raise UserError("data", error.message) from None


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


def _nothing(text: str) -> None:
    """What another process than the first one says."""


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
    return result_without_scores(task, settings, model, data, seed)


def _fingerprint(data: Dataset, classes: tuple[str, ...]) -> list[int]:
    return list(fingerprint(data, few_samples(data), classes=classes))
