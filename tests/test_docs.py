"""What the documents show is true: their code runs, their links lead somewhere, the map of the tree is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted((ROOT / "docs").glob("*.md"))]
LINKING = [*PAGES, ROOT / "CHANGELOG.md"]
NAMES = {page.name for page in PAGES if page.parent.name == "docs"}
INVENTED = {"utils.py", "src/manyview/losses/sigmoid.py", "tests/losses/test_sigmoid.py"}  # of examples


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def found(path: str) -> Path | None:
    """A file that a page names from the root or from src/manyview; None if there is none."""
    places = (ROOT / path, ROOT / "src" / "manyview" / path)
    return next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    namespace: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), namespace)


def anchors(page: Path) -> set[str]:
    """What a link into a page may end with: its headings, as GitHub and `make docs` name them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        path, _, anchor = target.partition("#")
        if not path.startswith("http"):
            there = page.parent / path if path else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


def test_the_front_page_is_short_and_leads_to_every_page() -> None:
    text = README.read_text()
    assert len(text.splitlines()) < 150
    assert {name for name in NAMES if f"](docs/{name})" not in text} == set()


def test_the_site_has_every_page() -> None:
    nav = set(re.findall(r"^ +- (?:\w+: )?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert nav == {*NAMES, "index.md", "CONTRIBUTING.md", "CHANGELOG.md"}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<math" in (tmp_path / "losses.html").read_text()
    assert not any("fonts.googleapis" in file.read_text() for file in tmp_path.glob("*.html"))


def test_the_map_of_the_tree_is_that_of_the_files() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "tree.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_that_is_named_to_contributors_is_there() -> None:
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|pt|toml|txt|yaml))`", prose(CONTRIBUTING))) - INVENTED
    assert len(named) > 20
    assert {path for path in named if found(path) is None} == set()


def test_what_contributors_are_told_is_in_a_file_is_in_it() -> None:
    named = re.findall(r"`(\w+)`\s+in\s+`([\w./-]+\.py)`", prose(CONTRIBUTING))
    assert len(named) > 8
    for name, path in named:
        file = found(path)
        assert file is not None
        assert re.search(rf"^(def {name}\(|class {name}\b|{name}\b[^\n]*=)", file.read_text(), re.MULTILINE), (
            name,
            path,
        )
