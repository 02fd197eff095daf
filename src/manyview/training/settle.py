"""Settles what a run's settings left open, once its data and its machine are known."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from manyview.config.config import OWN, Config
from manyview.config.keys import Flat
from manyview.config.resolve import resolve
from manyview.core.errors import UserError
from manyview.data import NAMED
from manyview.data.factory import SCENES
from manyview.data.named_labels import is_table_of_labels
from manyview.training import crops, normalisation
from manyview.training.build import device, encoder, takes_many
from manyview.training.run_data import RunData
from manyview.training.usual import Facts, computes_bf16, slow_in_bf16, usual
from manyview.views.augmentation_recipes import usual_augmentation, usual_size


def settled(config: Config, found: RunData) -> Config:
    """Settles everything that depends on the data and the machine, and the run's folder."""
    config = with_chosen(config, usual(config, facts(config, found)))
    size = config.augmentation["size"] or usual_size(found.side)
    name = config.augmentation["name"]
    name = usual_augmentation(size, len(found.views)) if name == "auto" else name
    augmentation, source = {**config.augmentation, "name": name, "size": size}, _absolute(config.data)
    augmentation |= crops.settled(config, size)
    if "statistics" in source:
        source |= normalisation.as_settings(found.statistics, source["nodata"])
    if found.opened_anew and not config.own_data:
        source["modalities"] = found.modalities
    encoder = {**config.encoder}
    if isinstance(encoder["pretrained"], str) and os.path.isfile(encoder["pretrained"]):
        encoder["pretrained"] = os.path.abspath(encoder["pretrained"])
    views = tuple(found.views) if takes_many(config) else config.views
    config = replace(config, augmentation=augmentation, data=source, encoder=encoder, views=views)
    config = with_chosen(config, {})
    images = source["name"]
    if config.out and os.path.isabs(images) and os.path.realpath(config.out) == os.path.realpath(images):
        raise UserError("out", f"{config.out} is the folder of the images; give another, which is made")
    return config if config.out else replace(config, out=str(Path("runs") / _name(config, found)))


def facts(config: Config, found: RunData) -> Facts:
    """Collects the facts about data and machine that settle open settings."""
    machine = device(config)
    bf16 = "precision" in config.auto and computes_bf16(machine)
    if bf16 and machine == "cpu" and "encoder.name" not in config.auto:
        size = config.augmentation["size"] or usual_size(found.side)
        sized = replace(config, augmentation={**config.augmentation, "size": size})
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            bf16 = not slow_in_bf16(encoder(sized, next(iter(found.channels.values())), begun=True))
    return Facts(len(found.train), found.side, machine, bf16)


def with_size(config: Config, views: int, size: int) -> Config:
    """Returns the settings with views of another size, and the augmentation that suits it unless one was named."""
    open_name = "augmentation.name" in config.auto
    name = usual_augmentation(size, views) if open_name else config.augmentation["name"]
    kept = {key: value for key, value in config.flat().items() if key != "augmentation.small_size"}
    made = resolve(kept, {"augmentation.name": name, "augmentation.size": size})
    return replace(made, augmentation={**made.augmentation, **crops.settled(made, size)}, auto=config.auto)


def with_chosen(config: Config, chosen: Flat) -> Config:
    """Returns the settings with values for some that were left open, checked as if they had been given."""
    return replace(resolve({**config.flat(), **chosen}, {}), auto=config.auto)


def _absolute(source: dict[str, Any]) -> dict[str, Any]:
    """Returns the data's settings with absolute folders, however they were typed."""
    found = dict(source)
    if source["name"] not in (OWN, SCENES, *NAMED):
        found["name"] = os.path.abspath(source["name"])
    if source.get("root"):
        found["root"] = os.path.abspath(source["root"])
    if is_table_of_labels(source.get("labels")):
        found["labels"] = os.path.abspath(source["labels"])
    return found


def _name(config: Config, found: RunData) -> str:
    """Names the folder by settings and data, so that the same command finds the same run again."""
    settings = {**config.fixed(), **dict.fromkeys(config.auto, "auto")}
    settings["data.name"] = found.fingerprint[:2] if config.own_data else config.data["name"]  # copies have other times
    digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()[:6]
    source = "own" if config.own_data else os.fsencode(Path(config.data["name"]).name).decode("utf-8", "replace")
    return f"{config.method['name']}-{source or 'data'}-{digest}"
