"""A few hundred cases of the fuzzer; `make fuzz` runs 50,000."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.kinds import kinds
from tests.fuzz.run import cases

CASES = 40  # of a kind
FEW = ("flags", "npz")  # kinds of which few that are damaged are still right


def test_whatever_is_damaged_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    failures = []
    for kind in kinds(tmp_path):
        counts, failed = cases(kind, range(CASES), 0, tmp_path)
        assert counts.total() == CASES
        if kind.name not in FEW:
            assert counts["read"], f"{kind.name}: all for one and the same reason?"
        failures += failed
    assert failures == []
