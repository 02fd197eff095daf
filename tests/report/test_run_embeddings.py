from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from manyview.report.run_embeddings import NEIGHBOURS, EmbeddedRuns, RunEmbeddings, TimeBudget, embed_runs
from manyview.report.run_record import read_records
from manyview.training.run import Run


def test_the_images_of_a_budget_are_a_power_of_two_times_the_least() -> None:
    budget = TimeBudget(seconds=10.0, per_image=0.001)
    assert budget.images(0.5, 10, least=8, most=10_000) == 256  # 500 are allowed
    assert budget.images(0.5, 10, least=8, most=100) == 64
    with pytest.raises(ValueError, match="embedding an image takes 1 ms here: 8000 augmented views would take more"):
        budget.images(0.5, 1000, least=8, most=100)


def test_features_and_neighbours_are_of_the_same_images(embedded: EmbeddedRuns) -> None:
    (one,) = embedded.shown
    assert embedded.missing == {}
    assert one.features.shape == one.untrained_features.shape == (30, 16)
    assert not torch.equal(one.features, one.untrained_features)
    assert one.neighbours.rows.shape == (30, NEIGHBOURS)
    assert one.positions.abs().max() <= 1


def test_runs_on_the_same_data_share_their_images(both_embedded: EmbeddedRuns) -> None:
    one, other = both_embedded.shown
    assert one.images is other.images
    assert (one.sheet, other.sheet) == (0, 0)


def test_a_run_whose_images_are_gone_is_missing_with_the_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError("the folder\nis gone")

    monkeypatch.setattr("manyview.report.run_embeddings.open_images", gone)
    found = embed_runs(read_records([run]), 30, 60.0, None)
    assert found.shown == []
    assert found.missing == {"dcl": "the folder is gone"}


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (11, [0, 3, 7, 10])]
)
def test_few_snapshots_are_the_first_the_last_and_two_between(count: int, expected: list[int]) -> None:
    made = SimpleNamespace(snapshots=list(range(count)))
    assert RunEmbeddings.few_snapshots.fget(made) == expected  # type: ignore[attr-defined]


def test_the_loss_is_asked_for_its_arguments(embedded: EmbeddedRuns) -> None:
    (one,) = embedded.shown
    loss = one.record.config.parts["loss"]
    assert loss is not None
    assert one.loss_option("temperature", 7.0) == loss["temperature"]
    assert one.loss_option("t_pos", 7.0) == 7.0  # which dcl has not


def test_the_untrained_encoder_is_shown_views_of_the_runs_augmentation(embedded: EmbeddedRuns) -> None:
    (one,) = embedded.shown
    assert len(one.spread.similarity) == len(one.untrained_spread.similarity)
    assert replace(one).spread.similarity.tolist() == one.spread.similarity.tolist()  # computed again
