"""Random numbers that depend only on what they are for: (seed, epoch, id) and nothing else.

A generator has a state, so what it gives depends on who asked before. Here a number is a hash of its key, as in
counter-based generators (Salmon et al., SC 2011), so a sample's crop is the same for any number of workers or
processes, in any order, and after a resume in the middle of an epoch. The hash is SplitMix64's (Steele et al., 2014).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_Whole = np.ndarray[Any, np.dtype[np.uint64]]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 / golden ratio
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_SIGNED = [int(each.view(np.int64)) for each in (_GOLDEN, _FIRST, _SECOND)]  # the same bits as torch's int64


def key(*parts: int | Tensor) -> Tensor:
    """Mixes whole numbers to one int64 per broadcast element; their order matters.

    Numbers that are on a GPU stay there, and nobody waits for them.

    >>> key(seed, epoch, ids).shape == ids.shape
    """
    if device := _device_of(*parts):
        return _key_there(parts, device)
    with np.errstate(over="ignore"):  # numpy rather than torch: its whole numbers wrap, and few of them cost little
        mixed: _Whole = np.zeros((), np.uint64)
        for part in parts:
            mixed = _mix(mixed + _GOLDEN) ^ _whole(part)
        return torch.from_numpy(np.asarray(_mix(mixed + _GOLDEN)).view(np.int64))


def uniform(keys: Tensor, count: int) -> Tensor:
    """Draws (*keys.shape, count) numbers in [0, 1), float64, for keys made by `key`."""
    if device := _device_of(keys):
        return _uniform_there(keys, count, device)
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        mixed = _mix(np.asarray(_whole(keys))[..., None] + steps)
    return torch.from_numpy((mixed >> np.uint64(11)) * 2.0**-53)


def order(keys: Tensor) -> Tensor:
    """The permutation that sorts the keys: a shuffle that depends on each element's key, not on its place."""
    return keys.argsort(stable=True)


def _whole(part: int | Tensor) -> _Whole:
    if isinstance(part, Tensor):
        held: _Whole = part.to("cpu", torch.int64).numpy().view(np.uint64)
        return held
    return np.asarray(part % 2**64, np.uint64)


def _mix(x: _Whole) -> _Whole:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    mixed: _Whole = x ^ (x >> np.uint64(31))
    return mixed


def _device_of(*parts: int | Tensor) -> torch.device | None:
    """The GPU that some part is on."""
    return next((part.device for part in parts if isinstance(part, Tensor) and part.device.type != "cpu"), None)


def _key_there(parts: tuple[int | Tensor, ...], device: torch.device) -> Tensor:
    golden, mixed = _SIGNED[0], torch.zeros((), dtype=torch.long, device=device)
    for part in parts:
        whole = part.to(device, torch.long) if isinstance(part, Tensor) else _signed(part)
        mixed = _mix_there(mixed + golden) ^ whole
    return _mix_there(mixed + golden)


def _uniform_there(keys: Tensor, count: int, device: torch.device) -> Tensor:
    steps = torch.arange(1, count + 1, device=device) * _SIGNED[0]
    return _shifted(_mix_there(keys[..., None] + steps), 11).double() * 2.0**-53


def _mix_there(x: Tensor) -> Tensor:
    _, first, second = _SIGNED
    x = (x ^ _shifted(x, 30)) * first
    x = (x ^ _shifted(x, 27)) * second
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """x >> by with zeros from the left: torch's int64 brings its sign along."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
