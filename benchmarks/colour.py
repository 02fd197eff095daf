"""How fast pictures are converted to Lab and YDbDr, beside kornia and scikit-image: markdown tables.

    python benchmarks/colour.py                    # under a minute
    python benchmarks/colour.py --quick            # fewer rounds: does it all run?

Batches of float32 crops in memory, each library's in the layout that it takes: planes (3, n, h, w) here, (n, 3, h, w)
in kornia, (n, h, w, 3) in scikit-image. The libraries take turns in one process, with one thread and with two; times
are medians. First all must agree. Peak memory is that of a fresh process above its inputs, with one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import kornia.color
import skimage.color
import torch
from measure import MB, Run, interleaved, machine_facts, peak_extra_bytes, version
from torch import Tensor

from manyview.views.colour_spaces import lab, ydbdr

CROPS = {32: 256, 224: 32}  # pixels of a side, and crops a batch


class Library(NamedTuple):
    layout: Callable[[Tensor], Tensor]  # of crops (n, 3, h, w)
    convert: dict[str, Callable[[Tensor], Tensor]]


LIBRARIES = {
    "manyview": Library(lambda x: x.transpose(0, 1).contiguous(), {"Lab": lab, "YDbDr": ydbdr}),
    "kornia": Library(lambda x: x, {"Lab": kornia.color.rgb_to_lab}),  # which has no YDbDr
    "scikit-image": Library(
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
        {
            "Lab": lambda x: torch.from_numpy(skimage.color.rgb2lab(x.numpy())),
            "YDbDr": lambda x: torch.from_numpy(skimage.color.rgb2ydbdr(x.numpy())),
        },
    ),
}


def crops(size: int) -> Tensor:
    return torch.rand(CROPS[size], 3, size, size, generator=torch.Generator().manual_seed(0))


def run_of(library: str, space: str, size: int) -> Run:
    layout, convert = LIBRARIES[library]
    pictures = layout(crops(size))
    return lambda: convert[space](pictures)


def check() -> None:
    """Ends the benchmark unless all give the same colours."""
    pictures = crops(32)
    for space in ("Lab", "YDbDr"):
        answers = {
            name: each.convert[space](each.layout(pictures))
            for name, each in LIBRARIES.items()
            if space in each.convert
        }
        answers["manyview"] = answers["manyview"].transpose(0, 1)
        answers["scikit-image"] = answers["scikit-image"].permute(0, 3, 1, 2)
        for name, found in answers.items():
            gap = float((found - answers["scikit-image"]).abs().max())
            assert gap < 1e-3, f"{name} is {gap} from scikit-image in {space}"


def megabytes(library: str, space: str, size: int) -> float:
    command = [sys.executable, __file__, "--peak", library, space, str(size)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rows(size: int, rounds: int) -> None:
    cases = [(name, space) for space in ("Lab", "YDbDr") for name, each in LIBRARIES.items() if space in each.convert]
    runs = {f"{name} {space}": run_of(name, space, size) for name, space in cases}
    times = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for run in runs.values():
            run()
        times.append(interleaved(runs, budget=1e9, rounds=(rounds, rounds), at_most={}))
    torch.set_num_threads(1)
    for name, space in cases:
        rates = [f"{CROPS[size] / each[f'{name} {space}']:,.0f}" for each in times]
        ratios = [f"{each[f'{name} {space}'] / each[f'manyview {space}']:.1f}x" for each in times]
        faster = ratios if name != "manyview" else ["", ""]
        memory = f"{megabytes(name, space, size):.0f} MB"
        print("|", " | ".join([f"{size} px", space, name, *rates, *faster, memory]), "|", flush=True)
    both = [
        {name: each[f"{name} Lab"] + each[f"{name} YDbDr"] for name in ("manyview", "scikit-image")} for each in times
    ]
    rates = [f"{CROPS[size] / each['scikit-image']:,.0f}" for each in both]
    ratios = [f"{each['scikit-image'] / each['manyview']:.1f}x" for each in both]
    print("|", " | ".join([f"{size} px", "both", "scikit-image", *rates, *ratios, ""]), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        library, space, size = given.peak
        torch.set_num_threads(1)
        run_of(library, space, 32)()  # what a library loads and keeps when it is first called
        print(peak_extra_bytes(run_of(library, space, int(size))) / MB)
        return
    print(*machine_facts(), f"* kornia {version('kornia')}, scikit-image {version('scikit-image')}", sep="\n")
    check()
    print(
        "\n| crops | to | library | crops/s, 1 thread | 2 threads | manyview faster by, 1 thread | 2 threads | memory |"
    )
    print("| --- " * 8 + "|")
    for size in CROPS:
        rows(size, 5 if given.quick else 41)


if __name__ == "__main__":
    main()
