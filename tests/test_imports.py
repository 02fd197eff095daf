"""The lines that docs/architecture.md draws between the rooms, read off the import graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import manyview

ROOT = Path(manyview.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
FILES = sorted(ROOT.rglob("*.py"))
ROOMS = sorted(folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").is_file())
APART = {"data", "views", "encoders", "memories", "losses"}  # never import one another, whatever the page says
LAZILY = " (lazily)"
ONLY_HERE = {  # what a package may be imported by, in manyview
    "torch.distributed": {"core/distributed.py"},
    "lightning": {"training/engine.py"},
    "lightning_fabric": {"training/engine.py"},
}


class Imported(NamedTuple):
    """A module that a file imports, or a name in one; `lazily` if that is in a function."""

    name: str
    lazily: bool = False


def imported(file: Path) -> set[Imported]:
    """Full names of all that a file imports, wherever in the file."""

    def below(node: ast.AST, lazily: bool) -> Iterator[Imported]:
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, lazily) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are written in full"
            yield from (Imported(f"{node.module}.{alias.name}", lazily) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from below(child, lazily or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    return set(below(ast.parse(file.read_text()), lazily=False))


def place(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def table() -> dict[str, list[str]]:
    """What each room may import, in the order of the page: names of rooms or of their files, perhaps only lazily."""
    lines = PAGE.read_text().partition("| room |")[2].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]
    return {row[0]: [entry.strip() for entry in row[2].split(",") if entry.strip()] for row in rows}


def allowed(found: Imported, entries: list[str]) -> bool:
    for entry in entries:
        module = f"manyview.{entry.removesuffix(LAZILY).replace('/', '.')}"
        if within(found.name, module) and (found.lazily or not entry.endswith(LAZILY)):
            return True
    return False


def crossing(file: Path, may: dict[str, list[str]]) -> set[tuple[str, str]]:
    """(the file, the room) for every import that the page does not allow."""
    room = place(file).split("/")[0]
    if room not in ROOMS or may[room] == ["everything"]:
        return set()
    entries = [room, "__version__", *may[room]]
    ours = (found for found in imported(file) if within(found.name, "manyview"))
    return {
        (place(file), found.name.removeprefix("manyview.").split(".")[0])
        for found in ours
        if not allowed(found, entries)
    }


def test_no_file_imports_what_the_page_does_not_allow() -> None:
    assert {each for file in FILES for each in crossing(file, table())} == set()


def test_the_page_has_a_row_for_every_room() -> None:
    assert sorted(table()) == ROOMS


def test_the_page_allows_nothing_that_nobody_imports() -> None:
    for room, entries in table().items():
        found = [each for file in FILES if place(file).startswith(f"{room}/") for each in imported(file)]
        unused = {entry for entry in entries if not any(allowed(each, [entry]) for each in found)}
        assert unused <= {"everything"}, room


def test_rooms_import_rooms_below_them_and_higher_ones_by_one_file_or_lazily() -> None:
    below: set[str] = set()
    for room, entries in table().items():
        whole = {entry for entry in entries if "/" not in entry and not entry.endswith(LAZILY)}
        assert whole <= below | {"everything"}, room
        below.add(room)


def test_core_imports_no_room_and_the_parts_only_core() -> None:
    assert table()["core"] == []
    assert {room: entries for room, entries in table().items() if room in APART} == {room: ["core"] for room in APART}


@pytest.mark.parametrize("package", ONLY_HERE)
def test_a_guarded_package_is_imported_in_its_files_only(package: str) -> None:
    homes = {place(file) for file in FILES if any(within(found.name, package) for found in imported(file))}
    assert homes <= ONLY_HERE[package]


def test_the_guard_sees_an_import_inside_a_function(tmp_path: Path) -> None:
    file = tmp_path / "part.py"
    file.write_text("import manyview.core\ndef f():\n    from manyview.losses import dcl\n    return dcl\n")
    assert imported(file) == {Imported("manyview.core"), Imported("manyview.losses.dcl", lazily=True)}
    assert allowed(Imported("manyview.losses.dcl", lazily=True), ["losses (lazily)"])
    assert not allowed(Imported("manyview.losses.dcl"), ["losses (lazily)"])
    assert not allowed(Imported("manyview.losses.dcl"), ["losses/jcl"])


def test_the_package_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
