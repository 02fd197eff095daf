"""A training step's loss with a memory bank of each of two views, against gather + bmm as CMC's authors write it.

    python benchmarks/bank_step.py                    # banks of 1.28 M x 128, m = 16,384, N = 128
    python benchmarks/bank_step.py --rows 50000

Both sides have the same two small encoders and the same banks, and do all that follows the forward pass: draw the
negatives, both directions of the loss, backward, and the banks' update. Ours is the real method, as training calls it:
`objective`, backward, `update`. Theirs draws once for both directions, as CMC's code does. First both are given the
same negatives and must agree in loss and gradient. Times are medians of steps that take turns in one process; memory is
the peak of one step in a process of its own, above the banks and the encoders' outputs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from literal import bank_nce, bank_softmax
from measure import MB, interleaved, machine_facts, peak_extra_bytes
from torch import Tensor

from manyview import encoders, losses, memories
from manyview.methods import BatchOutputs, Method, cmc

VIEWS = ("L", "ab")
LOSSES: dict[str, Callable[..., Tensor]] = {"info_nce": losses.info_nce, "nce": losses.nce}
TEMPERATURE = 0.07


class Step:
    """Two views' encoders, their banks, and the step of either side."""

    def __init__(self, loss: str, rows: int, images: int, drawn: int) -> None:
        torch.manual_seed(0)
        made = {view: encoders.create("patchnet", size=8, widths=(8,), blocks=(1,)) for view in VIEWS}
        memory = partial(memories.bank, m=drawn)
        self.method: Method = cmc(made, loss=partial(LOSSES[loss], temperature=TEMPERATURE), memory=memory).start(rows)
        first, second = (cast(memories.BankMemory, self.method.memories[view]) for view in VIEWS)
        second.seed.copy_(first.seed)  # so that both sides of `check` can have the same negatives
        self.loss, self.rows, self.drawn = loss, rows, drawn
        self.index = torch.randperm(rows)[:images]
        self.views = {view: [torch.randn(images, 3, 8, 8)] for view in VIEWS}
        self.number = 0

    def bank(self, view: str) -> Any:
        return self.method.memories[view].bank

    def embed(self) -> BatchOutputs:
        self.number += 1
        self.method.zero_grad(set_to_none=True)
        return BatchOutputs(self.method(self.views), self.index, self.index, step=self.number)

    def ours(self, batch: BatchOutputs) -> None:
        self.method.objective(batch).loss.backward()
        self.method.update(batch, self.number, 100)

    def theirs(self, batch: BatchOutputs) -> None:
        drawn = torch.randint(self.rows, (len(self.index), self.drawn))
        self.their_loss(batch, drawn).backward()
        for slot, embedded in batch.outputs.items():
            with torch.no_grad():
                bank = self.bank(slot.view).vectors
                bank[self.index] = F.normalize(0.5 * bank[self.index] + 0.5 * embedded.detach(), dim=1)

    def their_loss(self, batch: BatchOutputs, drawn: Tensor) -> Tensor:
        parts = []
        for slot, embedded in batch.outputs.items():
            other = self.bank(next(view for view in VIEWS if view != slot.view))
            given = (embedded, other.vectors, self.index, drawn, TEMPERATURE)
            parts.append(bank_softmax(*given) if self.loss == "info_nce" else bank_nce(*given, float(other.partition)))
        return torch.stack(parts).sum()

    def check(self) -> None:
        """Both sides, given the same negatives, have the same loss and gradient; NCE's Z is known from here on."""
        batch = self.embed()
        memory: Any = self.method.memories["L"]
        drawn = memory.negatives(self.index, self.index, step=self.number).sources[0].index
        found = self.method.objective(batch).loss
        expected = self.their_loss(batch, drawn)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        outputs = list(batch.outputs.values())
        for one, other in zip(torch.autograd.grad(found, outputs), torch.autograd.grad(expected, outputs), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def timed(step: Step) -> dict[str, float]:
    """Median seconds of each side; the forward pass is not part of it."""
    waiting: list[BatchOutputs] = []
    runs: dict[str, Callable[[], object]] = {}
    for name in ("ours", "theirs"):
        runs |= {f"forward of {name}": lambda: waiting.append(step.embed())}
        runs |= {name: partial(lambda side: getattr(step, side)(waiting.pop()), name)}
    return interleaved(runs, budget=60, rounds=(3, 7), at_most={})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_280_000)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--drawn", type=int, default=16_384)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = (given.rows, given.images, given.drawn)
    if given.memory_of:
        alone = Step(given.losses[0], *sizes)
        batch = alone.embed()
        print(peak_extra_bytes(lambda: getattr(alone, given.memory_of)(batch)))
        return
    print("\n".join(machine_facts()) + "\n")
    print("| a step's loss, both directions | time, ours / gather + bmm | | memory, ours / gather + bmm | |")
    print("| --- | --- | --- | --- | --- |")
    for loss in given.losses:
        peaks = [memory(loss, side, sizes) for side in ("ours", "theirs")]
        step = Step(loss, *sizes)
        step.check()
        times = timed(step)
        ms = [1e3 * times[side] for side in ("ours", "theirs")]
        print(
            f"| bank `{loss}`, N = {given.images}, {given.drawn:,} of {given.rows:,} rows each "
            f"| {ms[0]:,.0f} / {ms[1]:,.0f} ms | **{ms[0] / ms[1]:.2f}x** "
            f"| {peaks[0]:,.0f} / {peaks[1]:,.0f} MB | **{peaks[0] / peaks[1]:.3f}x** |",
            flush=True,
        )
        del step


def memory(loss: str, side: str, sizes: tuple[int, int, int]) -> float:
    rows, images, drawn = map(str, sizes)
    command = [sys.executable, __file__, "--memory-of", side, "--losses", loss, "--rows", rows]
    command += ["--images", images, "--drawn", drawn]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]) / MB


if __name__ == "__main__":
    main()
