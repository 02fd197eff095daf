"""What makes a comparison fair: which runs there are, with which batch, for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from manyview import encoders
from manyview.config import ENCODER, PARTS, SECTIONS, Config, Flat, flat, part
from manyview.launch import configured
from manyview.methods import Method

VIEWS = 2  # of an image, for which a batch size is meant


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
            config = configured(recipe and recipe.replace("{method}", method), chosen)
            as_it_is = same_batch or (
                recipe is not None and "batch_size" not in given
            )  # a recipe's batch is its own affair
            found.append(Entry(method, seed, config if as_it_is else _as_many_views(config)))
    return found


def name_of(method: str, seed: int) -> str:
    """Of the run's folder."""
    return f"{method}-{seed}"


def looks(config: Config) -> int:
    """Views of an image that a step takes."""
    parts = {name: part(config, name) for name in PARTS}
    with torch.device("meta"):
        method: Method = part(config, "method")(encoders.create(ENCODER, size=32), **parts)
    return method.looks


def _as_many_views(config: Config) -> Config:
    """The batch divided where a method takes more than two views of an image, as CACR (section 5.1) does for K = 4."""
    several = looks(config)
    if several == VIEWS:
        return config
    splits = config.method.get("splits", 1)
    batch = VIEWS * config.batch_size // several // splits * splits
    if batch < VIEWS:
        raise ValueError(
            f"batch_size: {config.batch_size} images of {VIEWS} views are {batch} of {several}, which "
            f"{config.method['name']} takes; give at least {several}, or --same-batch"
        )
    return replace(config, batch_size=batch)


def _check(methods: Sequence[str], seeds: Sequence[int], given: Flat) -> None:
    known = SECTIONS["method"].table
    for name in methods:
        if name not in known:
            raise ValueError(f"methods: there is no method {name!r}; there are {', '.join(known)}")
    if not methods or len(set(methods)) < len(methods):
        raise ValueError(f"methods: expected two or more different names, got {', '.join(methods) or 'none'}")
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds: expected how many, or different numbers from 0, got {', '.join(map(str, seeds))}")
    for key in ("method.name", "seed", "out", "max_steps"):
        if key in flat(given):
            raise ValueError(f"{key}: a comparison sets it for each run; leave it out")
