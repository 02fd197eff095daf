"""The command `manyview show`."""

from typing import Annotated

from manyview.cli.arguments import table
from manyview.config.keys import Flat, choices, flag_name, shown
from manyview.config.recipes import read, to_yaml
from manyview.config.resolve import resolve, schema

ANY = "DIR"  # shown for data that a recipe leaves to a flag


def show(
    recipe: Annotated[str | None, "a name of `manyview list recipes`, or a file; without, the defaults"] = None,
) -> int:
    """Prints a recipe with all its settings."""
    if recipe is None:
        print(settings_table({}))
        return 0
    found = read(recipe)
    for name, text in found.about.items():
        print(f"# {name}: {text}")
    print(to_yaml(resolve({"data.name": ANY, **found.settings}, {})), end="")
    return 0


def settings_table(chosen: Flat) -> str:
    """Lists all settings of a run with these parts, one per line, with their values where these are few."""
    rows = []
    for key, each in schema(chosen).items():
        few = choices(each.type) if each.type is not bool else []
        rows.append((f"--{flag_name(key)}", shown(chosen.get(key, each.default)), f"({'|'.join(few)})" if few else ""))
    return table(rows)
