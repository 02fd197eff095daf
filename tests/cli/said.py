"""What a command has said, as the tests of this folder want it."""

from __future__ import annotations

import pytest


def one_line(capsys: pytest.CaptureFixture[str], text: str) -> None:
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert text in said.err
