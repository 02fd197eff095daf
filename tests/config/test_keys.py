"""Keys and values: which settings a signature has, and texts and numbers checked against their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from torch import Generator, Tensor

from manyview.config.keys import REQUIRED, Key, flag_name, key_of, keys_of
from manyview.config.resolve import resolve
from manyview.config.sections import flat
from manyview.core.bounds import AtLeast
from tests.config.small import DATA, flags, read_flags


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


def test_texts_are_read_as_what_the_setting_is() -> None:
    words = [
        "--snapshots",
        "1,20",
        "--lr",
        "1e-3",
        "--out",
        "3",
        "--grad-clip",
        "null",
        "--quiet",
        "yes",
        "--workers",
        "2",
    ]
    config = resolve(DATA, read_flags([*words, "--encoder.options", '{"widths": [8]}']))
    assert (config.snapshots, config.optimizer["lr"], config.out, config.grad_clip) == ((1, 20), 0.001, "3", None)
    assert (config.encoder["options"], config.quiet, config.workers) == ({"widths": [8]}, True, 2)


@pytest.mark.parametrize(("text", "expected"), [("7", (7,)), ("[1, 2]", (1, 2)), ("[]", ()), ("1,2,3", (1, 2, 3))])
def test_lists_come_with_commas_or_brackets(text: str, expected: tuple[int, ...]) -> None:
    assert resolve(DATA, {"snapshots": text}).snapshots == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("batch_size", "1.5", "a whole number"),
        ("batch_size", "true", "a whole number"),
        ("batch_size", "", "a whole number"),
        ("epochs", "true", "a number"),
        ("optimizer.lr", "fast", "a number"),
        ("optimizer.lr", "true", "a number"),
        ("quiet", "maybe", "true or false"),
        ("grad_clip", "x", "a number or null"),
        ("precision", "fp8", "one of fp32, bf16, fp16, fp64"),
        ("snapshots", "1,x", "a list, each a whole number"),
        ("optimizer.betas", "0.9", "a list of 2, each a number"),
        ("data.nodata", "x", "a number, nan, a table {NAME: a number or nan} or null"),
        ("encoder.options", "3", "a table of settings"),
        ("data.imbalance", "steep", "one of linear, exponential or null"),
        ("encoder.stem", "big", "cifar or null"),
        ("schedule.per", "day", "one of step, epoch"),
        ("memory.enqueue", "first", "one of mean, last, each"),
    ],
)
def test_a_wrong_type_is_one_line_with_key_value_and_what_was_expected(key: str, value: str, expected: str) -> None:
    recipe = {**DATA, "optimizer.name": "adamw", "method.name": "jcl"}
    with pytest.raises(ValueError, match="expected") as error:
        resolve(recipe, {key: value})
    assert str(error.value) == f"{key}: expected {expected}, got {value!r}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("batch_size", value) for value in (1.5, "many", [1], True, None)),
        *(("epochs", value) for value in ("many", [1], True, None)),
        *(("quiet", value) for value in ("maybe", 3)),
        *(("snapshots", value) for value in (3, [1.5])),
        ("encoder.options", 3),
        ("loss.temperature", [0.1]),
    ],
)
def test_recipes_are_as_strict(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        resolve({**DATA, key: value}, {})
    assert str(error.value).startswith(f"{key}: expected ")
    assert str(error.value).endswith(f", got {value!r}")
    assert "\n" not in str(error.value)


def test_a_recipe_may_write_numbers_as_people_do() -> None:
    recipe = flat(yaml.safe_load("{data: photos, optimizer: {lr: 1e-3, weight_decay: 0}, grad_clip: 1}"))
    config = resolve(recipe, {})
    assert config.optimizer["lr"] == 0.001  # a text to YAML, without a point
    assert (config.optimizer["weight_decay"], config.grad_clip) == (0, 1)


def test_a_flag_without_its_value_is_asked_for_it() -> None:
    with pytest.raises(ValueError, match=r"^data\.name: expected a text, got none; write --data VALUE"):
        resolve({}, read_flags(["--data"]))
    with pytest.raises(ValueError, match=r"^epochs: expected a number, got none"):
        flags("--epochs")
    with pytest.raises(ValueError, match="for data write --data photos"):
        read_flags(["photos"])
