"""Values: texts and numbers, checked against the types of their settings."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from manyview.config.flags import read_flags
from manyview.config.resolve import resolve
from manyview.config.sections import flat
from tests.config.small import DATA, flags


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
        ("encoder.options", "3", "a table of settings"),
        ("data.imbalance", "steep", "one of linear, exponential or null"),
        ("encoder.stem", "big", "one of cifar or null"),
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
