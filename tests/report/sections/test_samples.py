from __future__ import annotations

import re

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.sections.samples import SHOWN, samples


def test_each_sample_is_shown_as_all_its_views(many_embedded: EmbeddedRuns) -> None:
    text = samples(many_embedded) or ""
    cards = text.split('class="sample thumbs"')[1:]
    assert len(cards) == SHOWN
    assert all(re.findall("<small>([a-z]*)</small>", card) == ["rgb", "ab", "depth"] for card in cards)
    assert text.count(".sheet200{") == 1


def test_a_view_that_is_missing_is_an_empty_tile_that_says_so(many_embedded: EmbeddedRuns) -> None:
    text = samples(many_embedded) or ""
    missing = re.findall('<span class="thumb missing" title="([^"]*)">no depth</span>', text)
    assert missing
    assert all(int(re.findall(r"(\d+), depth$", title)[0]) % 5 == 4 for title in missing)
    assert "no rgb" not in text  # what cannot be read at all is passed over


def test_names_of_samples_are_text(many_embedded: EmbeddedRuns) -> None:
    text = samples(many_embedded) or ""
    assert "&lt;i&gt;" in text
    assert not re.search(r"<(i|b|img)[ >]", text)


def test_runs_of_one_view_have_no_such_section(embedded: EmbeddedRuns) -> None:
    assert samples(embedded) is None
