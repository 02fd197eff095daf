"""Damage: bytes as disks, networks and people spoil them, and trees of values as people edit them."""

from __future__ import annotations

import copy
import random
from typing import Any

ODD_BYTES = [b"", b"\0" * 64, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"NaN", b"[" * 5000, b"\xed\xa0\x80"]
ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "1e20",
    "~nosuchuser", "a\nb", "\ud800", "../..", [], {}, [[]], [None], {"": None}, {"name": 3}, [1, "a", None],
]  # fmt: skip


def damaged_bytes(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """One to four injuries: bits flipped, cut, lengthened, doubled, taken out, overwritten, or spliced with another."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = _injured(content, others, draw)
    return content


def _injured(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    near_an_end = draw.random() < 0.4  # where headers and directories are
    reach = min(len(content), 200)
    at = draw.randrange(len(content) + 1)
    if near_an_end:
        at = draw.randrange(reach + 1) if draw.random() < 0.5 else len(content) - draw.randrange(reach + 1)
    length = draw.choice((1, 2, 4, 8, 64, 1024))
    kind = draw.randrange(8)
    if kind <= 1 and content:
        flipped = bytearray(content)
        for _ in range(draw.choice((1, 1, 2, 8, 32))):
            flipped[min(at, len(flipped) - 1)] ^= 1 << draw.randrange(8)
            at = draw.randrange(len(flipped)) if not near_an_end else at
        return bytes(flipped)
    if kind == 2:
        return content[:at]
    if kind == 3:
        return content[:at] + content[at : at + length] * draw.choice((2, 3, 50)) + content[at + length :]
    if kind == 4:
        return content[:at] + content[at + length :]
    if kind == 5:
        odd = draw.choice(ODD_BYTES)
        return content[:at] + odd + content[at + len(odd) :]
    if kind == 6:
        return content[:at] + draw.randbytes(length) + content[at:]
    other = draw.choice(others)
    return content[:at] + other[draw.randrange(len(other) + 1) :]


def damaged_tree(tree: Any, draw: random.Random) -> Any:
    """The same values with one to three of them replaced, left out, doubled or buried."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return draw.choice(ODD_VALUES)
        holder, key = draw.choice(places)
        kind = draw.randrange(5)
        if kind <= 2:
            holder[key] = copy.deepcopy(draw.choice(ODD_VALUES))
        elif kind == 3:
            del holder[key]
        else:
            holder[key] = {"a": [holder[key]]} if draw.random() < 0.5 else [holder[key]] * 3
    return draw.choice(ODD_VALUES) if draw.random() < 0.02 else tree


def _places(tree: Any) -> Any:
    """Every (holder, key) below a tree."""
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from _places(tree[key])
