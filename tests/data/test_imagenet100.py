"""The class list of ImageNet-100."""

from __future__ import annotations

import re

from manyview.data.imagenet100 import WNIDS


def test_there_are_a_hundred_different_wnids_in_order() -> None:
    assert len(WNIDS) == len(set(WNIDS)) == 100
    assert list(WNIDS) == sorted(WNIDS)
    assert all(re.fullmatch(r"n\d{8}", wnid) for wnid in WNIDS)


def test_the_two_misprints_are_mended() -> None:
    assert {"n03777754", "n03930630"} <= set(WNIDS)
    assert not {"n0377754", "n03903630"} & set(WNIDS)
