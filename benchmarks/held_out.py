"""What defaults are chosen by: short trainings with one setting changed, scored on held-out training images.

    python benchmarks/held_out.py usual --data DIR --size 64 --seconds 20
    python benchmarks/held_out.py continued --data DIR --images 4000 --start encoder.safetensors --seconds 60
    python benchmarks/held_out.py start --data DIR --seconds 60 --to encoder.safetensors  # an encoder to start from

DIR is a folder of images, or `scenes`; of its training images every tenth is held out, of fewer than 1,000 every third,
and no test image is read. Each row trains from the same weights, in one thread, for so many seconds of the processor.
Scores: the share of held-out images whose augmented view finds its own image first ("own"), kNN (k = 20, T = 0.1) where
there are classes, and the gain over the start with its standard error over the images. Rows in --out are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from contenders import Ours
from torch import Tensor

from manyview.data import Dataset, Loader, open_data, subset
from manyview.encoders import save
from manyview.encoders.towers import SHARED
from manyview.features.embedding_pass import embedding, forward
from manyview.features.gain import gain_error, gain_in_points
from manyview.features.knn import knn
from manyview.features.retrieval import found_first
from manyview.training import pipelines, run_data

MANY, SHARES = 1000, (10, 3)  # every tenth image is held out of many, every third of fewer
SMALL = {"method.copies": 1, "method.small": 2, "augmentation.small_scale": (0.2, 1.0)}
USUAL: dict[str, dict[str, Any]] = {
    "as by default": {},
    "two crops": {"method.copies": 2, "method.small": 0},
    "no warm-up": {"schedule.warmup": 0.0},
    "fp32": {"precision": "fp32"},
    "blurred": {"augmentation.name": "moco-v2"},
    "twice the rate": {"optimizer.lr": 0.002},
    "half the size": {"half": True},
}
RATE = 0.001  # the usual one, of which `continued` takes shares
CONTINUED: dict[str, dict[str, Any]] = {
    **{f"{share} of the rate": {"optimizer.lr": share * RATE} for share in (0.01, 0.03, 0.1, 0.3, 1.0)},
    "0.3, no warm-up": {"optimizer.lr": 0.3 * RATE, "schedule.warmup": 0.0},
    "0.3, layer decay 0.75": {"optimizer.lr": 0.3 * RATE, "optimizer.layer_decay": 0.75},
    "1.0, layer decay 0.75": {"optimizer.lr": RATE, "optimizer.layer_decay": 0.75},
    "batch norm alone": {"optimizer.lr": 1e-12},
    "nothing": {"optimizer.lr": 1e-12, "encoder.freeze_norm": True},
    "0.1, norm frozen": {"optimizer.lr": 0.1 * RATE, "encoder.freeze_norm": True},
    "0.3, norm frozen": {"optimizer.lr": 0.3 * RATE, "encoder.freeze_norm": True},
    "1.0, norm frozen": {"optimizer.lr": RATE, "encoder.freeze_norm": True},
    "0.1, two crops": {"optimizer.lr": 0.1 * RATE, "method.copies": 2, "method.small": 0},
    "1.0, two crops": {"optimizer.lr": RATE, "method.copies": 2, "method.small": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("usual", "continued", "start"))
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, help="training images at most, spread over the folder")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--encoder", default="patchnet")
    parser.add_argument("--start", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="ROW")
    parser.add_argument("--to", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/held-out"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    train, held_out = divided(given.data, given.images)
    if given.study == "start":
        run = trained({}, train, given)
        save(run.encoder, given.to)
        return
    rows = {"usual": USUAL, "continued": CONTINUED}[given.study]
    print(f"{len(train):,} images, {len(held_out):,} held out, {given.seconds:g} s, seed {given.seed}\n")
    print("| | steps | own | kNN |\n| --- | --- | --- | --- |", flush=True)
    start = result("start", rows, train, held_out, given)
    print(line("start", start, start), flush=True)
    for row in rows if not given.only else given.only:
        print(line(row, result(row, rows, train, held_out, given), start), flush=True)


def divided(name: str, most: int | None) -> tuple[Dataset, Dataset]:
    """Training images, and those that are held out: neither is of a test split."""
    data = open_data(name, split="train")
    if most is not None:
        data = subset(data, torch.arange(len(data)) % math.ceil(len(data) / most) == 0)
    share = SHARES[0] if len(data) >= MANY else SHARES[1]
    held = torch.arange(len(data)) % share == share - 1
    return subset(data, ~held), subset(data, held)


def result(
    row: str, rows: dict[str, dict[str, Any]], train: Dataset, held_out: Dataset, given: argparse.Namespace
) -> dict[str, Any]:
    """Scores of a row, computed unless that is done already; "start" is what all rows begin with."""
    begun = given.start.stem if given.start else given.encoder
    about = [given.study, Path(given.data).name, len(train), given.size, begun, f"{given.seconds:g}", given.seed, row]
    path = given.out / ("-".join(map(str, about)).replace(" ", "_") + ".json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        run = trained(None if row == "start" else rows[row], train, given)
        path.write_text(json.dumps({"steps": run.done} | scores(run, train, held_out)))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def trained(changed: dict[str, Any] | None, train: Dataset, given: argparse.Namespace) -> Ours:
    """A training with some settings changed; None: its first weights."""
    more = dict(changed or {})
    size = given.size // 2 if more.pop("half", False) else given.size
    settings = {"encoder.name": given.encoder, "seed": given.seed, "method.name": "dcl", "augmentation.size": size}
    settings |= SMALL
    if given.start:
        settings["encoder.pretrained"] = str(given.start.absolute())
    settings |= more
    if not settings.get("method.small"):
        del settings["augmentation.small_scale"]
    torch.manual_seed(given.seed)
    run = Ours(train, **settings)
    if changed is not None:
        for_time(run, given.seconds)
    run.encoder.eval()
    return run


def for_time(run: Ours, seconds: float) -> None:
    """Trains for so many seconds of the processor; the schedule follows the share of them that has passed."""
    endless, began = run.steps(), 0.0
    for step in range(1 << 30):
        passed = time.process_time() - began
        if step and passed >= seconds:
            return
        run.progress = min(1.0, passed / seconds) if step else 0.0
        next(endless)
        run.done += 1
        if not step:
            began = time.process_time()  # images are decoded by then


def scores(run: Ours, train: Dataset, held_out: Dataset) -> dict[str, list[bool]]:
    """Which held-out images are right, by each score."""
    whole, copies, labels = features(run, held_out)
    right = {"own": found_first(copies, whole).right.tolist()}
    if labels is not None and len(labels.unique()) > 1:
        bank, _, known = features(run, train)
        assert known is not None
        right["knn"] = knn(bank, known, whole, labels, k=20, temperature=0.1).right.tolist()
    return right


@torch.no_grad()
def features(run: Ours, data: Dataset) -> tuple[Tensor, Tensor, Tensor | None]:
    """Embeddings of each image, whole and of an augmented view, and its label."""
    views = run_data.views_of(run.config, data.modalities)
    pipeline = pipelines.whole_and_augmented(run.config, views, 1)
    loader = Loader(data, pipeline, min(250, len(data)), shuffle=False, drop_last=False, seed=0)
    encoder = run.method.towers.encoders[SHARED]
    batches = (next(iter(batch.views().values())) for batch in loader.epoch(0))
    seen = [[forward(encoder, each, read=embedding) for each in copies] for copies in batches]
    whole, copies = (torch.cat(each) for each in zip(*seen, strict=True))
    return whole, copies, data.labels


def line(row: str, found: dict[str, Any], start: dict[str, Any]) -> str:
    """Each score, and its gain over the start with the standard error over the images."""
    told = []
    for name in ("own", "knn"):
        after, before = (torch.tensor(each[name]) if name in each else None for each in (found, start))
        gain = "" if found is start or after is None or before is None else _gain(after, before)
        told.append("" if after is None else f"{100 * after.double().mean():.1f}{gain}")
    return f"| {row} | {found['steps']:,} | {' | '.join(told)} |"


def _gain(after: Tensor, before: Tensor) -> str:
    now, then = (float(each.double().mean()) for each in (after, before))
    return f" ({gain_in_points(now, then, gain_error(after, before))})"


if __name__ == "__main__":
    main()
