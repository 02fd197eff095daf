"""Hints: the nearest name, or all there are."""

from __future__ import annotations

from manyview.core.names import alike, hint, nearest


def test_the_nearest_name_is_the_one_most_like_it() -> None:
    assert nearest("mocov2", ["moco_v1", "moco_v2", "simclr"]) == "moco_v2"
    assert nearest("zzz", ["moco_v1"]) is None
    assert nearest("moco", ["moco_v1"], cutoff=0.9) is None
    assert nearest(3, ["moco_v1"]) is None


def test_names_alike_come_in_order() -> None:
    assert alike("moco_v2", ["moco_v1", "simclr", "moco_v2"], 2) == ["moco_v2", "moco_v1"]


def test_a_hint_names_the_nearest_or_all() -> None:
    assert hint("dlc", ["dcl", "jcl"]) == "did you mean 'dcl'?"
    assert hint("zzz", ["dcl", "jcl"]) == "there are dcl, jcl"
