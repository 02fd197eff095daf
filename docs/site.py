"""What `make docs` does beyond mkdocs: pages from the root of the repository, and equations as MathML.

mkdocs calls these functions, which mkdocs.yml names as hooks. Equations are converted here, since a script that draws them would
have to come from another server.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
FILES = ("LICENSE", "CITATION.cff")
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
MATH = re.compile(r"^```math\n(.*?)```$", re.DOTALL | re.MULTILINE)
EQUATION = re.compile(r"\$([^$\n]+?)\$")
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?(https?:)?//[^>]*>')


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the root, whose links into docs/ become links beside them."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text().replace("](docs/", "](").replace("](README.md", "](index.md")
        files.append(File.generated(config, page, content=text))
    for name in FILES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turns links to the root into links beside the page, and equations into MathML."""
    text = MATH.sub(lambda match: convert(match[1], display="block"), markdown)
    parts = CODE.split(text.replace("](../README.md", "](index.md").replace("](../", "]("))
    return "".join(
        part if part.startswith("`") else EQUATION.sub(lambda match: convert(match[1]), part) for part in parts
    )


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuses a page that would load anything from another server."""
    found = ELSEWHERE.search(output)
    if found is not None:
        raise ValueError(f"{page.file.src_path} loads {found.group()}")
    return output
