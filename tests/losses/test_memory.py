"""Memory that does not grow with the square of the batch, seen from outside: the peak of a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import re, sys, torch
import torch.nn.functional as F
from manyview import contrast
from manyview.methods.topologies import each_copy

def peak():  # of this program alone: getrusage also counts what its parent was when it started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

loss, images = sys.argv[1], int(sys.argv[2])
options = {"topology": each_copy} if loss == "cacr" else {}
contrast(torch.randn(2, 8, 64), loss=loss, **options)
raw = torch.randn(2, images, 64, requires_grad=True)
before = peak()
contrast(raw, loss=loss, **options).backward()
print(peak() - before)
"""


def extra_megabytes(loss: str, images: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, loss, str(images)], capture_output=True, text=True, check=True, timeout=600
    )
    return int(done.stdout) / 1024  # kB on Linux


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read in kB as Linux gives it")
@pytest.mark.parametrize("loss", ["info_nce", "cacr"])
def test_a_four_times_larger_batch_needs_no_more_than_about_four_times_the_memory(loss: str) -> None:
    small, large = extra_megabytes(loss, 3_000), extra_megabytes(loss, 12_000)
    dense = (2 * 12_000) ** 2 * 4 / 2**20  # one float32 matrix of all pairs
    assert large < 4.5 * small
    assert large < 0.1 * dense
