"""What a file of embeddings says of itself survives, and what is made up is refused."""

from __future__ import annotations

import json

import pytest

from manyview.embeddings import About

ABOUT = About(
    encoder="runs/a", network="patchnet", weights="0" * 32, size=32, mean=(0.5,), std=(0.2,), view="thermal",
    data="photos", options={}, root=None, classes=("a",), dtype="float32", batch_size=8, fingerprint="1-2",
    version="0", broken={"x.png": "empty"},
)  # fmt: skip


def test_it_survives_json() -> None:
    assert About.from_json(ABOUT.to_json()) == ABOUT


def test_a_file_from_before_there_were_places_has_none() -> None:
    older = {name: value for name, value in json.loads(ABOUT.to_json()).items() if name != "grid"}
    assert About.from_json(json.dumps(older).encode()).grid == ()


@pytest.mark.parametrize(
    "change", [{"view": 3}, {"mean": ["a"]}, {"grid": ["a"]}, {"more": 1}, {"manyview_embeddings": 2}]
)
def test_what_is_damaged_is_refused(change: dict[str, object]) -> None:
    text = json.dumps({**json.loads(ABOUT.to_json()), **change}).encode()
    with pytest.raises(ValueError, match=r"damaged|of format 1"):
        About.from_json(text)
