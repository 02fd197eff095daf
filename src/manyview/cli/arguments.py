"""The parser of all commands: a command is a function, and its signature says what it can be given.

    def embed(encoder: Annotated[str, "a run's folder"], *, batch_size: Annotated[int, AtLeast(1)] = 64) -> int:

Positional parameters are words in their order, and a tuple takes all that are left. Keyword parameters are flags. With
`**settings` any other flag is a setting. Types, bounds and the texts of help are in the annotations. A parameter `help`
is for commands that tell more than `usage` does.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manyview.config.flags import pairs, put
from manyview.config.keys import REQUIRED, Flat, Key, flag_name, key_of
from manyview.config.values import choices, shown, typed
from manyview.core.errors import UserError, nearest

Command = Callable[..., int]


def call(command: Command, arguments: Sequence[str]) -> int:
    """Runs a command with what was typed after its name, or shows its help."""
    words = ["--help" if word == "-h" else word for word in arguments]
    if "--help" in words and "help" not in inspect.signature(command).parameters:
        print(usage(command))
        return 0
    return command(**parsed(command, words))


def parsed(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """Words and flags as the command's arguments, each of its type; beside them, flags of no parameter as settings."""
    words, flags = _parameters(command)
    free = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(command).parameters.values())
    given: Flat = {}
    settings: Flat = {}
    placed: list[str] = []
    for key, value in pairs(arguments, [name for name, each in flags.items() if each.type is bool]):
        if key is None and words:
            placed.append(str(value))
        elif key is None:
            example = f"; for data write --data {value}" if not {**given, **settings} else ""
            raise UserError(None, f"expected --key value, got {value!r}{example}")
        elif key in given:
            raise UserError(flag_name(key), "is given twice; leave one out")
        elif key in flags and not str(value).strip(" ,"):
            raise UserError(flag_name(key), f"expected a value, got none; write --{flag_name(key)} VALUE")
        elif key in flags:
            given[key] = value
        elif free:
            put(settings, key, value)
        else:
            near = nearest(key, flags)
            other = "--help shows all" if near is None else f"did you mean --{flag_name(near)}?"
            raise UserError(f"--{flag_name(key)}", f"there is no such flag; {other}")
    return {**typed({**words, **flags}, {}, {**_in_place(placed, words), **given}), **settings}


def usage(command: Command) -> str:
    """The help of a command: how it is called, what it does, and what each of its arguments means."""
    words, flags = _parameters(command)
    needed = [key.upper() if each.default is REQUIRED else f"[{key.upper()}]" for key, each in words.items()]
    needed += [f"--{flag_name(key)} VALUE" for key, each in flags.items() if each.default is REQUIRED]
    rows = [(key.upper(), "", each.about) for key, each in words.items()]
    rows += [(f"--{flag_name(key)}", _default(each), each.about) for key, each in flags.items() if key != "help"]
    name = f"manyview {command.__name__.strip('_')}"
    return f"usage: {' '.join([name, *needed])} [--FLAG VALUE ...]\n\n{inspect.getdoc(command)}\n\n{table(rows)}"


def table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Rows of a name, a value and a text, the columns aligned."""
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {text}".rstrip() for name, value, text in rows)


def _parameters(command: Command) -> tuple[dict[str, Key], dict[str, Key]]:
    """The words and the flags that a command can be given."""
    hints = typing.get_type_hints(command, include_extras=True)
    words: dict[str, Key] = {}
    flags: dict[str, Key] = {}
    for name, each in inspect.signature(command).parameters.items():
        if each.kind is not each.VAR_KEYWORD:
            (flags if each.kind is each.KEYWORD_ONLY else words)[name] = key_of(hints[name], each.default)
    return words, flags


def _in_place(placed: list[str], words: Mapping[str, Key]) -> Flat:
    """Words that follow no flag, by the parameters that they are for."""
    given: Flat = {}
    rest = list(placed)
    for name, key in words.items():
        if rest and typing.get_origin(key.type) is tuple:
            given[name], rest = rest, []
        elif rest:
            given[name] = rest.pop(0)
        elif key.default is REQUIRED:
            raise UserError(name, f"is needed; give {name.upper()}")
    for word in (*rest, *(each for each in placed if each.startswith("-") and len(each) > 1)):
        raise UserError(None, f"expected --key value, got {word!r}")
    return given


def _default(key: Key) -> str:
    few = choices(key.type)
    return shown(key.default) + (f" ({'|'.join(few)})" if few and key.type is not bool else "")
