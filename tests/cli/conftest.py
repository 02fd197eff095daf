"""The run that the report is tested with, for the command that writes its page."""

from __future__ import annotations

from tests.report.conftest import evil, run

__all__ = ["evil", "run"]
