"""Parses the arguments of all commands: a command is a function, and its signature declares what it takes.

    def embed(encoder: Annotated[str, "a run's folder"], *, batch_size: Annotated[int, AtLeast(1)] = 64) -> int:

Positional parameters are words in their order, and a tuple takes all that are left. Keyword parameters are flags. With
`**settings` any other flag is a setting. Types, bounds and the texts of help are in the annotations. A parameter `help`
is for commands that tell more than `usage` does.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from manyview.config.keys import REQUIRED, Flat, Key, choices, flag_name, key_of, shown, typed
from manyview.config.sections import flat
from manyview.core.errors import UserError, nearest

Command = Callable[..., int]
SWITCH = ("true", "yes", "false", "no")


def call(command: Command, arguments: Sequence[str]) -> int:
    """Runs a command with what was typed after its name, or shows its help."""
    words = ["--help" if word == "-h" else word for word in arguments]
    if "--help" in words and "help" not in inspect.signature(command).parameters:
        print(usage(command))
        return 0
    return command(**parsed(command, words))


def parsed(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """Parses words and flags into the command's arguments, each of its type; flags of no parameter become settings."""
    words, flags = _parameters(command)
    free = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(command).parameters.values())
    given: Flat = {}
    settings: Flat = {}
    placed: list[str] = []
    for key, value in pairs(arguments, [name for name, each in flags.items() if each.type is bool]):
        if key is None and not words:
            example = f"; for data write --data {value}" if not {**given, **settings} else ""
            raise UserError(None, f"expected --key value, got {value!r}{example}")
        if key is None:
            placed.append(str(value))
            continue
        if key in flags and not str(value).strip(" ,"):
            raise UserError(flag_name(key), f"expected a value, got none; write --{flag_name(key)} VALUE")
        if key not in flags and not free:
            near = nearest(key, flags)
            other = "--help shows all" if near is None else f"did you mean --{flag_name(near)}?"
            raise UserError(f"--{flag_name(key)}", f"there is no such flag; {other}")
        whole = key if key in flags else next(iter(flat({key: value})))  # --loss names the part: loss.name
        if whole in given or whole in settings:
            raise UserError(flag_name(whole), "is given twice; leave one out")
        (given if key in flags else settings)[whole] = value
    return {**typed({**words, **flags}, {}, {**_in_place(placed, words), **given}), **settings}


def pairs(arguments: Sequence[str], switches: Collection[str] = ()) -> Iterator[tuple[str | None, str | bool]]:
    """Yields each flag's key with its text, or True where it has none; a word without a flag comes with the key None.

    switches: keys that are only true or false, so that another word after them does not belong to them.
    """
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            yield None, word
            continue
        name, equals, text = word[2:].partition("=")
        key = name.replace("-", "_")
        alone = not rest or rest[0].startswith("--") or (key in switches and rest[0].lower() not in SWITCH)
        yield key, text if equals else True if alone else rest.pop(0)


def usage(command: Command) -> str:
    """Writes the help of a command: how it is called, what it does, and what each of its arguments means."""
    words, flags = _parameters(command)
    needed = [key.upper() if each.default is REQUIRED else f"[{key.upper()}]" for key, each in words.items()]
    needed += [f"--{flag_name(key)} VALUE" for key, each in flags.items() if each.default is REQUIRED]
    rows = [(key.upper(), "", each.about) for key, each in words.items()]
    rows += [(f"--{flag_name(key)}", _default(each), each.about) for key, each in flags.items() if key != "help"]
    name = f"manyview {command.__name__.strip('_')}"
    return f"usage: {' '.join([name, *needed])} [--FLAG VALUE ...]\n\n{inspect.getdoc(command)}\n\n{table(rows)}"


def table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Aligns rows of a name, a value and a text in columns."""
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {text}".rstrip() for name, value, text in rows)


def _parameters(command: Command) -> tuple[dict[str, Key], dict[str, Key]]:
    """Reads the positional words and the flags of a command off its signature."""
    hints = typing.get_type_hints(command, include_extras=True)
    words: dict[str, Key] = {}
    flags: dict[str, Key] = {}
    for name, each in inspect.signature(command).parameters.items():
        if each.kind is not each.VAR_KEYWORD:
            (flags if each.kind is each.KEYWORD_ONLY else words)[name] = key_of(hints[name], each.default)
    return words, flags


def _in_place(placed: list[str], words: Mapping[str, Key]) -> Flat:
    """Assigns positional words to the parameters that take them."""
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
