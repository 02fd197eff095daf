"""The lines that the architecture draws, read off the import graph."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import manyview

ROOT = Path(manyview.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
APART = ("data", "views", "encoders", "memories", "losses")  # never import one another
FOR_ALL = ("core",)
ONLY_HERE = {  # what a package may be imported by, in manyview
    "torch.distributed": {"core/distributed.py"},
    "lightning": {"training/train.py"},
    "lightning_fabric": {"training/train.py"},
}


def imported(file: Path) -> set[str]:
    """Full names of all modules that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are written in full"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def place(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def reaches(names: set[str], module: str) -> bool:
    return any(name == module or name.startswith(module + ".") for name in names)


@pytest.mark.parametrize("file", FILES, ids=place)
def test_the_five_folders_never_import_one_another(file: Path) -> None:
    folder = place(file).split("/")[0]
    if folder in APART:
        for other in APART:
            assert other == folder or not reaches(imported(file), f"manyview.{other}")


@pytest.mark.parametrize("file", FILES, ids=place)
def test_the_five_folders_know_only_themselves_and_what_all_may_import(file: Path) -> None:
    folder = place(file).split("/")[0]
    if folder in APART:
        ours = {name for name in imported(file) if name.startswith("manyview")}
        allowed = (f"manyview.{folder}", *(f"manyview.{name}" for name in FOR_ALL))
        assert all(any(name == a or name.startswith(a + ".") for a in allowed) for name in ours), ours


@pytest.mark.parametrize("file", FILES, ids=place)
def test_a_guarded_package_is_imported_in_its_one_file_only(file: Path) -> None:
    for package, homes in ONLY_HERE.items():
        assert not reaches(imported(file), package) or place(file) in homes


@pytest.mark.parametrize("file", [file for file in FILES if place(file).startswith("core/")], ids=place)
def test_core_imports_nothing_of_manyview_but_core(file: Path) -> None:
    assert all(name.startswith("manyview.core") for name in imported(file) if name.startswith("manyview"))


def test_the_guard_sees_an_import_inside_a_function(tmp_path: Path) -> None:
    file = tmp_path / "part.py"
    file.write_text("def f():\n    from manyview.losses import dcl\n    return dcl\n")
    assert reaches(imported(file), "manyview.losses")


def test_the_package_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
