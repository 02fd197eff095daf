"""The one way to say that something a person gave is wrong."""

from __future__ import annotations


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
