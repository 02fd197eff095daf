from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from manyview.embeddings.model_source import ModelSource
from manyview.evaluate.finetune import RECIPES as FINETUNE
from manyview.evaluate.finetune import train_whole
from manyview.evaluate.supervised import RECIPES, supervised
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, encoder, task


def test_the_recipes_have_the_published_numbers() -> None:
    cifar, imagenet = RECIPES["cifar"], RECIPES["imagenet"]
    assert (cifar.lr, cifar.batch_size, cifar.epochs, cifar.weight_decay) == (0.1, 128, 200, 5e-4)
    assert [cifar.lr_factor(epoch) for epoch in (0, 100)] == pytest.approx([1, 0.5])
    assert (imagenet.lr, imagenet.batch_size, imagenet.epochs, imagenet.weight_decay) == (0.1, 256, 90, 1e-4)
    assert [imagenet.lr_factor(epoch) for epoch in (0, 29, 30, 59, 60, 89)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    assert cifar.lr_head is None
    assert FINETUNE.keys().isdisjoint(RECIPES)


def test_what_the_model_has_learnt_is_of_no_use_to_it() -> None:
    learnt, other = easy(), easy()
    with torch.no_grad():
        for each in other.model.encoder.parameters():
            each.mul_(3)
    first, second = (list(supervised(judged, epochs=2)) for judged in (learnt, other))
    assert first == second
    fresh = replace(learnt, model=learnt.model.untrained())
    assert first == list(train_whole(fresh, RECIPES["cifar"].stretched(2), text="the same"))


def test_it_learns_and_leaves_the_subject_alone() -> None:
    judged = easy()
    before = {name: value.clone() for name, value in judged.model.encoder.state_dict().items()}
    scores = dict(supervised(judged, epochs=20, batch_size=30))
    assert scores["best top1"] > 0.9
    assert set(scores) == {"top1", "best top1", "best epoch"}
    assert all(torch.equal(value, before[name]) for name, value in judged.model.encoder.state_dict().items())


def test_the_seed_of_the_subject_draws_the_first_weights() -> None:
    runs = [
        list(supervised(replace(task(), model=ModelSource("it", {"": encoder()}, seed=seed)), epochs=2, batch_size=30))
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_what_cannot_be_used_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="no labels"):
        list(supervised(replace(task(), train=Memory(30, 3, labelled=False))))
    with pytest.raises(ValueError, match=r"^recipe: expected one of cifar, imagenet, got 'x'$"):
        list(supervised(task(), recipe="x"))
