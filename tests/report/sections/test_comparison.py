"""What the page says of a comparison."""

from __future__ import annotations

from pathlib import Path

from manyview.comparison.outcome import MethodOutcome, Outcome
from manyview.report.sections.comparison import comparison, ranking
from tests.comparison.test_outcome import DIFFERING, FIRST, SECOND

FEWER = MethodOutcome("cacr", (0, 1, 2), 12, 5, 100, SECOND.curves, SECOND.scores, [9.0] * 3, None)


def test_methods_that_differ_by_themselves_alone_have_no_more_to_say() -> None:
    page = comparison(Outcome(Path(), "scenes", [FIRST, SECOND], 400))
    assert "same data in the same order" in page
    assert "differ also" not in page
    assert "images seen" not in page


def test_the_first_sentence_is_of_all_seeds() -> None:
    found = Outcome(Path(), "scenes", [FIRST, SECOND], 400)
    ahead, behind = sorted(found.methods, key=lambda each: -sum(each.scores["kNN"]))
    text = ranking(found)
    assert text.startswith(f"kNN at the end, mean of 3 seeds: {ahead.method} ")
    assert text.index(ahead.method) < text.index(behind.method)
    assert f"{sum(ahead.scores['kNN']) / 3:.1%}" in text


def test_what_they_differ_in_besides_stands_under_the_table() -> None:
    page = comparison(Outcome(Path(), "scenes", [FIRST, SECOND], 400, differing=DIFFERING))
    assert '</table></div><p class="fine">The methods differ also in: optimizer.lr (simclr 0.06, dcl 0.03)' in page


def test_images_that_are_not_as_many_for_all_are_named() -> None:
    page = comparison(Outcome(Path(), "scenes", [FIRST, FEWER], 400))
    assert "but not on as many images of it" in page
    assert ">images seen</th>" in page
    assert ">1,200</td>" in page
