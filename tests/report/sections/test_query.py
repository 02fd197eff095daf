from __future__ import annotations

import re

import pytest
import torch

from manyview.diagnose.neighbourhood import Neighbourhood
from manyview.report.run_embeddings import CONTRASTED, EmbeddedRuns
from manyview.report.sections import query
from manyview.report.sections.query import EDGE, HALF, NEGATIVES, QUERIES, RADIUS, neighbourhoods, weights


def test_positives_and_the_extreme_negatives_stand_beside_each_query(embedded: EmbeddedRuns) -> None:
    drawn = weights(embedded.shown[0], 3, "")
    assert len(re.findall('class="thumb sheet103', drawn)) == QUERIES * (CONTRASTED + 2 * NEGATIVES)
    shares = [float(share) for share in re.findall(r'aria-label="positives, weight ([\d.]+)%', drawn)]
    assert len(shares) == QUERIES * (CONTRASTED - 1)
    assert sum(shares) == pytest.approx(100 * QUERIES, abs=0.1)


def test_the_strongest_negatives_weigh_more_than_the_weakest(embedded: EmbeddedRuns) -> None:
    drawn = weights(embedded.shown[0], 0, "")
    strongest, weakest = (
        [float(share) for share in re.findall(rf'aria-label="{kind} negatives, weight ([\d.]+)%', drawn)]
        for kind in ("strongest", "weakest")
    )
    assert min(strongest) >= max(weakest)


def test_a_plane_a_snapshot_shows_the_positives_around_the_query(embedded: EmbeddedRuns) -> None:
    drawn = neighbourhoods(embedded.shown[0], ": <b>")
    assert "A query&#x27;s neighbourhood: &lt;b&gt;" in drawn
    assert re.findall('class="when">([^<]*)<', drawn) == ["untrained", "epoch 1", "epoch 2"]
    assert drawn.count('class="positive"') == 3 * (CONTRASTED - 1)
    assert drawn.count('class="query"') == 3


def test_a_dashed_circle_has_the_radius_of_the_negatives_t(
    embedded: EmbeddedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = Neighbourhood(torch.ones(4, 2), torch.full((5, 2), 3.0))  # so that a map shows 10 to each side
    monkeypatch.setattr(query, "neighbourhood", lambda *vectors: near)
    run = embedded.shown[0]
    drawn = neighbourhoods(run, "")
    (radius,) = {float(each) for each in re.findall(r'r="([\d.]+)" class="radius"', drawn)}
    assert drawn.count('class="radius"') == len(run.few_snapshots)
    assert radius == pytest.approx(2.0 / RADIUS * (HALF - EDGE), abs=0.05)  # at t- = 2
    assert "t\u207b = 2." in drawn
    monkeypatch.setattr(type(run), "loss_option", lambda self, name, default: 0.9)
    wide = neighbourhoods(run, "")
    assert float(re.findall(r'r="([\d.]+)" class="radius"', wide)[0]) == pytest.approx(0.45 * radius, abs=0.05)


def test_a_run_without_snapshots_has_a_hint(both_embedded: EmbeddedRuns) -> None:
    assert "--snapshots" not in neighbourhoods(both_embedded.shown[0], "")
    assert "--snapshots 1,5,20" in neighbourhoods(both_embedded.shown[1], "")
