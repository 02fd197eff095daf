from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from manyview.evaluate.backbone import augmented_batches, plain_test_batches, trainable_backbone
from manyview.evaluate.finetune import RECIPES, Network, finetune
from tests.data.fakes import Memory
from tests.evaluate.pictures import easy, pair, task


def test_the_numbers_are_swavs() -> None:
    assert {name: (each.lr, each.lr_head) for name, each in RECIPES.items()} == {
        "swav-1": (0.02, 5.0), "swav-10": (0.01, 0.2),
    }  # fmt: skip
    for recipe in RECIPES.values():
        assert (recipe.batch_size, recipe.epochs, recipe.weight_decay) == (256, 20, 0)
        assert [recipe.lr_factor(epoch) for epoch in (0, 11, 12, 15, 16, 19)] == pytest.approx(
            [1, 1, 0.2, 0.2, 0.04, 0.04]
        )


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
    with pytest.raises(ValueError, match=r"^recipe: expected one of swav-1, swav-10, got 'x'$"):
        list(finetune(task(), recipe="x"))
    with pytest.raises(ValueError, match=r"^lr: with 1e\+20 and 0\.2 the loss is no number any more in epoch"):
        list(finetune(task(), lr=1e20, epochs=3))
