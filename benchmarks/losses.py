"""The cost of manyview's losses beside their peers: time and peak memory of forward + backward, as markdown tables.

    python benchmarks/losses.py                          # everything; the largest sizes take most of the time
    python benchmarks/losses.py --quick                  # shrunken sizes, under a minute: does it all run?
    python benchmarks/losses.py --only 'bank-*' jcl --out bank.md

Float32, d = 128. Embeddings are raw leaves, made unit length inside what is measured on both sides, so that gradient
travels as far as it does in training. Times are medians of runs that take turns in one process; only ratios from one
run are worth comparing. Peak memory is that of a fresh process above its inputs (see `measure.py`).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from loss_cases import CASES, CURVES, LARGEST, Case, Curve, D, Inputs, Loss, Make, Size, two_views
from measure import MB, Run, interleaved, machine_facts, matmul_gflops, peak_extra_bytes

RTOL = 1e-4
LONG = 16384  # images from which a warm-up at full size is a waste
SCALING_NOTE = (
    "`info_nce` over both copies together, `cacr` with `each_copy` of two copies. Limit: a float32 2048^3 matrix "
    "multiply, measured beside each row. Fraction: the multiplies that are needed, per second, over the limit; needed "
    f"are 2 * (2N)^2 * 2d flop for `info_nce` and 2 * 2N^2 * 2d for `cacr`, d = {D}."
)

FRESH = multiprocessing.get_context("forkserver")  # its processes have torch imported, and have computed nothing
FRESH.set_forkserver_preload(["torch", "manyview.methods.topologies"])


@dataclass(frozen=True)
class Workload:
    """One side of a case, ready to be measured."""

    make: Make
    loss: Loss
    size: Size


class Timed(NamedTuple):
    ms: float
    loss: float


def step(loss: Loss, inputs: Inputs) -> float:
    for view in inputs.raw:
        view.grad = None
    value = loss(inputs)
    value.backward()
    return float(value.detach())


def compare(case: Case) -> str:
    """Checks that both sides give the same loss and gradient at the small size; else there is nothing to measure."""
    torch.manual_seed(0)
    inputs = case.make(case.small)
    values, grads = [], []
    for loss in (case.theirs, case.ours):
        values.append(step(loss, inputs))
        grads.append(torch.cat([view.grad for view in inputs.raw if view.grad is not None]))
    gap = float((grads[0] - grads[1]).norm() / grads[0].norm())
    found = f"{case.label(case.small)}: theirs {values[0]:.6f}, ours {values[1]:.6f}, gradients {gap:.0e} apart"
    if not math.isclose(*values, rel_tol=RTOL) or not gap < 10 * RTOL:
        raise SystemExit(f"{case.name}: not the same loss. {found}")
    return found


def timed(make: Make, size: Size, sides: dict[str, Loss], quick: bool, at_most: dict[str, int]) -> list[Timed]:
    """Each side's median time, and the loss that it gave."""
    torch.manual_seed(0)
    inputs, tiny = make(size), make(size.tiny)
    for loss in sides.values():
        step(loss, tiny if size.images >= LONG else inputs)
    values: dict[str, float] = {}

    def run(side: str) -> None:
        values[side] = step(sides[side], inputs)

    runs: dict[str, Run] = {side: partial(run, side) for side in sides}
    medians = interleaved(runs, budget=0.5 if quick else 15, rounds=(3, 101), at_most=at_most)
    return [Timed(1e3 * median, values[side]) for side, median in medians.items()]


def workloads(quick: bool) -> dict[str, Workload]:
    """Everything whose memory can be asked for, by name."""
    named = {}
    for case in CASES:
        named[f"{case.name}/theirs"] = Workload(case.make, case.theirs, case.size(quick))
        named[f"{case.name}/ours"] = Workload(case.make, case.ours, case.size(quick))
    for curve in CURVES:
        named |= {curve.row_name(size): Workload(two_views, curve.ours, size) for size in curve.sizes(quick)}
    return named


def tell_peak(name: str, quick: bool, answer: Connection) -> None:
    """Sends the peak of a process of its own. A tiny run first loads libraries, and leaves nothing to use again."""
    torch.manual_seed(0)
    workload = workloads(quick)[name]
    inputs = workload.make(workload.size)
    step(workload.loss, workload.make(workload.size.tiny))
    answer.send(peak_extra_bytes(partial(step, workload.loss, inputs)))


def peak_megabytes(names: list[str], size: Size, quick: bool) -> list[float]:
    """The median over fresh processes; one is enough where the run is long, and memory far above the noise."""
    rounds = [one_peak_each(names, quick) for _ in range(1 if quick or size.images >= LONG else 3)]
    return [statistics.median(peaks) / MB for peaks in zip(*rounds, strict=True)]


def one_peak_each(names: list[str], quick: bool) -> list[float]:
    """The peaks in bytes, from a fresh process for each name, all at once since memory does not mind company."""
    answers = []
    for name in names:
        here, there = FRESH.Pipe(duplex=False)
        FRESH.Process(target=tell_peak, args=(name, quick, there), daemon=True).start()
        there.close()
        answers.append(here)
    return [received(answer) for answer in answers]


def received(answer: Connection) -> float:
    """The answer; infinite from a process that died, as one does that runs out of memory."""
    try:
        return float(answer.recv())
    except EOFError:
        return math.inf


class Report:
    """A markdown report, printed as it comes and kept in a file, so that a run that is stopped has not been in vain."""

    def __init__(self, out: Path | None) -> None:
        self.out = out
        if out is not None:
            out.write_text("")

    def line(self, text: str = "") -> None:
        print(text, flush=True)
        if self.out is not None:
            with self.out.open("a") as file:
                file.write(text + "\n")

    def row(self, *cells: str) -> None:
        self.line(f"| {' | '.join(cells)} |")

    def header(self, *cells: str) -> None:
        self.row(*cells)
        self.row(*("---" for _ in cells))


def digits(number: float) -> str:
    """Formats three figures, or all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def report_agreement(report: Report, cases: list[Case]) -> None:
    report.line(f"Both sides give the same loss (rtol {RTOL:g}) on the same inputs, at these sizes:")
    report.line()
    for case in cases:
        lacking = case.lacks(quick=True)
        report.line(f"* {case.label(case.small) + ': ' + lacking if lacking else compare(case)}")
    report.line()


def report_peers(report: Report, cases: list[Case], quick: bool) -> None:
    report.line("## Against peers")
    report.line()
    report.header(
        "case", "against", "theirs ms", "ours ms", "time ratio (bar)",
        "theirs MB", "ours MB", "memory ratio (bar)", "ok?",
    )  # fmt: skip
    for case in cases:
        report.row(*peer_row(case, quick))
    report.line()


def peer_row(case: Case, quick: bool) -> list[str]:
    size, lacking = case.size(quick), case.lacks(quick)
    sides = {"ours": case.ours} if lacking else {"theirs": case.theirs, "ours": case.ours}
    at_most = {} if case.their_rounds is None or quick else {"theirs": case.their_rounds}
    times = timed(case.make, size, sides, quick, at_most)
    peaks = peak_megabytes([f"{case.name}/{side}" for side in sides], size, quick)
    if lacking:
        return [case.label(size), lacking, "-", digits(times[0].ms), "-", "-", digits(peaks[0]), "-", "-"]
    slow, large = times[1].ms / times[0].ms, peaks[1] / peaks[0]
    reached = slow <= case.time_bar and large <= case.memory_bar
    return [
        case.label(size), case.against,
        digits(times[0].ms), digits(times[1].ms), f"{slow:.2f}x ({case.time_bar:g}x)",
        digits(peaks[0]), digits(peaks[1]), f"{large:.3f}x ({case.memory_bar:g}x)",
        verdict(reached, same_loss=math.isclose(times[0].loss, times[1].loss, rel_tol=RTOL), quick=quick),
    ]  # fmt: skip


def verdict(reached: bool, same_loss: bool, quick: bool) -> str:
    if not same_loss:
        return "no: the losses differ"
    return "-" if quick else "yes" if reached else "no"


def report_scaling(report: Report, rows: list[tuple[Curve, Size]], quick: bool) -> None:
    report.line("## Scaling")
    report.line()
    report.line(SCALING_NOTE)
    report.line()
    report.header(
        "loss", "N", "ms", "extra peak MB", "MB per image", "limit GFLOP/s", "fraction of limit", "under 1 GB?"
    )
    for curve, size in rows:
        report.row(*scaling_row(curve, size, quick))
    report.line()


def scaling_row(curve: Curve, size: Size, quick: bool) -> list[str]:
    limit = matmul_gflops()
    [time] = timed(two_views, size, {"ours": curve.ours}, quick, {})
    [peak] = peak_megabytes([curve.row_name(size)], size, quick)
    limit = (limit + matmul_gflops()) / 2
    fraction = curve.flop(size.images) / (time.ms * 1e6) / limit
    return [
        f"`{curve.name}`", f"{size.images:,}", digits(time.ms), digits(peak), f"{peak / size.images:.4f}",
        digits(limit), f"{fraction:.2f}",
        ("yes" if peak < 1000 else "no") if size.images == LARGEST else "-",
    ]  # fmt: skip


def run(only: list[str], quick: bool, out: Path | None) -> None:
    def wanted(name: str) -> bool:
        return not only or any(fnmatch(name, pattern) for pattern in only)

    cases = [case for case in CASES if wanted(case.name)]
    rows = [(curve, size) for curve in CURVES for size in curve.sizes(quick) if wanted(curve.row_name(size))]
    if not cases and not rows:
        raise SystemExit(f"--only: nothing is named {' or '.join(only)}; there are {', '.join(row_names(quick))}")
    report = Report(out)
    report.line("# Losses: time and memory, forward + backward")
    report.line()
    for fact in machine_facts():
        report.line(fact)
    report.line(f"* float32, d = {D}; 1 MB is 10^6 bytes")
    if quick:
        report.line("* --quick: shrunken sizes, to which the bars do not apply")
    report.line()
    if cases:
        report_agreement(report, cases)
        report_peers(report, cases, quick)
    if rows:
        report_scaling(report, rows, quick)


def row_names(quick: bool) -> list[str]:
    return list(dict.fromkeys(name.split("/")[0] for name in workloads(quick)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = "names: " + ", ".join(row_names(quick=False))
    parser.add_argument("--quick", action="store_true", help="shrunken sizes")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these rows; * stands for anything")
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="also write the tables there")
    asked = parser.parse_args()
    run(asked.only, asked.quick, asked.out)


if __name__ == "__main__":
    main()
