"""The model card of a run's encoder in Markdown: what it is, how to load it, how it was trained, and its scores.

A card is made to be published, so that it names no folder and no file of whoever trained the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from manyview import __version__
from manyview.core.text import one_line
from manyview.data import NAMED
from manyview.data.factory import SCENES
from manyview.evaluate.results import Result, read
from manyview.features.preprocess import Preprocess
from manyview.report.run_record import VIEW_KNN, RunRecord, read_records
from manyview.report.sections.scores import BASELINE, NO_SCORES, STD, of_present_weights
from manyview.training.evaluators import NEIGHBOURS
from manyview.training.load import load
from manyview.training.run import Run

SPECIAL = re.compile(r"([\\`*_\[\]|~$])")  # what Markdown would take for more than a character, anywhere in a line
FRONT = """\
---
library_name: timm
pipeline_tag: image-feature-extraction
tags:
- image-feature-extraction
- timm
- self-supervised-learning
# license: the weights are yours, and so is the choice
---
"""
USE = """\
```
import timm
model = timm.create_model("local-dir:PATH/TO/THIS/FOLDER", pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
```
"""
BEGUN = "It began with other weights, and not with random ones: their licence holds for these too."
OWN = "images of our own"


def model_card(folder: str | Path, view: str | None = None) -> str:
    """Writes the card of a run's encoder; `view` chooses one where the run has one per view."""
    (record,) = read_records([Run(Path(folder))])
    encoder = load(record.run, view)
    assert isinstance(encoder.preprocess, Preprocess)
    name = f"{encoder.name.partition('/')[2]}, {record.method}"
    what = (
        f"An image encoder that was trained without labels: {_plain(encoder.name)}, "
        f"{encoder.options['channels']} x {encoder.options['size']} x {encoder.options['size']} pixels "
        f"to {encoder.dim} numbers."
    )
    shown = "" if encoder.preprocess.input.is_plain else " timm's transforms do not do this."
    parts = [
        f"{FRONT}\n# {_plain(name)}\n\n{what}\n",
        f"## How to load it\n\n{USE}\nPreprocessing: {_plain(str(encoder.preprocess))}.{shown}\n",
        f"## How it was trained\n\n{_training(record, view)}\n",
        f"## How good it is\n\n{_scores(record, view)}\n",
        f"Written by manyview {__version__}.",
    ]
    return "\n".join(parts)


def _training(record: RunRecord, view: str | None) -> str:
    config = record.config
    facts = {
        "method": record.method,
        "view": view,
        "images": _data_name(config.data["name"]),
        "training": f"{record.steps:,} steps of {config.batch_size:,} images",
        "augmentation": config.augmentation["name"],
        "optimizer": f"{config.optimizer['name']}, learning rate {config.optimizer['lr']:g}",
        "precision": config.precision,
        "seed": config.seed,
    }
    lines = [f"* {name}: {_plain(str(value))}" for name, value in facts.items() if value is not None]
    unfinished = [] if record.finished else ["The run has not ended: these are the weights of its last checkpoint."]
    begun = [BEGUN] if config.encoder.get("pretrained") or config.encoder.get("weights") else []
    return "\n".join([*lines, *(f"\n{each}" for each in (*begun, *unfinished))])


def _scores(record: RunRecord, view: str | None) -> str:
    rows = list(_during_training(record, view))
    results = [result for result in read(record.folder) if result.protocol != BASELINE]
    for result in of_present_weights(record, results):
        rows += _rows(result, view)
    if not rows:
        return "It has not been scored: `manyview evaluate RUN` does, where there are labels."
    head = "In percent; what the untrained network reaches as well was not learnt.\n\n"
    table = ["| score | trained | untrained | measured on |", "| --- | --- | --- | --- |"]
    return head + "\n".join([*table, *("| " + " | ".join(row) + " |" for row in rows)])


def _during_training(record: RunRecord, view: str | None) -> Iterator[tuple[str, ...]]:
    metric = "knn" if view is None else VIEW_KNN + view
    points = record.curve(metric)
    if points:
        name, data = f"kNN, {NEIGHBOURS} neighbours, last epoch", _data_name(record.config.data["name"])
        yield _plain(name), _percent(points[-1][1]), _percent(record.before(metric)), _plain(f"{data}, held out")


def _rows(result: Result, view: str | None) -> Iterator[tuple[str, ...]]:
    """Makes a row per score, of the view where there are several; the settings stand beside the first."""
    said = [f"{name} {value}" for name, value in result.settings.items() if value is not None]
    data = f"{_data_name(result.data.get('name'))}: {result.data.get('test')} of {result.data.get('classes')} classes"
    measured = f"{data}; seed {result.seed}; {', '.join(said)}"
    for name, value in result.scores.items():
        if any(word in name for word in NO_SCORES) or name.endswith(STD):
            continue
        if view is None or name.startswith(f"{view} "):
            before = (result.untrained or {}).get(name)
            yield _plain(f"{result.protocol} {name}"), _percent(value), _percent(before), _plain(measured)
            measured = "the same"


def _data_name(name: object) -> str:
    """Names a public data set; the name of a folder is kept private."""
    return str(name) if name in NAMED or name == SCENES else OWN


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _plain(text: str) -> str:
    """Writes text as one line that Markdown and HTML show unchanged."""
    return SPECIAL.sub(r"\\\1", escape(one_line(text), quote=False))
