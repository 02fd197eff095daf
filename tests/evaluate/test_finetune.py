from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from manyview.embeddings.model_source import ModelSource
from manyview.encoders import Encoder, create
from manyview.evaluate import classifier
from manyview.evaluate.backbone import augmented_batches, plain_test_batches, trainable_backbone
from manyview.evaluate.finetune import FROM_SCRATCH, RECIPES, Network, finetune, supervised, train_whole
from manyview.features.feature_cache import FeatureCache
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, encoder, pair, task


def test_the_numbers_are_swavs() -> None:
    names = ("swav-1", "swav-10")
    assert [(RECIPES[name].lr, RECIPES[name].lr_head) for name in names] == [(0.02, 5.0), (0.01, 0.2)]
    for name in names:
        recipe = RECIPES[name]
        assert (recipe.batch_size, recipe.epochs, recipe.weight_decay) == (256, 20, 0)
        assert [recipe.lr_factor(epoch) for epoch in (0, 11, 12, 15, 16, 19)] == pytest.approx(
            [1, 1, 0.2, 0.2, 0.04, 0.04]
        )


def test_the_numbers_for_vits_are_deits_and_maes() -> None:
    deit, mae, pets = RECIPES["moco-v3-vit"], RECIPES["mae-vit"], RECIPES["moco-v3-pets"]
    assert (deit.lr, deit.batch_size, deit.epochs, deit.warmup, deit.weight_decay) == (1e-3, 1024, 150, 5, 0.05)
    assert (deit.drop_path, deit.mixup, deit.cutmix, deit.smoothing, deit.erase) == (0.1, 0.8, 1.0, 0.1, 0.25)
    assert deit.lr * deit.lr_factor(150) == pytest.approx(1e-5)
    assert (mae.lr, mae.epochs, mae.layer_decay) == (2e-3, 100, 0.65)
    assert (pets.lr, pets.epochs, pets.drop_path, pets.mixup, pets.cutmix, pets.erase) == (6e-4, 100, 0, 0.8, 0, 0)
    assert all(recipe.source for recipe in RECIPES.values())


def vit() -> Encoder:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return create("timm/vit_tiny_patch16_224", size=16, patch_size=4, depth=2, embed_dim=24, num_heads=2)


@pytest.mark.parametrize("recipe", ["moco-v3-vit", "mae-vit", "moco-v3-flowers"])
def test_a_recipe_with_all_its_parts_goes_on_after_an_interruption_and_ends_the_same(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "SECONDS", 0.0)
    settings: dict[str, Any] = {"recipe": recipe, "epochs": 3, "batch_size": 21, "lr": 3e-3}
    judged = replace(easy(), model=ModelSource("vit", {"": vit()}))
    expected = list(finetune(judged, **settings))
    kept = replace(judged, cache=FeatureCache(tmp_path))
    epochs = []

    def stopping(*arguments: Any) -> Any:
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return tested(*arguments)

    tested = classifier._test
    monkeypatch.setattr(classifier, "_test", stopping)
    with pytest.raises(KeyboardInterrupt):
        list(finetune(kept, **settings))
    assert list(finetune(kept, **settings)) == expected
    assert len(epochs) == 4  # the first is not trained again


def test_the_whole_network_learns_and_the_subject_stays_as_it_is() -> None:
    judged = easy()
    encoder = judged.model.encoder
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    scores = dict(finetune(judged, epochs=10, batch_size=30))
    assert scores["top1"] > 0.9
    assert set(scores) == {"top1", "best top1", "best epoch"}
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert all(each.grad is None for each in encoder.parameters())


def test_one_step_is_a_step_by_hand() -> None:
    judged = task()
    with torch.random.fork_rng([]):
        torch.manual_seed(judged.seed)
        network = Network(trainable_backbone(judged, ""), len(judged.classes)).train()
    ((views, labels),) = augmented_batches(judged, 120, lambda views: views, drop_last=True).epoch(0)
    F.cross_entropy(network(views), labels).backward()
    ((views, labels),) = plain_test_batches(judged).epoch(0)
    with torch.no_grad():
        for part, lr in ((network.backbone, 0.1), (network.head, 2.0)):
            for parameter in part.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=lr)
        logits = network.eval()(views)
    expected = float((logits.argmax(1) == labels).double().mean())
    assert dict(finetune(judged, epochs=1, lr=0.1, lr_head=2.0))["top1"] == pytest.approx(expected)


def test_without_a_rate_of_its_own_for_the_encoder_it_is_no_more_than_a_classifier() -> None:
    still, moving = (dict(finetune(task(), epochs=4, lr=lr, lr_head=0.5, batch_size=30)) for lr in (1e-12, 0.5))
    assert still != moving


def test_the_seed_decides() -> None:
    runs = [list(finetune(task(seed=seed), epochs=2, batch_size=30)) for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_each_view_and_all_of_them_are_scored() -> None:
    names = [name for name, _ in finetune(pair(), epochs=1)]
    assert [name for name in names if "top1" in name and "best" not in name] == ["rgb top1", "depth top1", "all top1"]


def test_what_cannot_be_used_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="no labels"):
        list(finetune(replace(task(), train=Memory(30, 3, labelled=False))))
    with pytest.raises(ValueError, match=r"^recipe: expected one of swav-1, swav-10, .*, small, got 'x'$"):
        list(finetune(task(), recipe="x"))
    with pytest.raises(ValueError, match=r"^lr: with 1e\+20 and 0\.2 the loss is no number any more in epoch"):
        list(finetune(task(), lr=1e20, epochs=3))


def test_the_recipes_from_scratch_have_the_published_numbers() -> None:
    cifar, imagenet = FROM_SCRATCH["cifar"], FROM_SCRATCH["imagenet"]
    assert (cifar.lr, cifar.batch_size, cifar.epochs, cifar.weight_decay) == (0.1, 128, 200, 5e-4)
    assert [cifar.lr_factor(epoch) for epoch in (0, 100)] == pytest.approx([1, 0.5])
    assert (imagenet.lr, imagenet.batch_size, imagenet.epochs, imagenet.weight_decay) == (0.1, 256, 90, 1e-4)
    assert [imagenet.lr_factor(epoch) for epoch in (0, 29, 30, 59, 60, 89)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    assert cifar.lr_head is None
    assert RECIPES.keys().isdisjoint(FROM_SCRATCH)


def test_what_the_model_has_learnt_is_of_no_use_to_it() -> None:
    learnt, other = easy(), easy()
    with torch.no_grad():
        for each in other.model.encoder.parameters():
            each.mul_(3)
    first, second = (list(supervised(judged, epochs=2)) for judged in (learnt, other))
    assert first == second
    fresh = replace(learnt, model=learnt.model.untrained())
    assert first == list(train_whole(fresh, FROM_SCRATCH["cifar"].with_numbers(epochs=2), text="the same"))


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


def test_the_baseline_refuses_what_it_cannot_use_in_one_line() -> None:
    with pytest.raises(ValueError, match="no labels"):
        list(supervised(replace(task(), train=Memory(30, 3, labelled=False))))
    with pytest.raises(ValueError, match=r"^recipe: expected one of cifar, imagenet, got 'x'$"):
        list(supervised(task(), recipe="x"))
