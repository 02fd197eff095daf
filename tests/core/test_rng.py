"""Numbers that depend on their key alone, and look random."""

from __future__ import annotations

import torch

from manyview.core.rng import _key_there, _uniform_there, key, order, uniform

N = 100_000


def splitmix64(state: int) -> int:
    """The published generator's output function, in Python's whole numbers."""
    mask = 2**64 - 1
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_uniform_is_splitmix64_from_the_key() -> None:
    for state in (0, 1, -1, 123456789, -(2**63), 2**63 - 1):
        got = uniform(torch.tensor(state), 3).tolist()
        golden = 0x9E3779B97F4A7C15
        wanted = [(splitmix64((state + k * golden) % 2**64) >> 11) / 2**53 for k in (1, 2, 3)]
        assert got == wanted


def test_the_numbers_never_change() -> None:
    """Runs that were begun with an earlier version go on with the same crops."""
    assert key(1, 2, 3).item() == 1470200354583225620
    assert uniform(key(0, 0, 0), 1).item() == 0.47141042966848024


def test_numbers_are_uniform_and_uncorrelated() -> None:
    numbers = uniform(key(0, 1, torch.arange(N)), 4)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert (numbers.mean(0) - 0.5).abs().max() < 5 * (1 / 12 / N) ** 0.5
    counts = torch.histc(numbers[:, 0], 100, 0, 1)
    assert ((counts - N / 100) ** 2 / (N / 100)).sum() < 170  # chi square, 99 degrees of freedom
    off = torch.corrcoef(numbers.T) - torch.eye(4)
    assert off.abs().max() < 5 / N**0.5


def test_keys_that_differ_little_give_unlike_numbers() -> None:
    ids = torch.arange(N)
    columns = [uniform(key(*parts), 1)[:, 0] for parts in ((0, 0, ids), (0, 1, ids), (1, 0, ids), (0, 0, ids + 1))]
    off = torch.corrcoef(torch.stack(columns)) - torch.eye(4)
    assert off.abs().max() < 5 / N**0.5


def test_keys_differ_with_the_order_of_their_parts_and_hardly_ever_meet() -> None:
    assert key(1, 2) != key(2, 1)
    assert key(0) != key(0, 0)
    assert len(key(0, torch.arange(1000)[:, None], torch.arange(1000)).unique()) == 10**6


def test_a_number_does_not_depend_on_what_is_drawn_beside_it() -> None:
    ids = torch.arange(50)
    assert torch.equal(uniform(key(3, ids), 7)[20:30, :4], uniform(key(3, ids[20:30]), 4))


def test_an_order_is_a_permutation_that_keeps_with_the_elements() -> None:
    ids = torch.arange(1000)
    shuffled = ids[order(key(5, ids))]
    assert torch.equal(shuffled.sort().values, ids)
    part = ids[ids % 2 == 0]
    assert torch.equal(part[order(key(5, part))], shuffled[shuffled % 2 == 0])


def test_on_a_gpu_the_numbers_are_the_same() -> None:
    """Tried on the CPU, with the arithmetic that numbers on a GPU go through."""
    cpu = torch.device("cpu")
    ids = torch.randint(-(2**62), 2**62, (1000,), generator=torch.Generator().manual_seed(0))
    for parts in ((3, 5, ids), (-1, ids), (2**64 + 7, ids[:5, None], ids[:4])):
        keys = key(*parts)
        assert torch.equal(_key_there(parts, cpu), keys)
        assert torch.equal(_uniform_there(keys, 9, cpu), uniform(keys, 9))
