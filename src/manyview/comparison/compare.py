"""`compare`: from data and names of methods to a table, and a page."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from manyview.comparison.outcome import OUTCOME, Outcome, as_many, outcome
from manyview.comparison.plan import Entry, Unlike, entries, images_an_epoch, spelt, unlike
from manyview.comparison.scheduler import race, train_alone
from manyview.comparison.speed import equal_time
from manyview.config.config import Config, differences
from manyview.config.keys import Flat
from manyview.config.sections import flat
from manyview.config.yaml_file import to_yaml
from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.evaluate.protocols import evaluate, known
from manyview.evaluate.task import fingerprint
from manyview.features.feature_cache import FeatureCache
from manyview.training import build
from manyview.training.run import CONFIG, REPORT, Run

PLAN = "plan.json"  # what must stay the same when a comparison goes on
SCORED = {"knn_bank": 20_000, "knn_queries": 10_000}  # where nobody says how many: a comparison wants to be exact


def compare(
    data: str | os.PathLike[str],
    methods: Sequence[str],
    *,
    seeds: int | Sequence[int] = 3,
    minutes: float | None = None,
    recipe: str | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    same_batch: bool = False,
    protocols: Sequence[str] = (),
    say: Callable[[str], None] = print,
    **settings: Any,
) -> Outcome:
    """Trains every method with every seed and says which is better, by how much, at which cost.

    methods     the first is the one that the others are compared with
    seeds       how many, from 0, or which
    minutes     the same time of training for all, instead of the same epochs: their speeds are measured first
    recipe      whose settings all have; {method} in it stands for the method's name
    jobs        runs at a time, which share the cores
    same_batch  as many images a step for all, instead of as many views (see `plan.entries`)
    protocols   of `manyview.evaluate`, for the trained encoders, beside the kNN of training
    settings    any key of `manyview show`, for all

    A run that fails is left out, and named in the outcome; so is a score that a run's evaluation does not give.

    >>> print(manyview.compare("photos", ["simclr", "dcl", "jcl"], epochs=20).table())
    """
    given = {**SCORED, **flat({**settings, "data": os.fspath(data)})}
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    folder = Path(out or Path("runs") / f"compare-{Path(os.fspath(data)).name}")
    _check(given, jobs, minutes)
    protocols = known(protocols) if protocols else []

    def planned(epochs: Mapping[str, float] | None = None) -> list[Entry]:
        return entries(methods, numbers, folder, given, recipe=recipe, same_batch=same_batch, epochs=epochs)

    runs = planned()
    images = build.images(runs[0].config)
    _check_labels(runs[0].config, images)
    first = [replace(each, config=build.settled(each.config, images)) for each in runs if each.seed == runs[0].seed]
    for entry in first:
        _check_possible(entry, images)
    differing = _unlike(first, images, minutes, say)
    plan = _begun(folder, images)
    if minutes is not None:
        runs = planned(_timed(folder, plan, minutes, runs, say))
    for entry in runs:
        _check_begun(entry, images)
    _write(folder / PLAN, plan)

    failed = race(runs, jobs, say)
    done = [entry for entry in runs if entry not in failed]
    if not done:
        raise UserError(None, f"{folder}: every run has failed, as it says above")
    scores = {entry.folder: _judged(entry, protocols, say) for entry in done}
    asked = min(len(images.test or ()), done[0].config.knn_queries)
    left_out = [entry.name for entry in failed]
    found = outcome(folder, os.fspath(data), done, scores, asked=asked, failed=left_out, unlike=differing)
    _write(folder / OUTCOME, found.plain())
    _report(found, say)
    return found


def _check(given: Flat, jobs: int, minutes: float | None) -> None:
    if jobs < 1:
        raise UserError("jobs", f"expected 1 or more, got {jobs}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise UserError("minutes", f"expected a time above 0, got {minutes}")
    if minutes is not None and "epochs" in given:
        raise UserError("minutes", f"{minutes:g} and epochs {given['epochs']} are both given; give one of them")
    if minutes is not None and jobs > 1:
        raise UserError(
            "jobs", f"{jobs} runs at a time take each other's time, so their minutes are not the same; give 1"
        )


def _check_labels(config: Config, images: build.Images) -> None:
    if images.test is None or not (config.evaluators and config.evaluate_every):
        raise UserError("data", f"{config.data['name']} has no labels, or no kNN, so nothing says which is better")


def _check_possible(entry: Entry, images: build.Images) -> None:
    """What a run would be refused for, before any of them trains."""
    build.check(entry.config)
    if entry.config.batch_size > len(images.train):
        given = f"{entry.config.batch_size} images a step of {entry.method} are more than the {len(images.train):,}"
        raise UserError("batch_size", f"{given} there are to learn from; give a smaller --batch-size")
    with suppress(RuntimeError), torch.device("meta"):  # which some networks cannot be built on
        build.encoder(entry.config, images.channels, begun=True)


def _unlike(first: Sequence[Entry], images: build.Images, minutes: float | None, say: Callable[[str], None]) -> Unlike:
    """In which settings methods differ that are not their own, and whether they see as many images: said before any
    of them trains."""
    found = unlike(first, but=() if minutes is None else ("epochs",))
    if found:
        say(f"the methods differ also in: {spelt(found)}")
    if minutes is None:
        _tell_fewer(images_an_epoch(first, len(images.train)), len(images.train), say)
    return found


def _tell_fewer(seen: Mapping[str, int], images: int, say: Callable[[str], None]) -> None:
    if not as_many(list(seen.values())):
        counts = ", ".join(f"{method} {count:,}" for method, count in seen.items())
        say(
            f"warning: of {images:,} images an epoch has {counts}, since a last batch that is not full is left out; a "
            "smaller --batch-size makes them more alike"
        )


def _begun(folder: Path, images: build.Images) -> dict[str, Any]:
    """The plan of the comparison in this folder, if that is of these images; else a new one."""
    mark = fingerprint(images.train)
    path = folder / PLAN
    plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"images": mark}
    if plan["images"] != mark:
        raise UserError("out", f"{folder} holds a comparison on other images; give another --out")
    return plan


def _check_begun(entry: Entry, images: build.Images) -> None:
    """That what is in a run's folder is that run."""
    if (entry.folder / CONFIG).is_file():
        changed = differences(Run(entry.folder).config, build.settled(entry.config, images))
        if changed:
            raise UserError("out", f"{entry.folder} holds a run with other settings ({changed[0]}); give another --out")


def _timed(
    folder: Path, plan: dict[str, Any], minutes: float, runs: Sequence[Entry], say: Callable[[str], None]
) -> dict[str, float]:
    """Epochs by method that take so many minutes, as measured when the comparison was begun."""
    if plan.setdefault("minutes", minutes) != minutes:
        raise UserError("minutes", f"{folder} was begun with {plan['minutes']:g}; give that, or another --out")
    measured: dict[str, dict[str, Any]] = plan.setdefault("epochs", {})
    marks = {entry.method: _mark(entry.config) for entry in runs}
    new = [
        entry
        for entry in runs
        if entry.seed == runs[0].seed and measured.get(entry.method, {}).get("of") != marks[entry.method]
    ]
    if new:
        say(f"measuring how fast {', '.join(entry.method for entry in new)} train")
        for method, epochs in equal_time(new, minutes, run=train_alone).items():
            measured[method] = {"epochs": epochs, "of": marks[method]}
            say(f"{method}: {60 * minutes / epochs:.1f} s an epoch, so {epochs:g} epochs")
        _write(folder / PLAN, plan)
    return {method: measured[method]["epochs"] for method in marks}


def _mark(config: Config) -> str:
    """Of all settings that say how fast a run is."""
    return hashlib.blake2b(to_yaml(replace(config, seed=0, out=None)).encode(), digest_size=8).hexdigest()


def _judged(entry: Entry, protocols: Sequence[str], say: Callable[[str], None]) -> dict[str, float]:
    """Further scores of a trained encoder, by protocol and score; one that cannot be had is said and left out."""
    found = {}
    for protocol in protocols:
        try:
            (result,) = evaluate(entry.folder, None, [protocol], untrained=False, store=FeatureCache())
        except (ValueError, OSError) as error:
            say(f"{entry.name}: {protocol} is left out: {reason(error)}")
            continue
        name, value = next(iter(result.scores.items()))
        found[protocol if name == "top1" else f"{protocol} {name}"] = value
    return found


def _report(found: Outcome, say: Callable[[str], None]) -> None:
    """The page; the comparison has ended well, whatever becomes of it."""
    from manyview.report.page import write

    try:
        say(f"report {write(found.runs(), found.folder / REPORT, compared=found)}")
    except Exception as error:
        say(f"no report was written: {reason(error)}; try `manyview report {found.folder}`")


def _write(path: Path, plain: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as draft:
        draft.write_text(json.dumps(plain, indent=1), encoding="utf-8")
