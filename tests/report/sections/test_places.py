from __future__ import annotations

import html

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.sections.places import PAIRS, QUERIES, places, read_places
from tests.report.conftest import NAMES


def test_every_query_stands_beside_its_neighbour_with_lines_between_places(embedded: EmbeddedRuns) -> None:
    text = places(embedded)
    assert text is not None
    assert text.count("<svg") == QUERIES
    assert text.count("<image") == 4 * QUERIES
    assert QUERIES <= text.count('class="pair') <= QUERIES * PAIRS
    assert "its nearest neighbour" in text


def test_names_of_files_are_text(embedded: EmbeddedRuns) -> None:
    text = places(embedded)
    assert text is not None
    assert all(name not in text for name in NAMES)
    assert any(html.escape(name) in text for name in NAMES)


def test_the_maps_are_of_the_images_that_are_asked_for(embedded: EmbeddedRuns) -> None:
    both, one = (read_places(embedded.shown[0], rows) for rows in ([3, 1], [1]))
    assert len(both.pictures) == 2
    assert (both.maps[1] - one.maps[0]).abs().max() < 1e-4


def test_without_embeddings_there_is_no_such_section() -> None:
    assert places(EmbeddedRuns([], {"run": "gone"})) is None
