"""Makes a task of what a person would name: a model, and data that is divided into training and test images."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from manyview.config.config import OWN
from manyview.core.bounds import MOST, MOST_WORKERS, AtLeast, AtMost, Between, check_bounds
from manyview.core.errors import UserError
from manyview.core.parallel import resolve_device
from manyview.data import Dataset, TorchDataset, subset
from manyview.data.factory import Divided, divided_for
from manyview.data.normals import NORMALS, WithNormals, requested
from manyview.data.selection import having, only_modalities
from manyview.data.torch_dataset import as_dataset
from manyview.embeddings.open_model import AnyModel, check_named, open_model, run_of
from manyview.evaluate.task import Task, check_labels
from manyview.features.feature_cache import FeatureCache
from manyview.training.load import normals_options, run_views
from manyview.training.run import Run

Data = str | os.PathLike[str] | Mapping[str, Any] | Dataset | tuple[Dataset, Dataset]


def prepare(
    model: AnyModel,
    data: Data | None = None,
    *,
    seed: int = 0,
    device: str | torch.device = "auto",
    workers: int | None = None,
    batch_size: int = 256,
    cache: FeatureCache | None = None,
    show_bar: bool = False,
    called: str | None = None,
    **encoder: Any,
) -> Task:
    """A task from what a person would name.

    model    as for `open_model`
    data     a name or a folder, a table of it and its options ({"name": "scenes", "count": 500}), a data set, or two
             of them, to train on and to test on. Of a run, without it, the run's own, divided as in training, and with
             the training images that an imbalance left out of it: CACR (C.1) trains its classifiers on all
    called   what the data is called, where it is a data set or two
    encoder  size, weights, pretrained, stem: which one is meant, where `model` is a name
    """
    check_bounds("batch_size", batch_size, [AtLeast(1), AtMost(MOST)])
    check_bounds("workers", workers, [AtLeast(0), AtMost(MOST_WORKERS)])
    check_bounds("seed", seed, [Between(0, (1 << 63) - 1)])
    check_named(model)  # before the data is opened, so that a misspelt run is what the error is about
    place = resolve_device(device)
    run = run_of(model)
    name, found = _open(data, run)
    name = called or name
    source = open_model(model, seed=seed, like=found.train, **encoder)
    if found.test is None:
        check_labels(found.train, name)
        raise UserError("data", f"{name} has too few labelled images to hold out a tenth; give more, or a test split")
    modalities = list(dict.fromkeys(source.modality(view, found.train) for view in source.encoders))
    train, test = (_usable(each, modalities, name) for each in (found.train, found.test))
    imbalance = None if data is not None or run is None else run.config.data.get("imbalance")
    return Task(
        source, train, test, name, seed, place, workers, batch_size, cache, show_bar,
        found.held_out, found.test_unused, imbalance,
    )  # fmt: skip


def _open(data: Data | None, run: Run | None) -> tuple[str, Divided]:
    if data is None:
        if run is None:
            raise UserError("data", "is needed; give --data, a folder or a name of `manyview list data`")
        if run.config.own_data:
            raise UserError("data", f"{run.folder} was trained on a data set of your own; give it")
        data = {"name": run.config.data["name"], **run.config.data_options, "imbalance": None}
    several = () if run is None else run_views(run)
    views = several if run is None or several else run.config.views or ()
    more = {} if run is None else normals_options(run, views)
    if isinstance(data, tuple):
        train, test = map(as_dataset, data)
        if isinstance(train, TorchDataset) and isinstance(test, TorchDataset) and not (train.known or test.known):
            test = test.numbered(len(train))  # both count from 0, and are not the same images for that
        if NORMALS in requested(train, views):
            train, test = (WithNormals(each, **more) for each in (train, test))
        return OWN, Divided(train, test)
    named = {"name": os.fspath(data)} if isinstance(data, str | os.PathLike) else data
    if isinstance(named, Mapping):
        options = {**more, **{key: value for key, value in named.items() if key != "name"}}
        return str(named["name"]), divided_for(views, str(named["name"]), unlabelled=bool(several), **options)[0]
    return OWN, divided_for(views, as_dataset(named), unlabelled=bool(several), **more)[0]


def _usable(data: Dataset, modalities: list[str], name: str) -> Dataset:
    """The labelled samples that have one of the modalities or more."""
    unknown = [modality for modality in modalities if modality not in data.modalities]
    if unknown:
        raise UserError("data", f"{name} has no view {unknown[0]!r}; it has {', '.join(data.modalities)}")
    usable = torch.ones(len(data), dtype=torch.bool) if data.labels is None else data.labels >= 0
    there = having(data)
    for each in modalities:
        if not (usable & there[each]).any():
            raise UserError("data", f"{name} has no labelled image with {each}")
    usable &= torch.stack([there[each] for each in modalities]).any(0)
    chosen = data if usable.all() else subset(data, usable)
    return only_modalities(chosen, modalities) if len(modalities) == 1 else chosen
