from __future__ import annotations

import torch
import torch.nn.functional as F

from manyview.report.cross_view import CrossView, embed_samples
from manyview.report.run_embeddings import EmbeddedRuns
from tests.report.test_view_samples import scenes


def made(**present: list[bool]) -> CrossView:
    """Six samples in two views at random."""
    draw = torch.Generator().manual_seed(0)
    vectors = {view: F.normalize(torch.randn(6, 4, generator=draw), dim=1) for view in ("rgb", "depth")}
    there = {view: torch.tensor(present.get(view, [True] * 6)) for view in vectors}
    return CrossView(scenes("rgb", "depth"), vectors, there)


def test_a_search_finds_the_nearest_and_the_place_of_the_own_sample() -> None:
    found = made(depth=[True, True, False, True, True, True])
    for row in (0, 1, 3, 4, 5):
        cosines = {
            other: sum(
                float(a * b) for a, b in zip(found.vectors["rgb"][row], found.vectors["depth"][other], strict=True)
            )
            for other in (0, 1, 3, 4, 5)
        }
        ordered = sorted(cosines, key=lambda other: -cosines[other])
        searched = found.search(row, "rgb", "depth", 3)
        assert searched.rows == ordered[:3]
        assert searched.place == ordered.index(row) + 1


def test_what_is_as_near_as_the_own_sample_comes_before_it() -> None:
    found = made()
    collapsed = CrossView(found.samples, dict.fromkeys(found.vectors, torch.ones(6, 4)), found.present)
    assert collapsed.search(0, "rgb", "depth", 2).place == 6
    broken = CrossView(found.samples, dict.fromkeys(found.vectors, torch.full((6, 4), torch.nan)), found.present)
    assert broken.search(0, "rgb", "depth", 2).place == 6


def test_views_that_no_sample_has_both_of_are_no_pair() -> None:
    assert made().pairs == [("rgb", "depth"), ("depth", "rgb")]
    assert made(rgb=[True] * 3 + [False] * 3, depth=[False] * 3 + [True] * 3).pairs == []


def test_samples_go_through_the_towers_and_heads_of_their_views(many_embedded: EmbeddedRuns) -> None:
    (embedded,) = many_embedded.shown
    found = embed_samples(embedded.method, embedded.samples)
    assert list(found.vectors) == ["rgb", "ab", "depth"]
    assert len(found.pairs) == 6
    dataset = embedded.samples.dataset
    there = [row for row in range(len(dataset)) if bool(found.present["rgb"][row] & found.present["depth"][row])]
    assert len(there) == 15  # of 20 test samples 4 have no depth, and one cannot be read
    sample = dataset[there[2]]
    raw = {name: each[None] for name, each in sample.modalities.items()}
    views = embedded.samples.pipeline(raw, torch.tensor([sample.id]))
    for view, (copy,) in views.items():
        expected = embedded.method.towers.queries(copy, view)[0]
        torch.testing.assert_close(found.vectors[view][there[2]], expected, atol=1e-4, rtol=1e-4)


def test_a_method_that_contrasts_no_views_with_one_another_has_none(embedded: EmbeddedRuns) -> None:
    assert embed_samples(embedded.shown[0].method, scenes("rgb")).pairs == []
