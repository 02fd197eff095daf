from __future__ import annotations

import pytest
import torch

from manyview.memories import Centre


def test_it_is_the_running_mean_of_what_it_follows() -> None:
    centre, expected = Centre(3, 0.9).double(), torch.zeros(3, dtype=torch.float64)
    for step in range(4):
        mean = torch.tensor([1.0, -2.0, float(step)], dtype=torch.float64)
        centre.follow(mean)
        expected = 0.9 * expected + 0.1 * mean
    torch.testing.assert_close(centre.vector, expected)


def test_it_is_in_the_state_dict() -> None:
    centre, other = Centre(3), Centre(3)
    centre.follow(torch.ones(3))
    other.load_state_dict(centre.state_dict())
    assert torch.equal(other.vector, centre.vector)


@pytest.mark.parametrize("momentum", [-0.1, 1.5])
def test_what_is_no_share_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum: expected"):
        Centre(3, momentum)
