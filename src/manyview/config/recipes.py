"""Settings in YAML files: the recipes of published settings, found by name, and the config.yaml of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from manyview.config.config import Config, plain
from manyview.config.keys import Flat
from manyview.config.resolve import resolve, schema
from manyview.config.sections import flat
from manyview.core.errors import UserError, nearest
from manyview.core.text import reason

HOMES = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")  # installed; in the repository
ABOUT = "about"  # the section that is for people
SMOKE: Flat = {  # all that `--smoke` changes: data, image size, steps, batch and queue size, precision, and no page
    "data.name": "scenes",
    "data.count": 256,
    "augmentation.size": 32,
    "augmentation.small_size": 16,
    "max_steps": 2,
    "batch_size": 16,
    "micro_batch": None,
    "precision": "fp32",  # fp16 needs a GPU
    "report": False,  # which takes longer than the run
}


class Recipe(NamedTuple):
    """A published setting, with what is known about it."""

    name: str
    about: dict[
        str, Any
    ]  # for people: paper, command, hardware, expected result, the (first) encoder's parameter count
    settings: Flat


def recipes() -> dict[str, Path]:
    """Finds the files of all recipes that come with manyview, by name."""
    home = next((home for home in HOMES if home.is_dir()), None)
    return {} if home is None else {path.stem: path for path in sorted(home.rglob("*.yaml"))}


def read(name: str | Path) -> Recipe:
    """Reads a recipe by name, or a YAML file by path, such as a run's config.yaml."""
    known = recipes()
    path = known.get(str(name), Path(name))
    if not path.is_file():
        near = nearest(name, known)
        there = "`manyview list recipes` names them" if near is None else f"did you mean {near!r}?"
        raise UserError("recipe", f"{str(name)!r} is neither a recipe's name nor a file; {there}")
    found = read_yaml(path)
    about = found.pop(ABOUT, None) or {}
    return Recipe(path.stem, about if isinstance(about, dict) else {"text": str(about)}, flat(found))


def smoke(recipe: Recipe, given: Flat) -> Flat:
    """Returns the settings that let a recipe run in seconds: `SMOKE` and the recipe's own about.smoke.

    given: settings of the user, which override these.
    """
    changed = {**SMOKE, "memory.size": 64, "memory.m": 64, **flat(recipe.about.get("smoke", {})), **given}
    there = schema({**recipe.settings, "data.name": SMOKE["data.name"], **given})
    return {key: value for key, value in changed.items() if key in there or key in given}


class _StrictLoader(yaml.SafeLoader):
    """A YAML loader that refuses a key with two values, of which YAML would silently take the last."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # of which a few hundred bytes can make more than any memory holds
            events: Any = self  # PyYAML has no types
            raise UserError(None, f"*{events.peek_event().anchor} stands for something else; write that out instead")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise UserError(None, f"{key} is there twice; leave one out")
        return super().construct_mapping(node, deep)


def _number(loader: _StrictLoader, node: yaml.ScalarNode) -> Any:
    """Reads a number as it is usually written: YAML would read 1:30 as 90."""
    return node.value if ":" in node.value else yaml.SafeLoader.yaml_constructors[node.tag](loader, node)


for _kind in ("int", "float"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Reads a YAML file as a table by its outermost keys."""
    try:
        found = yaml.load(Path(path).read_text(encoding="utf-8"), _StrictLoader)
    except UserError as error:
        raise error.within(str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(str(path), f"is no YAML: {reason(error)}") from None
    except RecursionError:
        raise UserError(str(path), "is nested too deeply for settings") from None
    except OSError as error:
        raise UserError(str(path), f"cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise UserError(str(path), f"expected settings such as 'epochs: 100', got {type(found).__name__}")
    return found


def to_yaml(config: Config) -> str:
    """Writes all settings, so that the file alone can run the job again."""
    return str(yaml.safe_dump(plain(config.nested()), sort_keys=False, allow_unicode=True))


def from_yaml(path: str | Path) -> Config:
    """Reads the settings that `to_yaml` has written."""
    found = flat(read_yaml(path))
    try:
        return resolve(found, {})
    except UserError as error:
        raise UserError(str(path), f"holds no settings of a run: {error}") from None
