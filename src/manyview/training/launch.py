"""Starts a run: from a recipe and the user's settings on top of it to `train`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from manyview.config import recipes
from manyview.config.config import MAY_CHANGE, OWN, Config, differences
from manyview.config.keys import Flat
from manyview.config.recipes import from_yaml
from manyview.config.resolve import resolve
from manyview.config.sections import flat
from manyview.core.errors import UserError
from manyview.data import Dataset
from manyview.data.torch_dataset import as_dataset
from manyview.training import build
from manyview.training.failures import naming_failures
from manyview.training.run import CONFIG, Run
from manyview.views import VIEWS

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset


def pretrain(
    data: str | os.PathLike[str] | Mapping[str, Any] | Dataset | TorchDataset[Any] | None = None,
    *,
    recipe: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Run:
    """Trains an encoder on unlabelled images. Called again with the same settings, it resumes.

    data      a folder; a name such as "cifar10" or "scenes"; either with options, {"name": "scenes", "count": 5000}; or
              a data set of your own, torch's or manyview's
    recipe    a name of `manyview list recipes`, or a YAML file
    resume    the folder of a run to resume
    settings  any key of `manyview show`; sections as dicts

    >>> run = manyview.pretrain("photos", method="jcl", epochs=50, loss={"temperature": 0.1})
    >>> encoder = manyview.load(run)
    """
    own = None
    if isinstance(settings.get("out"), os.PathLike):
        settings["out"] = os.fspath(settings["out"])
    if isinstance(data, str | os.PathLike):
        settings["data"] = os.fspath(data)
    elif isinstance(data, Mapping):
        settings["data"] = dict(data)
    elif data is not None:
        settings["data"], own = OWN, as_dataset(data)
    if resume is not None:
        if recipe is not None:
            raise UserError("recipe", f"{recipe} was given beside resume, and a run that was begun has its settings")
        return start(resumed(Path(resume), flat(settings)), own)
    return start(configured(recipe, flat(settings)), own)


def configured(recipe: str | os.PathLike[str] | None, given: Flat, *, smoke: bool = False) -> Config:
    """Resolves the settings of a run; with `smoke`, those of one that takes seconds."""
    found = recipes.Recipe("", {}, {}) if recipe is None else recipes.read(os.fspath(recipe))
    if not smoke:
        return resolve(found.settings, given)
    _check_parameters(found)
    return resolve(found.settings, recipes.smoke(found, given))


def resumed(folder: Path, given: Flat) -> Config:
    """Reads the settings of a run that was begun, of which only where and how it runs may be changed."""
    path = folder / CONFIG
    if not path.is_file():
        raise UserError("resume", f"{folder} is no run's folder, it has no {CONFIG}")
    if "out" in given:
        raise UserError("out", f"{given['out']} was given beside a run to go on with, which has its own; leave it out")
    before = from_yaml(path)
    name = given.get("data.name", before.data["name"])  # the data may have moved; it is known by its fingerprint
    others = {key: value for key, value in given.items() if key != "data.name"}
    after = resolve(before.flat(), {**others, "out": str(folder)})
    after = replace(after, data={**after.data, "name": name})
    if changed := differences(before, after):
        raise UserError(None, f"{changed[0]}: a run that was begun keeps its settings; only {MAY_CHANGE} may change")
    return after


def start(config: Config, own: Dataset | None = None, began: float | None = None) -> Run:
    """Trains with these settings; `began` as for `train`."""
    with naming_failures(config):
        build.check(config)
        from manyview.training.train import train  # the engine takes a second to import

        return train(config, own, began)


def encoder_parameters(config: Config) -> int:
    """Counts the parameters of the (first) encoder at its real size without allocating it."""
    first = next(iter(config.views or ()), "")
    channels = VIEWS[first].width(3) if first in VIEWS else 3
    with torch.device("meta"):
        return sum(each.numel() for each in build.encoder(config, channels).parameters())


def _check_parameters(recipe: recipes.Recipe) -> None:
    """Refuses a recipe whose encoder does not have the number of parameters that it states."""
    expected = recipe.about.get("parameters")
    if expected is None:
        return
    found = encoder_parameters(resolve(recipe.settings, {"data.name": recipes.SMOKE["data.name"]}))
    if found != expected:
        raise UserError(recipe.name, f"its encoder has {found:,} parameters, the recipe says {expected:,}")
