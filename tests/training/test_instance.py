"""The score that needs no labels: augmented views that find their own image, RankMe and LiDAR of the same images."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from manyview.diagnose.lidar import copies_for
from manyview.features.embedding_pass import embedding, forward
from manyview.features.gain import Share
from manyview.methods import cmc
from manyview.training.evaluators import evaluators
from manyview.training.instance import (
    InstanceEvaluator,
    chance,
    make_instance,
    ranks_in_words,
)
from manyview.training.run import Run
from manyview.views import View
from tests.tiny import pictures, pretrain
from tests.training.test_evaluators import CPU, IMAGE, ONE, WithHeight, colours, data, encoder, settings, towers


def made(count: int = 60) -> InstanceEvaluator:
    return InstanceEvaluator(data(colours(60, 0), colours(count, 1)), settings(), CPU, encoder().dim)


def test_a_view_counts_where_its_own_image_is_the_nearest_of_all() -> None:
    network, evaluator = encoder(), made()
    (batch,) = evaluator.loader.epoch(0)
    whole, first, *_ = (
        F.normalize(forward(network, copy, read=embedding).double(), dim=1) for copy in batch.views()["image"]
    )
    expected = 0
    for i in range(60):
        own = float(first[i] @ whole[i])
        expected += all(float(first[i] @ whole[j]) < own for j in range(60) if j != i)
    scores = evaluator(towers(network))
    assert scores["instance"] == expected / 60
    assert isinstance(scores["instance"], Share)
    assert 1 / 60 < scores["instance"] < 1
    assert scores["instance_images"] == 60
    assert (scores["rankme_limit"], scores["lidar_limit"]) == (16, 16)
    assert 1 <= scores["rankme"] <= 16
    assert 1 <= scores["lidar"] <= 16


def test_the_views_are_the_same_at_every_scoring_and_in_every_run_of_the_seed() -> None:
    network = towers(encoder())
    evaluator = made()
    first = evaluator(network)
    assert evaluator(network) == first
    assert made()(network) == first


def test_few_held_out_images_have_no_lidar_and_say_so() -> None:
    network = encoder()
    few = InstanceEvaluator(data(colours(60, 0), colours(3, 1)), settings(), CPU, network.dim)
    scores = few(towers(network))
    assert "lidar" not in scores
    needed = math.ceil(2 * network.dim / 9)
    assert ranks_in_words(scores, {})[0].endswith(f"; LiDAR needs more held-out images, {needed} or more")
    assert copies_for(needed, network.dim) is not None
    assert copies_for(needed - 1, network.dim) is None
    assert scores["rankme_limit"] == 3


def test_an_encoder_that_has_diverged_is_not_scored() -> None:
    network = encoder()
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    assert made()(towers(network)) == {}


def test_methods_that_find_one_view_by_another_have_their_own_score_without_labels() -> None:
    views = {**IMAGE, "height": View("height")}
    found = data(WithHeight(colours(60, 0)), WithHeight(colours(30, 1)), views)
    both = cmc({"image": encoder(), "height": encoder(1)})
    assert make_instance(both, found, settings(), CPU) is None
    unlabelled = data(colours(60, 0), colours(30, 1))
    assert isinstance(make_instance(ONE, unlabelled, settings(), CPU), InstanceEvaluator)
    assert evaluators(ONE, unlabelled, settings(more="--evaluators retrieval"), CPU) == []


def test_the_score_is_said_beside_the_untrained_one_and_chance() -> None:
    before, after = {"instance": 0.2, "instance_images": 50.0, "rankme": 4.0}, {"instance": 0.5, "rankme": 9.2}
    assert chance(before) == [
        "own image first: an augmented view finds its own among 50 held-out images; by chance 2.0%"
    ]
    assert chance({}) == []
    told = ranks_in_words({**after, "rankme_limit": 16.0, "lidar": 7.7, "lidar_limit": 15.0}, before)
    assert told == ["dimensions in use on held-out images: RankMe 9 of at most 16, untrained 4; LiDAR 8 of at most 15"]


def test_dimensions_before_training_are_not_called_untrained_where_they_are_of_weights() -> None:
    told = ranks_in_words(
        {"rankme": 9.2, "rankme_limit": 16.0, "lidar": 7.7, "lidar_limit": 15.0}, {"rankme": 4.0}, "at its start"
    )
    assert "RankMe 9 of at most 16, at its start 4" in told[0]


def test_a_run_without_labels_is_scored_on_held_out_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = pictures(tmp_path / "photos", 60)
    assert pretrain(tmp_path / "run", data=photos, epochs=1) == 0
    said = capsys.readouterr().out
    assert "on 54 images of" in said
    assert "scored on 6 held-out images" in said
    assert "own image first of the untrained encoder" in said
    assert "(standard error over the same 6 held-out images)" in said
    scored = [line for line in Run(tmp_path / "run").metrics if "instance" in line]
    assert [line["step"] for line in scored] == [0, scored[-1]["step"]]
    assert "gain_error/instance" in scored[-1]
