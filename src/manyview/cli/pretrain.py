"""The command `manyview pretrain`."""

import inspect
from pathlib import Path
from typing import Annotated, Any

from manyview.cli.arguments import usage
from manyview.cli.main import began
from manyview.cli.show import settings_table
from manyview.config.config import Config
from manyview.config.recipes import read
from manyview.config.sections import chosen_method, flat
from manyview.core.errors import UserError
from manyview.training.launch import configured, resumed, start


def pretrain(
    *,
    recipe: Annotated[
        str | None, "a published setting (`manyview list recipes`), or a YAML file such as a run's config.yaml"
    ] = None,
    resume: Annotated[str | None, "resume the run in this folder"] = None,
    smoke: Annotated[bool, "try the recipe in seconds, on generated images or on --data"] = False,
    help: bool = False,
    **settings: Any,
) -> int:
    """Trains an encoder on unlabelled images: --data PATH|NAME, a folder or a name of `manyview list data`.

    The same command resumes a run that was stopped.
    """
    if help:
        chosen = {**(read(recipe).settings if recipe else {}), **settings}
        title = "Settings, as they are with these flags (a key that only one section has may go without it: --lr 0.1):"
        meanings = "\n  ".join((inspect.getdoc(Config) or "").split("\n")[2:])  # a section's are where its part is
        method = chosen_method(flat(chosen))
        about = "\n  ".join((inspect.getdoc(method) or "").split("\n"))
        print(f"{usage(pretrain)}\n\n{title}\n{settings_table(chosen)}\n\n  {meanings}")
        print(f"\nThe method {method.__name__}, and its settings:\n  {about}")
        return 0
    if resume is None:
        start(configured(recipe, settings, smoke=smoke), began=began.get(None))
        return 0
    for name, given in (("recipe", recipe is not None), ("smoke", smoke)):
        if given:
            raise UserError(name, "cannot be given with --resume: a run that was begun has its settings")
    start(resumed(Path(resume), settings), began=began.get(None))
    return 0
