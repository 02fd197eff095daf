"""Segmentation from frozen encoders, as CMC's Table 3, Table 4 and Fig. 4, in small.

    python benchmarks/segmentation.py scenes                  # from L: untrained, dcl, 1 to 4 views, from scratch
    python benchmarks/segmentation.py views                   # each view's encoder of a full graph of four
    python benchmarks/segmentation.py pairs --data DIR        # each, both; DIR/{train,test}/{rgb,thermal,labels}
    python benchmarks/segmentation.py nyu --data DATA         # from L: 1 to 4 views, full graph; each view's encoder

NYU's DATA is nyu_depth_v2_labeled.mat, or a folder with rgb, depth... and labels...; its rows are those of the recipes
cmc_patch-nyu and cmc-nyu, whose epochs and batch --paper takes, for a machine with GPUs.

Each row is a `manyview pretrain` and a `manyview transfer --task segment` of its own, in one thread, as many at a time
as --jobs. What is complete in --out is not computed again, so that a study that was stopped goes on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measure import machine_facts

from manyview.comparison.outcome import mean_and_std
from manyview.evaluate.results import read

VIEWS = ("L", "ab", "depth", "normals")
CORE = "--method cmc --method.graph core --method.core L --augmentation cmc"
QUIET = "--workers 0 --report false --loggers [] --quiet --evaluate-every 1000 --knn-bank 500 --knn-queries 200"
SHOWN = ("miou", "pixel accuracy")

Rows = dict[str, tuple[str, str]]
"""By the name of a row, flags of `manyview pretrain`, and the view whose encoder is scored, "" for all."""


def scenes(given: argparse.Namespace) -> Rows:
    more = {
        f"cmc, {count} views: {', '.join(VIEWS[:count])}": (f"{CORE} --views {','.join(VIEWS[:count])}", "L")
        for count in (2, 3, 4)
    }
    alone = {
        "dcl, L": ("--method dcl --views L", "L"),
        "cmc, 1 view: L (DIM)": ("--method deep_infomax --views L", "L"),
    }
    return {name: (f"{flags} {_scenes(given)}", view) for name, (flags, view) in {**alone, **more}.items()}


def views(given: argparse.Namespace) -> Rows:
    return {"cmc, full graph": (f"--method cmc --views {','.join(VIEWS)} --augmentation cmc {_scenes(given)}", "")}


def pairs(given: argparse.Namespace) -> Rows:
    flags = f"--method cmc --views rgb,thermal --data {given.data} --augmentation cmc --augmentation.size 64"
    return {"cmc, rgb and thermal": (f"{flags} --batch-size 50 --epochs {given.epochs}", "")}


def nyu(given: argparse.Namespace) -> Rows:
    """Table 4 is the full graph's row, Table 3 that and four views of the core view, Fig. 4 one to four views."""
    size = f"--epochs {given.epochs} --batch-size {given.batch_size}"
    flags = f"--recipe cmc_patch-nyu --data {given.data} {'' if given.paper else size}"
    names = [depth_of(given.data) if view == "depth" else view for view in VIEWS]
    core = {
        f"cmc, {count} view{'s' * (count > 1)}: {', '.join(VIEWS[:count])}": (
            f"{flags} --views {','.join(names[:count])}",
            "L",
        )
        for count in (1, 2, 3, 4)
    }
    return {"cmc, full graph": (f"{flags} --method.graph full --views {','.join(names)}", ""), **core}


def depth_of(data: Path) -> str:
    """The modality of depth in a folder of modalities, in which its name may have more to it, or in NYU's file."""
    folders = sorted(each.name for each in data.iterdir() if each.is_dir()) if data.is_dir() else []
    inside = [each for part in ("train", "training") if (data / part).is_dir() for each in (data / part).iterdir()]
    names = [*folders, *sorted(each.name for each in inside)]
    return next((name for name in names if name.startswith("depth")), "depth")


STUDIES = {"scenes": scenes, "views": views, "pairs": pairs, "nyu": nyu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", type=Path, help="of pairs and nyu")
    parser.add_argument("--legend", default="nyu13", choices=("nyu13", "nyu40"), help="of nyu")
    parser.add_argument("--paper", action="store_true", help="of nyu: the recipes' own epochs and batch")
    parser.add_argument("--count", type=int, default=2000, help="scenes for pre-training")
    parser.add_argument("--masks", type=int, default=400, help="scenes with masks, and as many for the test")
    parser.add_argument("--epochs", type=int, default=6, help="of pre-training")
    parser.add_argument("--transfer-epochs", type=int, default=30)
    parser.add_argument("--transfer-batch", type=int, default=8, help="few masks make few steps")
    parser.add_argument("--width", type=int, default=32, help="channels of the decoder")
    parser.add_argument("--batch-size", type=int, default=64, help="of pre-training; 50 with pairs")
    parser.add_argument("--data-seed", type=int, default=0, help="of the scenes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="rows at a time, in one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/segmentation"))
    given = parser.parse_args()
    if given.study in ("pairs", "nyu") and given.data is None:
        raise SystemExit(f"{given.study}: give --data DIR")
    print("\n".join(machine_facts()) + "\n", flush=True)
    rows = STUDIES[given.study](given)
    todo = [(name, seed) for seed in range(given.seeds) for name in rows]
    folder = given.out / given.study
    with ThreadPoolExecutor(given.jobs) as pool:
        places = {name: folder / str(number) for number, name in enumerate(rows)}
        found = pool.map(lambda each: scored(given, *rows[each[0]], each[1], places[each[0]], each[0]), todo)
        print(table(dict(zip(todo, found, strict=True))))
    print(f"\n{given.seeds} seeds, mean and standard deviation; {' '.join(sys.argv[1:])}")


def scored(
    given: argparse.Namespace, flags: str, view: str, seed: int, folder: Path, name: str
) -> dict[str, dict[str, float]]:
    """Trains an encoder and transfers it: its scores, and for the first row also those of the baselines."""
    run = folder / f"run-{seed}"
    pretrained(flags, seed, run)
    out = folder / f"transfer-{seed}"
    made = ["scenes", "--data.count", str(given.masks), "--data.size", "64", "--data.seed", str(given.data_seed)]
    lies = made if given.data is None else [str(given.data)]
    baselines = [] if folder.name == "0" else ["--untrained", "false", "--supervised", "false"]
    schedule = ["--epochs", str(given.transfer_epochs), "--batch-size", str(given.transfer_batch)]
    if given.study == "nyu":
        lies += ["--legend", given.legend, "--recipe", "cmc-nyu"]
        schedule = [] if given.paper else schedule
    manyview(
        "transfer", f"{view}={run}" if view else str(run), "--task", "segment", "--data", *lies, "--seed", str(seed),
        *schedule, "--width", str(given.width), "--out", str(out), "--workers", "0",
        "--quiet", *baselines,
    )  # fmt: skip
    result = read(out)[-1]
    print(f"{name}, seed {seed}: miou {next(iter(result.scores.values())):.3f}", flush=True)
    others = {"untrained, frozen": result.untrained, "from scratch, supervised": result.supervised}
    all_of_them = {name: result.scores, **{kind: scores for kind, scores in others.items() if scores is not None}}
    prefix = f"{view} " if view else ""
    return {row: {prefix + score: value for score, value in each.items()} for row, each in all_of_them.items()}


def pretrained(flags: str, seed: int, run: Path) -> None:
    """Trains an encoder, unless that was done before."""
    if not (run / "done").exists():
        manyview("pretrain", *flags.split(), *QUIET.split(), "--seed", str(seed), "--out", str(run))
        (run / "done").touch()


def manyview(*words: str) -> None:
    """A command in one thread."""
    command = [sys.executable, "-m", "manyview", *words]
    ended = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.stderr.strip()[-500:]}")


def table(found: dict[tuple[str, int], dict[str, dict[str, float]]]) -> str:
    """A line for each row and part of the model: mIoU and pixel accuracy in percent over the seeds."""
    lines: dict[tuple[str, str], dict[str, list[float]]] = {}
    for scores in found.values():
        for row, each in scores.items():
            for name, value in each.items():
                shown = next((one for one in SHOWN if name == one or name.endswith(f" {one}")), None)
                if shown is not None:
                    part = name.removesuffix(shown).strip()
                    lines.setdefault((row, part), {}).setdefault(shown, []).append(value)
    heading = ["| encoder | view | mIoU (%) | pixel accuracy (%) |", "| --- | --- | --- | --- |"]
    said = [
        f"| {row} | {part or '-'} | {' | '.join(mean_and_std(each[name]) for name in SHOWN)} |"
        for (row, part), each in lines.items()
    ]
    return "\n".join([*heading, *said])


def _scenes(given: argparse.Namespace) -> str:
    data = f"--data scenes --data.count {given.count} --data.size 64 --data.seed {given.data_seed}"
    return f"{data} --batch-size {given.batch_size} --epochs {given.epochs}"


if __name__ == "__main__":
    main()
