"""What is kept of a training that was interrupted; that it goes on is tested with `fit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from manyview.evaluate.probe_checkpoint import ProbeCheckpoint
from manyview.features.feature_cache import FeatureCache
from manyview.training.optimizers import adam
from tests.evaluate.pictures import encoder, task
from tests.evaluate.test_classifier import RECIPE, head


def test_another_recipe_or_seed_does_not_go_on_from_this_one(tmp_path: Path) -> None:
    names = set()
    for recipe, seed in ((RECIPE, 0), (RECIPE, 1), (replace(RECIPE, lr=0.1), 0), (RECIPE.with_numbers(epochs=9), 0)):
        kept = ProbeCheckpoint.of(replace(task(), cache=FeatureCache(tmp_path), seed=seed), ["test", recipe])
        names.add(kept.path)
    assert len(names) == 4


def test_a_file_that_is_damaged_means_a_fresh_start(tmp_path: Path) -> None:
    kept = ProbeCheckpoint(tmp_path / "x.probe", 0.0)
    model = head()
    kept.save(model, [adam(model)], [[0.5]])
    assert kept.path is not None
    assert kept.restore(head(), [adam(model)]) == [[0.5]]
    for content in (b"", b"nonsense", kept.path.read_bytes()[:100]):
        kept.path.write_bytes(content)
        assert kept.restore(head(), [adam(model)]) == []


def test_a_file_of_another_model_means_a_fresh_start(tmp_path: Path) -> None:
    kept, other, model = ProbeCheckpoint(tmp_path / "x.probe", 0.0), nn.Sequential(head(), nn.Linear(3, 3)), head()
    kept.save(other, [adam(other)], [[0.5]])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert kept.restore(model, [adam(model)]) == []
    kept.save(model, [adam(model), adam(model)], [[0.5]])  # the weights fit, the optimisers do not
    with torch.no_grad():
        model.weight.add_(1)
    assert kept.restore(model, [adam(model)]) == []
    assert torch.equal(model.weight, before["weight"] + 1)


def test_another_subject_does_not_go_on_from_this_one(tmp_path: Path) -> None:
    first, again, other = (
        ProbeCheckpoint.of(replace(task(encoder(seed)), cache=FeatureCache(tmp_path)), ["it"]) for seed in (0, 0, 1)
    )
    assert first.path == again.path
    assert first.path != other.path


def test_weights_and_optimiser_come_back_to_the_bit(tmp_path: Path) -> None:
    kept, model, fresh = ProbeCheckpoint(tmp_path / "x.probe", 0.0), head(), head()
    optimizer, other = adam(model), adam(fresh)
    model(torch.ones(1, 6)).sum().backward()
    optimizer.step()
    kept.save(model, [optimizer], [[0.25, 0.5]])
    assert kept.restore(fresh, [other]) == [[0.25, 0.5]]
    assert torch.equal(fresh.weight, model.weight)
    assert torch.equal(other.state[fresh.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])


def test_a_folder_that_cannot_be_written_to_and_no_store_at_all_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = head()
    for kept in (ProbeCheckpoint(tmp_path / "file" / "x.probe", 0.0), ProbeCheckpoint.of(task(), ["it"])):
        kept.save(model, [adam(model)], [[0.5]])
        assert kept.restore(model, [adam(model)]) == []
        kept.finish(model, [adam(model)], [[0.5]], task())
