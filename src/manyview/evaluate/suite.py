"""Suites: one protocol on many data sets, whose scores are averaged and compared with those of another encoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyview.core.atomic import expanded
from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.data import Dataset
from manyview.data.dataset import label_sets
from manyview.data.elevater import elevater_folder, open_elevater
from manyview.data.factory import divided
from manyview.data.named import NAMED, default_root, open_named
from manyview.embeddings.open_model import AnyModel
from manyview.evaluate.protocols import evaluate
from manyview.evaluate.shot_transfer import Metric

PROTOCOL = "shot-transfer"


@dataclass(frozen=True)
class SuiteSet:
    """A data set of a suite: its name, what the paper's table calls it, and what it is scored by."""

    name: str
    title: str
    metric: Metric = "accuracy"


ELEVATER = (
    SuiteSet("caltech101", "Caltech101", "mean-per-class"),
    SuiteSet("cifar10", "CIFAR10"),
    SuiteSet("cifar100", "CIFAR100"),
    SuiteSet("country211", "Country211"),
    SuiteSet("dtd", "DescriTextures"),
    SuiteSet("eurosat", "EuroSAT"),
    SuiteSet("fer2013", "FER2013"),
    SuiteSet("fgvc-aircraft", "FGVC Aircraft", "mean-per-class"),
    SuiteSet("food101", "Food101"),
    SuiteSet("gtsrb", "GTSRB"),
    SuiteSet("hateful-memes", "HatefulMemes", "roc-auc"),
    SuiteSet("kitti-distance", "KITTI"),
    SuiteSet("mnist", "MNIST"),
    SuiteSet("flowers102", "Oxford Flowers", "mean-per-class"),
    SuiteSet("pets", "Oxford Pets", "mean-per-class"),
    SuiteSet("pcam", "PatchCamelyon"),
    SuiteSet("rendered-sst2", "Rendered SST2"),
    SuiteSet("resisc45", "RESISC45"),
    SuiteSet("cars", "Stanford Cars"),
    SuiteSet("voc2007", "VOC2007", "11-point-map"),
)
"""CACR's Table 6, in its order; the metrics are those of ELEVATER (Li et al., NeurIPS 2022)."""

SUITES: dict[str, tuple[SuiteSet, ...]] = {"elevater": ELEVATER}


@dataclass
class SuiteScores:
    """The scores of some encoders on the sets of a suite.

    by_model  encoder -> set -> score's name -> a share from 0 to 1
    missing   sets that are not there, and why
    failed    sets that are there and that some encoder could not be scored on, and why
    """

    sets: tuple[SuiteSet, ...]
    by_model: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def scored(self) -> tuple[SuiteSet, ...]:
        """The sets that every encoder has scores of."""
        return tuple(each for each in self.sets if all(each.name in scores for scores in self.by_model.values()))


def open_set(
    name: str, root: str | os.PathLike[str] | None = None, *, download: bool = False
) -> tuple[Dataset, Dataset]:
    """Training and test images of a set of ELEVATER: its own copy where that is there, else the set as published.

    Sets that are published without a test split (caltech101, eurosat, kitti-distance, resisc45) then have a tenth of
    their images held out, which are other images than ELEVATER's.
    """
    home = default_root() if root is None else expanded("root", root)
    if elevater_folder(home, name) is not None:
        return open_elevater(home, name, "train"), open_elevater(home, name, "test")
    train = open_named(name, root=home, download=download)
    if label_sets(train) is not None:
        return train, open_named(name, root=home, split="test")
    found = divided(name, root=home, download=download)
    if found.test is None:
        raise UserError(name, f"it has no test images: {found.test_unused or 'too few to hold some out'}")
    return found.train, found.test


def evaluate_suite(
    models: Mapping[str, AnyModel],
    suite: str = "elevater",
    *,
    root: str | os.PathLike[str] | None = None,
    download: bool = False,
    settings: Mapping[str, Any] | None = None,
    outs: Mapping[str, Path] | None = None,
    say: Callable[[str], object] = lambda text: None,
    done: Callable[[str, str, dict[str, float]], object] = lambda model, name, scores: None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **common: Any,
) -> SuiteScores:
    """Scores encoders on every set of a suite that is on disk, set by set. One whose images will not do is left out.

    models    by the name that tables call them
    root      where the sets lie
    download  whether torchvision may fetch sets that are missing and that it can fetch
    settings  of the protocol `shot-transfer`; the metric is each set's own
    outs      the folder of results.json of each model: what is there is not computed again
    done      is told of each model's scores of a set as soon as they are there
    options   of `evaluate` that a model has by itself; `common` are those of all

    >>> evaluate_suite({"MoCov3": "runs/moco", "CACR": "runs/cacr"}, root="data").by_model
    """
    if suite not in SUITES:
        raise UserError("suite", f"expected one of {', '.join(SUITES)}, got {suite!r}")
    found = SuiteScores(SUITES[suite], {name: {} for name in models})
    opened: dict[SuiteSet, tuple[Dataset, Dataset]] = {}
    for each in SUITES[suite]:  # all before the first is trained on, which may take hours
        try:
            opened[each] = open_set(each.name, root, download=download and NAMED[each.name].fetched)
        except (UserError, OSError) as error:
            found.missing[each.name] = reason(error)
            say(f"left out, {found.missing[each.name]}")
    for each, data in opened.items():
        given = {PROTOCOL: {**(settings or {}), "metric": each.metric}}
        try:
            for name, model in models.items():
                (result,) = evaluate(
                    model, data, [PROTOCOL], settings=given, out=(outs or {}).get(name), untrained=False,
                    say=say, called=each.name, **{**common, **(options or {}).get(name, {})},
                )  # fmt: skip
                found.by_model[name][each.name] = result.scores
                done(name, each.name, result.scores)
        except (UserError, OSError) as error:  # of this set or its images: the others take hours and are scored
            found.failed[each.name] = reason(error)
            say(f"left out, {each.name}: {found.failed[each.name]}")
    return found
