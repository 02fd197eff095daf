"""Random numbers that depend only on what they are for: (seed, epoch, id) and nothing else.

A generator has a state, so what it gives depends on who asked before. Here a number is a hash of its key, as in
counter-based generators (Salmon et al., SC 2011), so a sample's crop is the same for any number of workers or processes,
in any order, and after a resume in the middle of an epoch. The hash is SplitMix64's (Steele et al., OOPSLA 2014).
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # odd, 2^64 / golden ratio, as a signed number
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def key(*parts: int | Tensor) -> Tensor:
    """One int64 per broadcast element, mixed from whole numbers; their order matters.

    >>> key(seed, epoch, ids).shape == ids.shape
    """
    mixed = torch.zeros((), dtype=torch.int64)
    for part in parts:
        mixed = _mix(mixed + _GOLDEN) ^ torch.as_tensor(part, dtype=torch.int64)
    return _mix(mixed + _GOLDEN)


def uniform(keys: Tensor, count: int) -> Tensor:
    """(*keys.shape, count) numbers in [0, 1), float64, for keys made by `key`."""
    steps = torch.arange(1, count + 1, dtype=torch.int64, device=keys.device) * _GOLDEN
    return _shift(_mix(keys[..., None] + steps), 11).double() * 2.0**-53


def order(keys: Tensor) -> Tensor:
    """The permutation that sorts the keys: a shuffle that depends on each element's key, not on its place."""
    return keys.argsort(stable=True)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
