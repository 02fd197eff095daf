"""What is learnt in the same time of one core: manyview's defaults, lightly's examples and lightly-train, as a table.

    python benchmarks/equal_time.py --data DIR --minutes 1.5 --size 32 --lightly-train PYTHON --out runs/equal-time

DIR holds train/CLASS/* and test/CLASS/*; `benchmarks/photo_sets.py` makes some. manyview is `manyview pretrain --data
DIR/train --minutes M` and nothing else, which trains on what it does not hold out, and scores and draws its report in
that time too; the peers train on all of DIR/train, at --size (photos) or their own default, for M minutes from their
first step on. All run one after another on one core in one thread, and the clock is the processor's, so that what else
the machine does changes little. PYTHON is an interpreter that has lightly-train; without it that is left out. Scores of
the frozen encoders, by the same code at the size of each one's views: kNN (k = 20, T = 0.1) and logistic regression on
standardised features. A run that is complete in --out is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from equal_time_peers import Pictures, files, network
from measure import machine_facts, version
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torchvision.transforms import v2

import manyview
from manyview.features.knn import knn

PATCHNET, RESNET = "patchnet", "torchvision/resnet18"
OURS = {"manyview": "", "manyview, ResNet-18": f"--encoder {RESNET}"}
PEERS = {
    "lightly SimCLR, patchnet": ("lightly-simclr", PATCHNET, True),
    "lightly DCL, patchnet": ("lightly-dcl", PATCHNET, True),
    "lightly SimCLR, ResNet-18": ("lightly-simclr", RESNET, True),
    "lightly DCL, ResNet-18": ("lightly-dcl", RESNET, True),
    "lightly-train SimCLR, ResNet-18": ("lightly-train-simclr", RESNET, False),
    "lightly-train SimCLR, ResNet-18, views of --size": ("lightly-train-simclr", RESNET, True),
    "lightly-train DINO, ResNet-18": ("lightly-train-dino", RESNET, False),
}
"""Peer, encoder, and whether views have --size; else as large as the peer has them by default."""
UNTRAINED = {"untrained patchnet": PATCHNET, "untrained ResNet-18": RESNET}
PROCESSOR_CLOCK = (
    "import sys, time; time.monotonic = time.process_time; from manyview.cli.main import main; sys.exit(main())"
)
"""The command with the processor's time as its clock, as on a core that nobody else uses."""
BANK, QUERIES = 5_000, 2_500  # images at most
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # by which the peers normalise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--size", type=int, default=32, help="of the peers' views, in pixels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lightly-train", metavar="PYTHON")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*UNTRAINED, *OURS, *PEERS])
    parser.add_argument("--out", type=Path, default=Path("runs/equal-time"))
    given = parser.parse_args()
    os.sched_setaffinity(0, {given.core})
    torch.set_num_threads(1)
    rows = [each for each in (*UNTRAINED, *OURS, *PEERS) if not given.only or each in given.only]
    rows = [each for each in rows if given.lightly_train or not each.startswith("lightly-train")]
    results: dict[str, list[dict[str, Any]]] = {each: [] for each in rows}
    for seed in range(given.seeds):
        for row in rows:
            results[row].append(result(row, seed, given))
            print(f"seed {seed}, {row}: {results[row][-1]}", file=sys.stderr, flush=True)
    print("\n".join(machine_facts()) + f"\n\n{given.data.name}, lightly {version('lightly')}, {given.seeds} seeds\n")
    print(table(results))


def result(row: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Scores, steps and seconds of a contender with a seed; trained unless that is done already."""
    folder = given.out / f"{row.replace(',', '').replace(' ', '-')}-seed{seed}"
    path = folder / "result.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        encoder, preprocess, facts = trained(row, seed, folder, given)
        path.write_text(json.dumps(facts | scores(encoder, preprocess, given.data)))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


Preprocess = Callable[[Any], Tensor]


def trained(
    row: str, seed: int, folder: Path, given: argparse.Namespace
) -> tuple[nn.Module, Preprocess, dict[str, Any]]:
    """The encoder, what a picture goes through before it, and what its training took."""
    if row in OURS:
        return ours(OURS[row], seed, folder, given)
    if row in UNTRAINED:
        torch.manual_seed(seed)
        return network(UNTRAINED[row]), preprocess_at(given.size), {"seconds": 0.0, "steps": 0, "size": given.size}
    peer, name, small = PEERS[row]
    python = given.lightly_train if row.startswith("lightly-train") else sys.executable
    asked = f"--images {given.data / 'train'} --encoder {name} --size {given.size if small else 0}"
    length = f"--seconds {60 * given.minutes:g} --seed {seed} --to {folder}"
    call([python, str(Path(__file__).with_name("equal_time_peers.py")), peer, *asked.split(), *length.split()], folder)
    facts = json.loads((folder / "trained.json").read_text())
    encoder = network(name)
    encoder.load_state_dict(torch.load(folder / "encoder.pt", weights_only=True))
    return encoder, preprocess_at(facts["size"]), facts


def ours(
    flags: str, seed: int, folder: Path, given: argparse.Namespace
) -> tuple[nn.Module, Preprocess, dict[str, Any]]:
    asked = f"pretrain --data {given.data / 'train'} --minutes {given.minutes:g} --seed {seed} --out {folder / 'run'}"
    call([sys.executable, "-c", PROCESSOR_CLOCK, *asked.split(), *flags.split()], folder)
    encoder = manyview.load(folder / "run")
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    facts = {"steps": max(each["step"] for each in lines), "size": encoder.options["size"]}
    assert encoder.preprocess is not None
    return encoder, encoder.preprocess, {"seconds": 60 * given.minutes, **facts}


def call(command: list[str], folder: Path) -> None:
    with (folder / "log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)


def preprocess_at(size: int) -> Preprocess:
    crop = [v2.Resize(size), v2.CenterCrop(size), v2.PILToTensor()]
    steps = v2.Compose([*crop, v2.ToDtype(torch.float32, scale=True), v2.Normalize(*IMAGENET)])
    return lambda pictures: torch.stack([steps(each) for each in pictures])


@torch.no_grad()
def scores(encoder: nn.Module, preprocess: Preprocess, data: Path) -> dict[str, float]:
    encoder.eval()
    bank, labels = features(encoder, preprocess, data / "train", BANK)
    queries, truth = features(encoder, preprocess, data / "test", QUERIES)
    near = knn(bank, labels, queries, truth, k=20, temperature=0.1)
    with torch.enable_grad():
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=300))
        probe.fit(bank.numpy(), labels.numpy())
    return {"knn": 100 * float(near), "linear": 100 * float(probe.score(queries.numpy(), truth.numpy()))}


def features(encoder: nn.Module, preprocess: Preprocess, folder: Path, most: int) -> tuple[Tensor, Tensor]:
    """Of pictures spread evenly over the folder, so many at most; labels are the numbers of its folders."""
    found = Pictures(folder, lambda picture: picture)
    step = max(1, len(found) // most)
    chosen = range(0, len(found), step)
    classes = sorted({path.parent.name for path in files(folder)})
    labels = torch.tensor([classes.index(path.parent.name) for path in files(folder)])[::step]
    batches = [preprocess([found[row] for row in chosen[at : at + 100]]) for at in range(0, len(chosen), 100)]
    return torch.cat([encoder(each).float() for each in batches]), labels


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    head = "| | views | steps | kNN | linear |\n| --- | --- | --- | --- | --- |\n"
    return head + "\n".join(
        f"| {row} | {found[0]['size']} px | {statistics.mean(each['steps'] for each in found):,.0f} | "
        f"{spread([each['knn'] for each in found])} | {spread([each['linear'] for each in found])} |"
        for row, found in results.items()
    )


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) if len(values) > 1 else 0:.1f}"


if __name__ == "__main__":
    main()
