"""What makes a comparison fair: which runs there are, with which batch, for how long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from manyview import encoders
from manyview.config import recipes
from manyview.config.config import RUNTIME_KEYS, Config, component, components
from manyview.config.keys import Flat, flag_name
from manyview.config.sections import ENCODER, SECTIONS, flat
from manyview.core.errors import UserError
from manyview.core.names import hint
from manyview.methods import Method
from manyview.training.launch import configured

VIEWS = 2  # of an image, for which a batch size is meant
EACH = ("batch_size", "seed", *RUNTIME_KEYS)  # what a comparison sets for each run, or what no score depends on
SAME = ("data", "augmentation", "views", "encoder")  # sections on which a score depends as much as on the method

Unlike = dict[str, dict[str, Any]]
"""{setting: {method: value}}, of settings in which methods differ and which are not their own."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One run of a comparison: a method with a seed, in a folder of its own."""

    method: str
    seed: int
    config: Config

    @property
    def folder(self) -> Path:
        return Path(str(self.config.out))

    @property
    def name(self) -> str:
        return f"{self.method}, seed {self.seed}"


def entries(
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    given: Flat,
    *,
    recipe: str | None = None,
    same_batch: bool = False,
    epochs: Mapping[str, float] | None = None,
) -> list[Entry]:
    """All runs, seed after seed, so that every method has one before any has two.

    recipe      a recipe's name or file; {method} in it stands for the method's name
    same_batch  as many images a step for every method, instead of as many views
    epochs      by method, where they differ

    Runs of one seed begin with the same weights of the encoder and take the images in the same order: both are drawn
    from the seed alone.
    """
    _check(methods, seeds, given)
    found = []
    for seed in seeds:
        for method in methods:
            chosen = {**given, "method.name": method, "seed": seed, "out": str(out / name_of(method, seed))}
            if epochs is not None:
                chosen["epochs"] = epochs[method]
            named = recipe and recipe.replace("{method}", method)
            config = configured(named, chosen)
            as_it_is = same_batch or ("batch_size" not in given and _sets_batch(named))
            found.append(Entry(method, seed, config if as_it_is else _as_many_views(config)))
    return found


def name_of(method: str, seed: int) -> str:
    """Of the run's folder."""
    return f"{method}-{seed}"


def unlike(runs: Sequence[Entry], *, but: Collection[str] = ()) -> Unlike:
    """The settings, but those named, in which methods differ beyond their own parts and batch.

    A published recipe may have its own optimiser and schedule. Other images, views or encoders are refused: they would
    be compared, and not the methods.
    """
    settings = {entry.method: entry.config.flat() for entry in runs if entry.seed == runs[0].seed}
    own = {
        "method",
        *(part for entry in runs for part in entry.config.parts),
    }  # in which methods differ: that is compared
    found: Unlike = {}
    for key in dict.fromkeys(key for each in settings.values() for key in each):
        section, values = key.partition(".")[0], {name: _plain(each.get(key)) for name, each in settings.items()}
        if section in own or key in (*EACH, *but) or all(value == values[runs[0].method] for value in values.values()):
            continue
        if section in SAME:
            raise UserError(None, _unfair(key, values))
        found[key] = values
    return found


def spelt(found: Unlike) -> str:
    """`optimizer.lr (dcl 0.03, simclr 0.06), epochs (dcl 200, simclr 100)`"""
    return ", ".join(
        f"{key} ({', '.join(f'{method} {value}' for method, value in values.items() if value is not None)})"
        for key, values in found.items()
    )


def images_an_epoch(runs: Sequence[Entry], images: int) -> dict[str, int]:
    """By method, how many of the images an epoch has: a last batch that is not full is left out."""
    return {entry.method: images - images % entry.config.batch_size for entry in runs}


def looks(config: Config) -> int:
    """Views of an image that a step takes."""
    with torch.device("meta"):
        method: Method = component(config, "method")(encoders.create(ENCODER, size=32), **components(config))
    return method.looks


def _sets_batch(recipe: str | None) -> bool:
    """Whether a recipe has a batch of its own, which is left as it is."""
    return recipe is not None and "batch_size" in recipes.read(recipe).settings


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def _unfair(key: str, values: Mapping[str, Any]) -> str:
    one, first = next(iter(values.items()))
    other, second = next((method, value) for method, value in values.items() if value != first)
    return (
        f"{key}: {one} has {first}, {other} has {second}; methods are compared on the same images, views and encoder: "
        f"give --{flag_name(key)} for all"
    )


def _as_many_views(config: Config) -> Config:
    """The batch divided where a method takes more than two views of an image, as CACR (section 5.1) does for K = 4."""
    several = looks(config)
    if several == VIEWS:
        return config
    splits = config.method.get("bn_splits", 1)
    batch = VIEWS * config.batch_size // several // splits * splits
    if batch < VIEWS:
        raise UserError(
            "batch_size",
            f"{config.batch_size} images of {VIEWS} views are {batch} of {several}, which "
            f"{config.method['name']} takes; give at least {several}, or --same-batch",
        )
    return replace(config, batch_size=batch)


def _check(methods: Sequence[str], seeds: Sequence[int], given: Flat) -> None:
    known = SECTIONS["method"].table
    for name in methods:
        if name not in known:
            raise UserError("methods", f"there is no method {name!r}; {hint(name, known)}")
    if not methods or len(set(methods)) < len(methods):
        raise UserError("methods", f"expected different names, got {', '.join(methods) or 'none'}")
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(
            "seeds", f"expected how many, or different numbers from 0, got {', '.join(map(str, seeds)) or 0}"
        )
    for key in ("method.name", "seed", "out", "max_steps"):
        if key in flat(given):
            raise UserError(None, f"{key}: a comparison sets it for each run; leave it out")
