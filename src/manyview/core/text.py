"""Text: names and errors as a person can read them, durations, and a digest that stands for a value."""

import hashlib
import json
from typing import Any


def printable(text: str) -> str:
    r"""Writes whatever is not a visible character as an escape: a newline as \n, a byte that is no UTF-8 as \xff."""
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def one_line(text: str) -> str:
    """Joins the lines of a text by spaces and makes the result `printable`."""
    return printable(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def reason(error: BaseException) -> str:
    """Gives an error's message as one line, or its type where it has no message."""
    return one_line(str(error)) or type(error).__name__


def counted(count: int, word: str) -> str:
    """Writes a number with its word: 1 step, 1,200 steps."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Writes a time as 12 s, 3 min 20 s, 45 min, 2 h 5 min or 3.5 days."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 and whole < 600 else "")
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole / 86400:.1f} days"


def digest(content: Any) -> str:
    """32 hexadecimal figures that stand for something that JSON can hold."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _escape(character: str) -> str:
    byte = ord(character) - 0xDC00  # os.fsdecode maps a byte that is no UTF-8 to such a code point
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else character.encode("unicode_escape").decode("ascii")
