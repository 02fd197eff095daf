"""Recipes: one YAML file per published setting, found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from manyview.config.keys import Flat
from manyview.config.resolve import schema
from manyview.config.sections import flat
from manyview.config.yaml_file import read_yaml
from manyview.core.errors import UserError, nearest

HOMES = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")  # installed; in the repository
ABOUT = "about"  # the section that is for people
SMOKE: Flat = {  # all that `--smoke` changes: data, image size, steps, batch and queue size, and no page
    "data.name": "scenes",
    "data.count": 256,
    "augmentation.size": 32,
    "max_steps": 2,
    "batch_size": 16,
    "micro_batch": None,
    "report": False,  # which takes longer than the run
}


class Recipe(NamedTuple):
    """A published setting.

    about  what it is for people: paper, command, hardware, expected result, and the encoder's parameter count
    """

    name: str
    about: dict[str, Any]
    settings: Flat


def recipes() -> dict[str, Path]:
    """All that come with manyview, by name."""
    home = next((home for home in HOMES if home.is_dir()), None)
    return {} if home is None else {path.stem: path for path in sorted(home.rglob("*.yaml"))}


def read(name: str | Path) -> Recipe:
    """A recipe by name, or a YAML file by path, such as a run's config.yaml."""
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
    """What to put on top of a recipe to try it in seconds.

    given: what a person has set on top of it, which counts more.
    """
    changed = {**SMOKE, "memory.size": 64, **given}
    there = schema({**recipe.settings, "data.name": SMOKE["data.name"], **given})
    return {key: value for key, value in changed.items() if key in there or key in given}
