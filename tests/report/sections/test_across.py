from __future__ import annotations

import re
from pathlib import Path

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.run_record import read_records
from manyview.report.sections.across import NEIGHBOURS, across
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured

BEFORE = {"recall@1/rgb to <i>": 0.05, "recall@5/rgb to <i>": 0.1, "recall@10/rgb to <i>": 0.15, "pairs/rgb to <i>": 40}
AFTER = {
    "recall@1/rgb to <i>": 0.5, "recall@5/rgb to <i>": 0.75, "recall@10/rgb to <i>": 1.0, "pairs/rgb to <i>": 40,
    "recall@1/<i> to rgb": 0.25,
}  # fmt: skip


def test_the_matrix_has_recalls_before_training_and_chance(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), {"step": 0, **BEFORE}, {"step": 9, **AFTER})
    text = across([found], EmbeddedRuns()) or ""
    rows = [re.sub(" +", " ", re.sub("<[^>]*>", " ", row)).strip() for row in text.split("<tr>")[1:]]
    assert rows[0] == "query to rgb to &lt;i&gt;"
    assert rows[1] == "rgb \N{EN DASH} 50.0 @5 75.0 @10 100.0 untrained 5.0 10.0 15.0 chance 2.5 12.5 25.0"
    assert rows[2].startswith("&lt;i&gt; 25.0 \N{EN DASH}")
    assert "untrained" not in rows[2]


def test_chance_is_never_more_than_all(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), {"step": 9, **AFTER, "pairs/rgb to <i>": 4})
    assert "chance 25.0 100.0 100.0" in (across([found], EmbeddedRuns()) or "")


def test_a_query_stands_before_what_it_finds_and_its_own_sample_is_marked(
    many: Run, many_embedded: EmbeddedRuns
) -> None:
    text = across(read_records([many]), many_embedded) or ""
    titles = re.findall("<h3>([^<]*)<small>, among (\\d+) samples", text)
    assert titles[:2] == [("rgb to ab", "19"), ("rgb to depth", "15")]
    assert len(titles) == 6
    rows = text.split('class="row"')[1:]
    assert len(rows) == 12
    for row in rows:
        assert row.count('query" style=') == 1
        assert len(re.findall(r'class="thumb sheet300 same"', row)) == 1
        further = re.findall(r"<small>place (\d+)</small>", row)
        assert len(re.findall(r'class="thumb ', row)) == 1 + NEIGHBOURS + len(further)
        assert all(int(place) > NEIGHBOURS for place in further)


def test_names_of_samples_are_text(many: Run, many_embedded: EmbeddedRuns) -> None:
    text = across(read_records([many]), many_embedded) or ""
    assert "&lt;i&gt;" in text
    assert not re.search(r"<(i|b|img)[ >]", text)


def test_runs_of_one_view_have_no_such_section(run: Run, embedded: EmbeddedRuns) -> None:
    assert across(read_records([run]), embedded) is None
