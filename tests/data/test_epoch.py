"""How samples fall into batches."""

import pytest

from manyview.data.epoch import Epoch


@pytest.mark.parametrize(
    ("epoch", "seen"),
    [
        (Epoch(20, 8, drop_last=True), [0, 8, 16, 24]),
        (Epoch(20, 8, drop_last=False), [0, 8, 16, 20, 28, 36, 40]),
        (Epoch(16, 8, drop_last=False), [0, 8, 16, 24]),
        (Epoch(5, 8, drop_last=False), [0, 5, 10]),
    ],
)
def test_batches_hold_so_many_samples_over_epochs(epoch: Epoch, seen: list[int]) -> None:
    assert [epoch.seen_in(count) for count in range(len(seen))] == seen
    assert epoch.seen == seen[epoch.batches]
