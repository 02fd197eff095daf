"""What the documents show is true: their code runs, their links lead somewhere, the map of the tree is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    namespace: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_map_of_the_tree_is_that_of_the_files() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "tree.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
