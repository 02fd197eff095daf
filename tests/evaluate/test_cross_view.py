"""Retrieval across views as a protocol: without labels, for every ordered pair."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyview.core.errors import UserError
from manyview.data import subset
from manyview.embeddings.open_model import open_model
from manyview.evaluate import evaluate, prepare
from manyview.evaluate.cross_view import cross_view
from manyview.evaluate.results import read
from manyview.features.retrieval import recall
from tests.evaluate.runs import made
from tests.tiny import many_views, sensors


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("many")
    return many_views(home / "run", sensors(home / "data", 12), "rgb,depth", max_steps=4)


def test_every_ordered_pair_is_scored_without_labels(many: Path, tmp_path: Path) -> None:
    (result,) = evaluate(many, out=tmp_path, workers=0)
    assert result.protocol == "cross-view"
    assert list(result.scores) == [
        f"{one} to {other} recall@{k}" for one, other in (("rgb", "depth"), ("depth", "rgb")) for k in (1, 5, 10)
    ]
    assert result.untrained is not None
    assert result.untrained.keys() == result.scores.keys()
    assert result.model["views"] == ["rgb", "depth"]
    assert result.data["test"] == 12
    task = prepare(many, workers=0)
    vectors, there = task.projections("test")
    assert all(each.all() for each in there.values())
    assert result.scores["depth to rgb recall@5"] == recall(vectors["depth"], vectors["rgb"], (5,))[5]
    assert [each.key for each in read(tmp_path)] == [result.key]


def test_projections_are_the_heads_of_each_view_at_unit_length(many: Path) -> None:
    task, model = prepare(many, workers=0), open_model(many)
    vectors, _ = task.projections("test")
    ids = torch.zeros(1, dtype=torch.long)
    for view, projected in vectors.items():
        raw = task.test[3].modalities[view]
        ((x,),) = model.pipeline("rgb", view=view)({view: raw[None]}, ids).values()
        with torch.no_grad():
            right = model.heads[view](model.encoders[view](x))[0]
        torch.testing.assert_close(projected[3], right / right.norm(), atol=1e-5, rtol=0)


def test_a_sample_that_cannot_be_read_takes_no_part(many: Path, tmp_path: Path) -> None:
    data = sensors(tmp_path / "data", 12)
    (data / "test" / "depth" / "3.png").write_bytes(b"no picture")
    task = prepare(many, str(data), workers=0)
    _, there = task.projections("test")
    assert int(there["depth"].sum()) == 11
    assert len(dict(cross_view(task))) == 6


def test_labels_bring_each_views_score_and_that_of_all_side_by_side(tmp_path: Path) -> None:
    data = sensors(tmp_path / "data", 24, classes=2)
    many = many_views(tmp_path / "run", data, "L,depth", max_steps=1)
    results = evaluate(many, workers=0, untrained=False, settings={"knn": {"k": 3}})
    assert [each.protocol for each in results] == ["knn", "linear-fast", "cross-view"]
    assert list(results[0].scores) == ["L top1", "depth top1", "all top1"]
    (layers,) = evaluate(many, protocols=["layers"], workers=0, untrained=False)
    assert {name.split()[0] for name in layers.scores} == {"L", "depth", "all"}


def test_of_few_samples_only_recalls_that_there_are_samples_for_are_scored(many: Path) -> None:
    task = prepare(many, workers=0)
    scores = dict(cross_view(replace(task, test=subset(task.test, range(7)))))
    assert list(scores) == [f"{pair} recall@{k}" for pair in ("rgb to depth", "depth to rgb") for k in (1, 5)]


def test_one_encoder_and_impossible_numbers_are_refused_in_one_line(many: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^protocols: cross-view compares views behind the heads of a run"):
        cross_view(prepare(made(tmp_path / "one"), workers=0))
    with pytest.raises(UserError, match="ks: expected numbers from 1 to the 12 test samples"):
        cross_view(prepare(many, workers=0), ks=(13,))
