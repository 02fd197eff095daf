"""What manyview's losses cost, beside their peers: time and peak memory of forward + backward, as markdown tables.

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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import literal
import torch
import torch.nn.functional as F
from measure import MB, Run, available_bytes, interleaved, machine_facts, matmul_gflops, peak_extra_bytes, version
from torch import Tensor

from manyview.contract import Negatives
from manyview.losses import cacr, info_nce, jcl, nce
from manyview.pairs import contrast, each_view, each_view_against_keys, query_against_keys, total

D = 128
IN_BATCH_TEMPERATURE = 0.1
JCL_TEMPERATURE, JCL_STRENGTH = 0.2, 4.0  # JCL section 4.1
CACR_T_POS, CACR_T_NEG = 1.0, 2.0
BANK_TEMPERATURE = 0.07  # CMC
RTOL = 1e-4
LARGEST = 65536  # images, in less than 1 GB
LONG = 16384  # images from which a warm-up at full size is a waste

FRESH = multiprocessing.get_context("forkserver")  # its processes have torch imported, and have computed nothing
FRESH.set_forkserver_preload(["torch", "manyview.pairs"])


@dataclass(frozen=True)
class Size:
    images: int  # N
    keys: int = 0  # rows of the queue or of the bank
    drawn: int = 0  # m, the rows of the bank that each query meets

    @property
    def tiny(self) -> Size:
        """As small as still takes the same path through the code: as many rows of the bank for each row drawn."""
        return Size(4, 4 * self.keys // self.drawn if self.drawn else min(self.keys, 64), min(self.drawn, 4))


NOTHING = torch.empty(0)


@dataclass(frozen=True)
class Inputs:
    """What both sides are given. Gradient ends in `raw`; the rest is unit vectors without gradient."""

    raw: list[Tensor]  # (N, d) each, one a view
    keys: list[Tensor] = field(default_factory=list)  # (N, d) each, from a momentum encoder
    rows: Tensor = NOTHING  # (M, d) of the queue or of the bank
    own: Tensor = NOTHING  # (N,) each query's row of the bank
    drawn: Tensor = NOTHING  # (N, m) rows of the bank

    def units(self) -> list[Tensor]:
        return [F.normalize(view, dim=1) for view in self.raw]


Make = Callable[[Size], Inputs]
Loss = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class Workload:
    """One side of a case, ready to be measured."""

    make: Make
    loss: Loss
    size: Size


@dataclass(frozen=True)
class Case:
    """A loss of ours and the same loss of somebody else, at a size and at a small one for checks and --quick."""

    name: str
    title: str  # formatted with the fields of Size
    against: str
    make: Make
    theirs: Loss
    ours: Loss
    full: Size
    small: Size
    time_bar: float
    memory_bar: float
    package: str | None = None  # that `theirs` needs
    their_rounds: int | None = None  # where more would take too long
    their_bytes: float = 0  # that `theirs` is known to need, where that is a large part of a machine

    def size(self, quick: bool) -> Size:
        return self.small if quick else self.full

    def label(self, size: Size) -> str:
        return self.title.format(**{name: f"{number:,}" for name, number in asdict(size).items()})

    def lacks(self, quick: bool) -> str | None:
        """Why `theirs` cannot run here, if it cannot."""
        if self.package and version(self.package) is None:
            return f"{self.package} is not installed: `pip install manyview[bench]`"
        free = available_bytes()
        if not quick and free is not None and free < 1.1 * self.their_bytes:
            return f"needs {self.their_bytes / 1e9:.0f} GB, {free / 1e9:.0f} are free"
        return None


class Timed(NamedTuple):
    ms: float
    loss: float


@dataclass(frozen=True)
class Curve:
    """A loss of ours over the size of the batch, and the multiplications that it cannot do without."""

    name: str
    ours: Loss
    flop: Callable[[int], float]  # of N images
    images: tuple[int, ...] = (256, 1024, 4096, 16384, LARGEST)
    quick_images: tuple[int, ...] = (256, 1024)

    def sizes(self, quick: bool) -> list[Size]:
        return [Size(n) for n in (self.quick_images if quick else self.images)]

    def row_name(self, size: Size) -> str:
        return f"scaling-{self.name}-{size.images}"


# Inputs


def unit_vectors(rows: int) -> Tensor:
    x = torch.randn(rows, D)
    return x.div_(x.norm(dim=1, keepdim=True))  # in place: a bank is large


def raw_views(views: int, images: int) -> list[Tensor]:
    return [torch.randn(images, D).requires_grad_() for _ in range(views)]


def two_views(size: Size) -> Inputs:
    return Inputs(raw_views(2, size.images))


def one_query_five_keys(size: Size) -> Inputs:
    return Inputs(raw_views(1, size.images), [unit_vectors(size.images) for _ in range(5)], unit_vectors(size.keys))


def five_views_five_keys(size: Size) -> Inputs:
    return Inputs(raw_views(5, size.images), [unit_vectors(size.images) for _ in range(5)], unit_vectors(size.keys))


def one_query_with_bank(size: Size) -> Inputs:
    own = torch.randint(size.keys, (size.images,))
    drawn = torch.randint(size.keys, (size.images, size.drawn))
    return Inputs(raw_views(1, size.images), rows=unit_vectors(size.keys), own=own, drawn=drawn)


def partition(inputs: Inputs) -> float:
    """NCE's Z for unit vectors in random directions: rows times the mean of exp(q.v / t), q.v being N(0, 1/d)."""
    return len(inputs.rows) * math.exp(1 / (2 * D * BANK_TEMPERATURE**2))


# Ours


def our_info_nce(inputs: Inputs) -> Tensor:
    return contrast(inputs.raw, loss="info_nce", temperature=IN_BATCH_TEMPERATURE)


def our_dcl(inputs: Inputs) -> Tensor:
    return contrast(inputs.raw, loss="dcl", temperature=IN_BATCH_TEMPERATURE)


def our_cacr(inputs: Inputs) -> Tensor:
    return contrast(inputs.raw, loss="cacr", pairs=each_view, t_pos=CACR_T_POS, t_neg=CACR_T_NEG)


def our_jcl(inputs: Inputs) -> Tensor:
    triples = query_against_keys(inputs.units()[0], inputs.keys, Negatives(inputs.rows))
    return total(triples, jcl, temperature=JCL_TEMPERATURE, strength=JCL_STRENGTH)


def our_cacr_with_queue(inputs: Inputs) -> Tensor:
    triples = each_view_against_keys(inputs.units(), inputs.keys, Negatives(inputs.rows), within_batch=1.0)
    return total(triples, cacr, t_pos=CACR_T_POS, t_neg=CACR_T_NEG, detach_weights="positives")


def our_bank_softmax(inputs: Inputs) -> Tensor:
    negatives = Negatives(inputs.rows, index=inputs.drawn)
    return info_nce(inputs.units()[0], inputs.rows[inputs.own][:, None], negatives, temperature=BANK_TEMPERATURE)


def our_bank_nce(inputs: Inputs) -> Tensor:
    return nce(
        inputs.units()[0], inputs.rows[inputs.own][:, None], Negatives(inputs.rows, index=inputs.drawn),
        population=len(inputs.rows), partition=partition(inputs), temperature=BANK_TEMPERATURE,
    )  # fmt: skip


# Theirs. lightly's losses make their inputs unit length themselves.


def lightly_ntxent(inputs: Inputs) -> Tensor:
    from lightly.loss import NTXentLoss  # type: ignore[import-untyped]

    loss: Tensor = NTXentLoss(temperature=IN_BATCH_TEMPERATURE)(*inputs.raw)
    return loss


def lightly_dcl(inputs: Inputs) -> Tensor:
    from lightly.loss import DCLLoss

    loss: Tensor = DCLLoss(temperature=IN_BATCH_TEMPERATURE)(*inputs.raw)
    return loss


def dense_info_nce(inputs: Inputs) -> Tensor:
    return literal.dense_info_nce(inputs.units(), IN_BATCH_TEMPERATURE)


def literal_jcl(inputs: Inputs) -> Tensor:
    positives = torch.stack(inputs.keys, 1)
    return literal.jcl_algorithm_1(inputs.units()[0], positives, inputs.rows, JCL_TEMPERATURE, JCL_STRENGTH)


def literal_cacr(inputs: Inputs) -> Tensor:
    return literal.cacr_algorithm_3(inputs.units(), inputs.keys, inputs.rows, CACR_T_POS, CACR_T_NEG)


def literal_bank_softmax(inputs: Inputs) -> Tensor:
    return literal.bank_softmax(inputs.units()[0], inputs.rows, inputs.own, inputs.drawn, BANK_TEMPERATURE)


def literal_bank_nce(inputs: Inputs) -> Tensor:
    return literal.bank_nce(
        inputs.units()[0], inputs.rows, inputs.own, inputs.drawn, BANK_TEMPERATURE, partition(inputs)
    )  # fmt: skip


# What is measured

LIGHTLY = f"lightly {version('lightly') or ''}".strip()
TORCH = f"torch {torch.__version__}"

CASES = [
    Case(
        "info_nce-4096", "in-batch `info_nce`, N={images}", f"{LIGHTLY} NTXentLoss",
        two_views, lightly_ntxent, our_info_nce, Size(4096), Size(768), 0.4, 0.05, package="lightly",
    ),
    Case(
        "dcl-4096", "in-batch `dcl`, N={images}", f"{LIGHTLY} DCLLoss",
        two_views, lightly_dcl, our_dcl, Size(4096), Size(768), 0.4, 0.05, package="lightly",
    ),
    Case(
        "info_nce-16384", "in-batch `info_nce`, N={images}", f"{LIGHTLY} NTXentLoss",
        two_views, lightly_ntxent, our_info_nce, Size(16384), Size(1024), 0.25, 0.02, package="lightly",
        their_rounds=1, their_bytes=17.5e9,
    ),
    Case(
        "info_nce-256", "in-batch `info_nce`, N={images}", f"dense formula, {TORCH}",
        two_views, dense_info_nce, our_info_nce, Size(256), Size(128), 1.1, 1.5,
    ),
    Case(
        "jcl", "`jcl`, N={images}, M'=5, queue {keys}", f"Algorithm 1 taken literally, {TORCH}",
        one_query_five_keys, literal_jcl, our_jcl, Size(512, 65536), Size(128, 8192), 0.35, 0.05,
    ),
    Case(
        "cacr", "`cacr`, K=4, N={images}, queue {keys} and within-batch", f"Algorithm 3 taken literally, {TORCH}",
        five_views_five_keys, literal_cacr, our_cacr_with_queue, Size(256, 65536), Size(64, 8192), 0.3, 0.05,
    ),
    Case(
        "bank-softmax-1.28M", "bank `info_nce`, N={images}, m={drawn} of {keys}", f"gather + bmm, {TORCH}",
        one_query_with_bank, literal_bank_softmax, our_bank_softmax,
        Size(128, 1_280_000, 16384), Size(32, 80_000, 1024), 0.3, 0.05,
    ),
    Case(
        "bank-softmax-50k", "bank `info_nce`, N={images}, m={drawn} of {keys}", f"gather + bmm, {TORCH}",
        one_query_with_bank, literal_bank_softmax, our_bank_softmax,
        Size(128, 50_000, 16384), Size(32, 4000, 1024), 0.1, 0.05,
    ),
    Case(
        "bank-nce-1.28M", "bank `nce`, N={images}, m={drawn} of {keys}", f"gather + bmm + Eq. 10-11, {TORCH}",
        one_query_with_bank, literal_bank_nce, our_bank_nce,
        Size(128, 1_280_000, 16384), Size(32, 80_000, 1024), 0.3, 0.05,
    ),
    Case(
        "bank-nce-50k", "bank `nce`, N={images}, m={drawn} of {keys}", f"gather + bmm + Eq. 10-11, {TORCH}",
        one_query_with_bank, literal_bank_nce, our_bank_nce,
        Size(128, 50_000, 16384), Size(32, 4000, 1024), 0.1, 0.05,
    ),
]  # fmt: skip

# A batch of n against itself: its n x n scores are symmetric. Half of them once forward and once more backward, and
# from each half the gradient of both its ends: 1/2 + 1/2 + 1 = 2 units of n^2 d multiplications and additions.
CURVES = [
    Curve("info_nce", our_info_nce, lambda n: 2 * (2 * n) ** 2 * D * 2),
    Curve("cacr", our_cacr, lambda n: 2 * (2 * n**2) * D * 2),  # two views, each against itself
]
SCALING_NOTE = (
    "`info_nce` over both views together, `cacr` with `each_view` of two views. Limit: a float32 2048^3 matrix "
    "multiply, measured beside each row. Fraction: the multiplies that are needed, per second, over the limit; needed "
    f"are 2 * (2N)^2 * 2d flop for `info_nce` and 2 * 2N^2 * 2d for `cacr`, d = {D}."
)


# Measuring


def step(loss: Loss, inputs: Inputs) -> float:
    for view in inputs.raw:
        view.grad = None
    value = loss(inputs)
    value.backward()  # type: ignore[no-untyped-call]
    return float(value.detach())


def compare(case: Case) -> str:
    """That both sides give the same loss and gradient at the small size; else there is nothing to measure."""
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
    """For a process that does nothing else. What runs first is tiny: it loads libraries and leaves nothing to reuse."""
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
    """Bytes, one fresh process for each name, all at once since memory does not mind company."""
    answers = []
    for name in names:
        here, there = FRESH.Pipe(duplex=False)
        FRESH.Process(target=tell_peak, args=(name, quick, there), daemon=True).start()
        there.close()
        answers.append(here)
    return [received(answer) for answer in answers]


def received(answer: Connection) -> float:
    """Infinite from a process that died, as one does that runs out of memory."""
    try:
        return float(answer.recv())
    except EOFError:
        return math.inf


# Reporting


class Report:
    """Markdown, shown as it comes and kept in a file, so that a long run that is stopped has not been in vain."""

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
    """Three figures, or all before the point."""
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
