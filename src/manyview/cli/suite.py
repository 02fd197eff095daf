"""`manyview evaluate ... --suite`: one protocol on many data sets, and a table as the papers print it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from manyview.core.atomic import atomic_write, naming_setting
from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.evaluate.suite import PROTOCOL, evaluate_suite
from manyview.evaluate.suite_table import markdown, shown, upright


def run_suite(
    suite: str,
    models: Mapping[str, Path],
    data: Mapping[str, Any],
    settings: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
    say: Callable[[str], object],
    common: Mapping[str, Any],
) -> int:
    """Prints each score as soon as it is computed, then the table, which is also written as Markdown.

    models  by what a person typed, the folder of results.json; the last one's also gets the table
    data    root and download of the data sets
    """
    found = evaluate_suite(
        {name: name for name in models}, suite, **data, settings=settings, outs=models, say=say, done=_print,
        options=options, **common,
    )  # fmt: skip
    if not found.scored and found.failed:
        name, why = next(iter(found.failed.items()))
        raise UserError(None, f"all {len(found.failed)} sets of {suite} that are there failed, {name} by this: {why}")
    if not found.scored:
        raise UserError("data.root", f"none of the {len(found.sets)} sets of {suite} is there; give where they lie")
    print(f"\n{upright(found)}")
    folder = list(models.values())[-1]
    with naming_setting("out", folder), atomic_write(folder / f"{suite}.md") as draft:
        draft.write_text(markdown(found))
    places = " and ".join(printable(str(each / "results.json")) for each in models.values())
    print(f"\nwrote {printable(str(folder / f'{suite}.md'))} and {places}")
    return 0


def _print(model: str, name: str, scores: dict[str, float]) -> None:
    stds = {kind.removesuffix(" std"): value for kind, value in scores.items() if kind.endswith(" std")}
    parts = [f"{kind} {shown(value)}% ± {shown(stds[kind])}" for kind, value in scores.items() if kind in stds]
    print(f"{printable(model)} on {name}: {', '.join(parts)}", flush=True)


__all__ = ["PROTOCOL", "run_suite"]
