"""Measurements for the benchmarks: time of alternatives that take turns, and the peak memory of one run."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import torch

MB = 1e6
Run = Callable[[], object]


def seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(
    runs: dict[str, Run], *, budget: float, rounds: tuple[int, int], at_most: dict[str, int]
) -> dict[str, float]:
    """The median seconds of each run.

    The runs take turns, A B A B, so that what else the machine does falls on all of them alike. As many rounds as fit
    into `budget` seconds within the bounds `rounds`; a run named in `at_most` sits out the rounds after that many.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent = 0.0
    for done in range(rounds[1]):
        if done >= rounds[0] and spent + spent / done > budget:
            break
        for name, run in runs.items():
            if done < at_most.get(name, rounds[1]):
                times[name].append(seconds(run))
                spent += times[name][-1]
    return {name: statistics.median(each) for name, each in times.items()}


def matmul_gflops(size: int = 2048, rounds: int = 7) -> float:
    """The speed of this machine in a float32 matrix multiply of size^3: the limit that a loss is held against."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    torch.mm(a, b, out=out)
    fastest = min(seconds(lambda: torch.mm(a, b, out=out)) for _ in range(rounds))
    return 2 * size**3 / fastest / 1e9


def peak_extra_bytes(run: Run) -> int:
    """The growth of the process, at its peak, above what it holds before `run`.

    To be called once in a process of its own: memory that an earlier run has freed would be used again unseen. Where
    the kernel does not let the peak be reset, growth is that of the highest peak so far, which is a lower bound.
    """
    torch.mm(*torch.rand(2, 512, 512))  # libraries keep room for their threads and packed tiles, whoever calls first
    _return_freed_pages()
    read = _resettable_peak() or _highest_peak
    before = read()
    run()
    return read() - before


def _return_freed_pages() -> None:
    """Returns pages that the allocator holds on to, which would hide as many pages of the run."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def _resettable_peak() -> Callable[[], int] | None:
    """The kernel's high-water mark of resident memory (VmHWM), set back to the present; None if that is refused."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return lambda: 1024 * int(_field("/proc/self/status", "VmHWM").split()[0])


def _highest_peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # bytes there, kB elsewhere


def available_bytes() -> int | None:
    """The memory that can be had without swapping; None where the kernel does not say."""
    free = _field("/proc/meminfo", "MemAvailable")
    return 1024 * int(free.split()[0]) if free else None


def _field(file: str, name: str) -> str:
    """The value of the first `name: value` line, empty if there is none."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    values = (line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == name)
    return next(values, "")


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine_facts() -> list[str]:
    """The facts that a number depends on, as lines of markdown."""
    memory = _field("/proc/meminfo", "MemTotal")
    size = f", {1024 * int(memory.split()[0]) / 1e9:.0f} GB of memory" if memory else ""
    return [
        f"* CPU: {_field('/proc/cpuinfo', 'model name') or platform.processor()}, {os.cpu_count()} cores{size}",
        f"* torch {torch.__version__} with {torch.get_num_threads()} threads "
        f"({torch.backends.cpu.get_cpu_capability()})",
        f"* lightly {version('lightly') or 'not installed'}, manyview {version('manyview')}, "
        f"Python {platform.python_version()}",
        f"* load average at the start: {os.getloadavg()[0]:.2f}; times mean little while others keep the cores busy",
    ]
