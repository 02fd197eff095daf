"""Keys: which settings a signature has, and which is meant by one that there is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from torch import Generator, Tensor

from manyview.config.keys import REQUIRED, Key, flag_name, key_of, keys_of
from manyview.core.bounds import AtLeast
from tests.config.small import flags


def part(
    dim: int,
    width: Annotated[int, AtLeast(1), "of the layers"] = 8,
    *,
    temperature: float | Tensor = 0.1,
    kind: Literal["a", "b"],
    folder: str | Path | None = None,
    present: Tensor | None = None,
    generator: Generator | None = None,
    gather: Callable[[Tensor], Tensor] = abs,
    table: Mapping[str, Any] | None = None,
    reduction: str = "mean",
    **options: Any,
) -> None:
    """Takes what a run gives, what a recipe can hold, and what it cannot."""


def test_settings_are_the_arguments_that_a_recipe_can_hold() -> None:
    found = keys_of("part", part, hidden=("reduction",), defaults={"temperature": 0.5}, part="it")
    assert found == {
        "part.width": Key(int, 8, "it", (AtLeast(1),), "of the layers"),
        "part.temperature": Key(float, 0.5, "it"),
        "part.kind": Key(Literal["a", "b"], REQUIRED, "it"),
        "part.folder": Key(str | None, None, "it"),
    }


def test_a_type_may_come_without_anything_else() -> None:
    assert key_of(tuple[int, ...], ()) == Key(tuple[int, ...], ())


def test_a_flag_has_dashes_and_a_part_goes_by_its_section() -> None:
    assert [flag_name(key) for key in ("loss.name", "batch_size", "head.dim_out")] == [
        "loss",
        "batch-size",
        "head.dim-out",
    ]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("--precison fp32", "did you mean 'precision'"),
        ("--loss.temprature 1", "did you mean 'loss.temperature'"),
        ("--los dcl", "did you mean 'loss'"),
        ("--method mocov2", "did you mean 'moco_v2'"),
        ("--method moco-v2", "did you mean 'moco_v2'"),
        ("--loss info-nce", "did you mean 'info_nce'"),
        ("--optimizer adamw2", "did you mean 'adamw'"),
        ("--optimiser.lr 1", "did you mean 'optimizer.lr'"),
        ("--xyzzy 1", "`manyview show` lists all settings"),
        ("--loss xyzzy", "there are info_nce, dcl"),
    ],
)
def test_a_name_that_there_is_not_comes_with_the_nearest(text: str, near: str) -> None:
    with pytest.raises(ValueError, match=near):
        flags(text)
