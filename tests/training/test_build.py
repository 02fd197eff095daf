"""Building a run: what is refused before anyone waits for the data."""

from __future__ import annotations

import re

import pytest
import torch

from manyview.core.errors import UserError
from manyview.training import build
from tests.config.small import flags


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--loss nce", "loss: nce needs a memory bank, which no method has yet"),
        ("--loss attraction", "loss: attraction alone pushes nothing apart"),
        ("--method cacr --loss repulsion", "loss: repulsion alone pulls nothing together"),
        ("--loss nce --loss.population 5 --loss.partition 3", "loss: nce needs a memory bank"),
        ("--method jcl --method.ramp --loss dcl", "method.ramp: is the growth of jcl's strength"),
        ("--memory queue --memory.size 0", "memory.size: expected at least 1"),
        ("--memory queue --memory.within-batch -1", "memory.within_batch: expected a weight of at least 0"),
        ("--method.copies 1", "method.copies: expected 2 or more, since a query needs a positive, got 1"),
        ("--method jcl --method.keys 0", "method.keys: expected at least 1"),
        ("--method cacr --method.positives 0", "method.positives: expected at least 1"),
        ("--method jcl --momentum.start 2", "momentum.start: expected a number from 0 to 1, got 2"),
        ("--method moco_v2 --method.bn-splits 0", "method.bn_splits: expected at least 1, got 0"),
        ("--method moco_v2 --method.bn-splits 7", "method.bn_splits: batch_size 64 does not fall into 7 equal groups"),
        ("--method moco_v2 --method.bn-splits 8 --micro-batch 4", "method.bn_splits: micro_batch 4 does not fall"),
        ("--micro-batch 512", "micro_batch: 512 images at a time are more than the batch of 64; leave it out"),
        ("--micro-batch 0", "micro_batch: expected at least 1, got 0"),
        ("--batch-size 1", "batch_size: expected at least 2, got 1"),
        ("--temperature 0", "loss.temperature: expected a positive number, got 0"),
        ("--loss jcl --loss.strength -1", "loss.strength: expected a number of at least 0, got -1"),
        ("--head.layers 4", "head.layers: SimCLR's head has 2 or 3, got 4"),
        ("--head.dim-out 0", "head.dim_out: expected at least 1, got 0"),
        ("--lr 0", "optimizer.lr: expected a number above 0, got 0"),
        ("--weight-decay -1", "optimizer.weight_decay: expected at least 0, got -1"),
        ("--grad-clip 0", "grad_clip: expected a number above 0, got 0"),
        ("--epochs 0", "epochs: expected a number above 0, got 0"),
        ("--epochs .inf", "epochs: expected a number above 0, got inf"),
        ("--evaluate-every -1", "evaluate_every: expected at least 0, got -1"),
        ("--max-unreadable 1.5", "max_unreadable: expected a share from 0 to 1, got 1.5"),
        ("--snapshots 0", "snapshots: expected at least 1, got 0"),
        ("--augmentation.size 0", "augmentation.size: expected at least 1, got 0"),
        ("--schedule.warmup -2", "schedule.warmup: expected at least 0, got -2"),
        ("--workers -1", "workers: expected at least 0, got -1"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason_before_a_run_is_begun(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(reason)}") as error:
        build.check(flags(text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--lr 0.1 --lr 0.2", "lr: is given twice"),
        ("--optimizer.lr 0.1 --lr 0.2", "optimizer.lr: is given twice, also as lr"),
        ("--learning-rate 0.1", "did you mean 'optimizer.lr'?"),
        ("--queue-size 9", "did you mean 'memory.size'?"),
        ("--method.learning-rate 9", "method dcl takes "),
        ("--optimizer sgd --momentum 1", "optimizer.momentum: expected less than 1, got 1.0"),
        ("--optimizer.betas 2,3", "optimizer.betas: expected less than 1, got 2.0"),
        ("--augmentation probe-test", "augmentation: probe-test shows a picture as it is"),
        ("--augmentation custom --augmentation.scale 2,3", "augmentation.scale: expected shares of the picture"),
        ("--method jcl --memory.size 9999999999999999999", "memory.size: expected at most 2147483647"),
        ("--method", "method: expected the name of one, got none"),
    ],
)
def test_what_a_newcomer_may_type_is_answered_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=re.escape(reason)) as refused:
        build.check(flags(text))
    assert "\n" not in str(refused.value)


def test_a_queue_is_tried_out_without_its_memory() -> None:
    assert flags("--method jcl --memory.size 2000000000").flat()["memory.size"] == 2_000_000_000  # a terabyte
    build.check(flags("--method jcl --memory.size 2000000000"))


def test_looking_whether_settings_make_sense_draws_no_random_numbers() -> None:
    torch.manual_seed(4)
    before = torch.get_rng_state()
    build.check(flags("--method jcl"))
    assert torch.equal(torch.get_rng_state(), before)


def test_loss_and_margin_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(UserError, match=r"^loss\.margin: is per query, but the RBF cost pools over queries"):
        build.check(flags("--method cacr --loss.margin 1 --loss.cost rbf"))


def test_the_method_is_built_from_its_parts_and_the_seed_alone() -> None:
    config = flags("--method jcl --memory.size 32 --dim-out 16 --augmentation.size 16 --seed 5")
    config.encoder["options"].update({"widths": [8, 16], "blocks": [1, 1]})
    torch.manual_seed(1)
    first = build.method(config, {"image": 3}, 40).state_dict()
    torch.manual_seed(2)
    second = build.method(config, {"image": 3}, 40).state_dict()
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    assert [tuple(value.shape) for key, value in first.items() if key.endswith("queue.keys")] == [(32, 16)]
