"""The one way to say that something a person gave is wrong, and the hint for a name that there is not."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches

NO_MEMORY = re.compile("can.t allocate memory|not enough memory|out of memory|bad_alloc|can.t start new thread", re.I)


def is_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left, the machine's or a GPU's."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None


class UserError(ValueError):
    """Something that a person can mend: which setting or argument, what is wrong with which value, what to do.

    The command line shows it as one line and ends with `exit_code`; any other exception is a bug and shows its
    traceback.

    setting  the name of the setting or argument, such as "temperature"; None where it is about no single one

    >>> raise UserError("temperature", f"expected a number above 0, got {temperature}")
    """

    exit_code = 2

    def __init__(self, setting: str | None, message: str) -> None:
        super().__init__(message if setting is None else f"{setting}: {message}")
        self.setting, self.message, self.section = setting, message, ""

    def within(self, section: str) -> UserError:
        """The same about a setting of a section: "temperature" becomes "loss.temperature", once; of a part of a part it
        is the inner one's."""
        if self.section:
            return self
        error = type(self)(section if self.setting is None else f"{section}.{self.setting}", self.message)
        error.section = section
        return error


def nearest(name: object, names: Iterable[str], *, cutoff: float = 0.4) -> str | None:
    """The name most like another; None where none is."""
    return next(iter(get_close_matches(str(name), list(names), 1, cutoff)), None)


def hint(name: object, names: Iterable[str], *, cutoff: float = 0.4) -> str:
    """`did you mean 'dcl'?`, or all there are.

    >>> raise UserError("loss", f"there is none named {name!r}; {hint(name, LOSSES)}")
    """
    there = list(names)
    near = nearest(name, there, cutoff=cutoff)
    return f"there are {', '.join(there)}" if near is None else f"did you mean {near!r}?"
