"""The run that the tests of the page have, for the command that writes it."""

from tests.report.conftest import evil, run  # noqa: F401
