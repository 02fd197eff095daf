"""Cross-view retrieval during training: of the heads' embeddings, on held-out samples, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data import Loader, Unreadable
from manyview.encoders import Towers, heads
from manyview.features.retrieval import recall
from manyview.methods import cmc, simclr
from manyview.training import pipelines
from manyview.training.retrieval import (
    RetrievalEvaluator,
    live_recall,
    named_recalls,
    recall_doubts,
    recall_table,
    untrained_recall,
)
from manyview.views import View
from tests.training.test_evaluators import CPU, WithHeight, colours, data, encoder, settings

VIEWS = {"image": View("image"), "height": View("height")}


class Gaps(WithHeight):
    """One sample lacks its height, one its picture, and one cannot be read."""

    def __getitem__(self, index: int) -> Sample:
        if index == 3:
            raise Unreadable("broken")
        found = super().__getitem__(index)
        lacking = {5: "height", 6: "image"}.get(index)
        return replace(found, modalities={name: each for name, each in found.modalities.items() if name != lacking})


def towers() -> Towers:
    torch.manual_seed(1)
    return Towers({"image": encoder(), "height": encoder(1)}, partial(heads.linear, dim_out=5))


def evaluator(samples: WithHeight, queries: int = 1000) -> RetrievalEvaluator:
    found = data(WithHeight(colours(8, 0)), samples, VIEWS)
    return RetrievalEvaluator(list(VIEWS), found, settings(queries=queries), CPU)


def projections(of: Towers, samples: WithHeight) -> dict[str, Tensor]:
    """What encoder and head say of each sample's views, without the embedding pass and without normalisation."""
    loader = Loader(samples, pipelines.evaluation(settings(), VIEWS), len(samples), shuffle=False, workers=0)
    (batch,) = loader.epoch(0)
    views = batch.views()
    of.eval()
    with torch.no_grad():
        return {view: of.query[view](views[view][0])["projection"] for view in VIEWS}


def test_it_is_the_recall_of_what_the_heads_say_of_held_out_samples() -> None:
    samples, of = WithHeight(colours(30, 1)), towers()
    said = projections(of, samples)
    expected = {name: recall(said[i], said[j]) for name, i, j in (("a", "image", "height"), ("b", "height", "image"))}
    found = evaluator(samples)(of)
    for name, pair in (("a", "image to height"), ("b", "height to image")):
        assert {k: found[f"recall@{k}/{pair}"] for k in (1, 5, 10)} == expected[name]
        assert found[f"pairs/{pair}"] == 30
    assert found["recall@1"] == pytest.approx((expected["a"][1] + expected["b"][1]) / 2)
    assert 0 < found["recall@10/image to height"] < 1  # else nothing is compared


def test_samples_without_both_views_or_unreadable_ones_take_no_part() -> None:
    whole, of = WithHeight(colours(30, 1)), towers()
    said, here = projections(of, whole), torch.tensor([row for row in range(30) if row not in (3, 5, 6)])
    found = evaluator(Gaps(colours(30, 1)))(of)
    assert found["pairs/image to height"] == 27
    expected = recall(said["image"][here], said["height"][here])
    assert {k: found[f"recall@{k}/image to height"] for k in (1, 5, 10)} == expected


def test_at_most_so_many_samples_are_scored() -> None:
    assert evaluator(WithHeight(colours(30, 1)), queries=12)(towers())["pairs/image to height"] == 12


def test_the_towers_stay_in_training_mode_and_unchanged() -> None:
    of = towers().train()
    before, randomness = {name: each.clone() for name, each in of.state_dict().items()}, torch.get_rng_state()
    evaluator(WithHeight(colours(30, 1)))(of)
    assert of.training
    assert all(torch.equal(each, before[name]) for name, each in of.state_dict().items())
    assert torch.equal(torch.get_rng_state(), randomness)


def test_views_that_are_contrasted_with_another_are_the_ones_to_search_across() -> None:
    networks = {"image": encoder(), "height": encoder(1), "other": encoder(1)}
    assert cmc(networks).contrasted == list(networks)
    assert cmc({"image": encoder()}, copies=3).contrasted == []
    assert simclr(encoder()).contrasted == []


def test_no_sample_with_two_views_is_no_score() -> None:
    assert (
        named_recalls({"a": torch.eye(2), "b": torch.eye(2)}, {"a": torch.zeros(2) > 0, "b": torch.ones(2) > 0}) == {}
    )
    assert recall_table({}, {}) == []
    assert untrained_recall({"knn": 0.5}) == []
    assert live_recall({"knn": 0.5}, {}) == ""


def test_recalls_are_told_beside_the_untrained_ones_and_chance() -> None:
    here = torch.ones(20, dtype=torch.bool)
    collapsed, found = torch.ones(20, 8), torch.eye(20)
    before, after = (
        named_recalls({"rgb": each, "thermal": each}, {"rgb": here, "thermal": here}) for each in (collapsed, found)
    )
    assert live_recall(after, before) == "recall@1 100.0% (untrained 0.0%, chance 5.0%)"
    assert live_recall(after, {}) == "recall@1 100.0% (chance 5.0%)"
    said = "recall@1 across views of the untrained towers 0.0%, by chance 5.0%, on 20 held-out samples that have both"
    assert untrained_recall(before) == [said]
    title, header, first, second = recall_table(after, before)
    assert title == "retrieval across views on held-out samples, in % (untrained in brackets):"
    assert header.split() == ["from", "to", "recall@1", "recall@5", "recall@10", "chance", "samples"]
    cells = ["100.0", "(0.0)"] * 3 + ["5.0", "/", "25.0", "/", "50.0", "20"]
    assert first.split() == ["rgb", "thermal", *cells]
    assert second.split() == ["thermal", "rgb", *cells]


def test_a_recall_that_is_not_above_chance_or_no_better_gets_its_sentence() -> None:
    pairs = {"pairs/L to ab": 20.0, "pairs/ab to L": 20.0}
    more = "train longer, or with milder augmentation"
    told = {0.05: f"recall@1 across views is not above chance: {more}",
            0.2: f"recall@1 across views is no better than before training: {more}"}  # fmt: skip
    for mean, said in told.items():
        assert recall_doubts({"recall@1": mean, **pairs}, {"recall@1": 0.3}) == [said]
    assert recall_doubts({"recall@1": 0.4, **pairs}, {"recall@1": 0.3}) == []
    assert recall_doubts({"knn": 0.4}, {}) == []


def test_a_recall_from_before_training_is_marked() -> None:
    found = {"recall@1": 0.05, "pairs/L to ab": 20.0}
    assert live_recall(found, found, new=False) == "recall@1 5.0% (before training, chance 5.0%)"
