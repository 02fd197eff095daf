"""The parts that a run's settings name: functions with the arguments that their sections hold."""

from __future__ import annotations

from functools import partial
from typing import Any

from manyview.config import sections
from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.methods import METHODS


class Component(partial[Any]):
    """A function with the arguments that its section holds; an argument that it refuses is named by its key."""

    section: str

    def __call__(self, /, *positional: Any, **arguments: Any) -> Any:
        try:
            return super().__call__(*positional, **arguments)
        except UserError as error:
            if error.setting == "views":  # of the run, and of no section
                raise
            raise error.within(self.section) from None


def component(config: Config, section: str) -> Component:
    """Returns the function that a section names, with its arguments."""
    given = config.parts.get(section) or getattr(config, section)
    about = sections.section_of(section, METHODS[config.method["name"]])
    arguments = {key: value for key, value in given.items() if key != "name" and key not in about.more}
    made = Component(about.table[given["name"]], **arguments)
    made.section = section
    return made


def components(config: Config) -> dict[str, Component | None]:
    """Returns the parts of the method; None for a part that the run leaves out."""
    return {name: None if part is None else component(config, name) for name, part in config.parts.items()}
