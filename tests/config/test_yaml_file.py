"""Settings in YAML files: strictly read, and back again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manyview.config.config import components, differences
from manyview.config.keys import REQUIRED
from manyview.config.resolve import resolve, schema
from manyview.config.yaml_file import from_yaml, read_yaml, to_yaml
from manyview.methods import METHODS
from tests.config.small import DATA, flags


@pytest.mark.parametrize(
    ("text", "message"), [("[1, 2", "is no YAML"), ("- 1", "expected settings such as 'epochs: 100', got list")]
)
def test_a_file_that_holds_no_settings_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_yaml(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml")


def test_a_part_that_may_be_none_can_be_left_out_by_null_and_comes_back_so(tmp_path: Path) -> None:
    config = flags("--method multikey --momentum null")
    assert config.part("momentum") is None
    assert components(config)["momentum"] is None
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert "momentum: null" in (tmp_path / "config.yaml").read_text()
    assert from_yaml(tmp_path / "config.yaml") == config
    assert resolve({**DATA, "method.name": "multikey", "momentum": None}, {}) == config
    with pytest.raises(ValueError, match=r"^momentum: expected the name of one, got none"):
        resolve({**DATA, "method.name": "jcl", "momentum": None}, {})


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_every_method_come_back_from_yaml(method: str, tmp_path: Path) -> None:
    for more in (
        "",
        "--optimizer adamw --schedule steps --augmentation custom --grad-clip 1 --snapshots 1,2 --head projector",
    ):
        config = flags(f"--method {method} {more}")
        path = tmp_path / "config.yaml"
        path.write_text(to_yaml(config))
        assert to_yaml(from_yaml(path)) == to_yaml(config)
        assert differences(config, from_yaml(path)) == []
        assert set(config.flat()) == set(schema(config.flat()))


def other_value(hint: Any, default: Any) -> Any:
    """Another value than the default, of the same kind."""
    import typing

    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[-1]
    if isinstance(default, bool):
        return not default
    if isinstance(default, float):
        return default / 2
    return {"int": default}.get(type(default).__name__, default)


@pytest.mark.parametrize("method", METHODS)
def test_every_key_of_every_method_can_be_given_as_value_and_as_text(method: str, tmp_path: Path) -> None:
    """With its default, or another value of its kind, on top of a recipe; and what is read back is the same."""
    base = {**DATA, "method.name": method}
    keys = schema(base)
    given = {
        key: other_value(each.type, each.default)
        for key, each in keys.items()
        if not key.endswith(".name") and each.default is not REQUIRED and key != "method.ramp"
    }
    given |= {"memory.enqueue": "last"} if "memory.enqueue" in given else {}
    as_values = resolve(base, given)
    assert as_values == resolve({**base, **given}, {})
    texts = {
        key: yaml.safe_dump(_listed(value), default_flow_style=True).split("\n")[0] for key, value in given.items()
    }
    assert differences(as_values, resolve(base, texts)) == []
    (tmp_path / "config.yaml").write_text(to_yaml(as_values))
    assert to_yaml(from_yaml(tmp_path / "config.yaml")) == to_yaml(as_values)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@given(
    lr=st.floats(1e-6, 10), temperature=st.floats(0.01, 5), epochs=st.integers(1, 10**6), seed=st.integers(0, 2**31),
    out=st.text("abc/.- é", min_size=1), shots=st.lists(st.integers(1, 999)),
)  # fmt: skip
def test_any_number_and_text_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    lr: float,
    temperature: float,
    epochs: int,
    seed: int,
    out: str,
    shots: list[int],
) -> None:
    given_ = {"lr": lr, "temperature": temperature, "epochs": epochs, "seed": seed, "snapshots": shots}
    config = resolve({**DATA, "out": out}, given_)
    path = tmp_path_factory.mktemp("yaml") / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert from_yaml(path) == config
    assert (config.optimizer["lr"], config.flat()["loss.temperature"], config.out) == (lr, temperature, out)
