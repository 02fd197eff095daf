"""Writes the tree of files into docs/architecture.md, each with the first line of its docstring.

python docs/tree.py            # write
python docs/tree.py --check    # only say whether it is as it should be
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "manyview"
TREE = re.compile(r"(?<=```text\n)src/manyview/\n.*?(?=```)", re.DOTALL)
WIDTH = 30  # of the column of names


def lines(folder: Path, depth: int = 1) -> Iterator[str]:
    """A line for each file below a folder, and one before those of a folder."""
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.is_dir() and (path / "__init__.py").exists():
            yield line(f"{path.name}/", summary(path / "__init__.py"), depth)
            yield from lines(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            yield line(path.name, summary(path), depth)


def line(name: str, text: str, depth: int) -> str:
    return f"{'  ' * depth + name:<{WIDTH}}{text}".rstrip()


def summary(file: Path) -> str:
    """The first line of a file's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return text.partition("\n")[0].rstrip(".")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    before = PAGE.read_text()
    tree = "\n".join(["src/manyview/", *lines(PACKAGE), ""])
    after = TREE.sub(lambda _: tree, before)
    if given.check and before != after:
        print("the tree in docs/architecture.md is not that of src/manyview: python docs/tree.py writes it")
        return 1
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
