from __future__ import annotations

from manyview.diagnose.verdict import Sign, Verdict, of_view, states


def test_views_that_are_alike_are_named_together() -> None:
    assert states({"rgb": "healthy"}) == "rgb is healthy"
    found = states({"thermal": "collapsing", "depth": "healthy", "rgb": "healthy"})
    assert found == "thermal has collapsed, depth and rgb are healthy"


def test_a_name_is_that_of_a_view_only_where_there_are_several() -> None:
    assert (of_view("rank", "rgb"), of_view("rank", "")) == ("rank/rgb", "rank")
    assert Sign("bad", "collapsing", "seen", "advice", "rgb").name == "collapsing/rgb"


def test_a_verdict_in_short_is_its_word_unless_it_is_about_some_views() -> None:
    assert Verdict("healthy", "starting", "starting: 1 of 6").short == "starting"
    assert Verdict("bad", "collapsing", "text", short="rgb collapsing").short == "rgb collapsing"
