"""Building a run: what is refused before anyone waits for the data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from manyview.config.resolve import resolve
from manyview.core.errors import UserError
from manyview.encoders import create, save
from manyview.methods import METHODS
from manyview.training import build
from tests.config.small import flags
from tests.methods.toys.two_banks import two_banks

SCENES = {"data.name": "scenes"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--loss nce", "method.memory: nce contrasts with images drawn from a memory bank; give --memory bank"),
        ("--method npid --memory.decay 2", "memory.decay: expected a share from 0 to 1, got 2"),
        ("--loss attraction", "loss: attraction alone pushes nothing apart"),
        ("--method cacr --loss repulsion", "loss: repulsion alone pulls nothing together"),
        ("--loss nce --loss.population 5", "loss.population: there is no such setting; loss nce takes name"),
        ("--method npid --loss nce --temperature 0", "loss.temperature: expected a positive number, got 0"),
        ("--method jcl --method.ramp --loss dcl", "method.ramp: is the growth of jcl's strength"),
        ("--memory queue --memory.size 0", "memory.size: expected at least 1"),
        ("--memory queue --memory.within-batch -1", "memory.within_batch: expected a weight of at least 0"),
        ("--method.copies 1", "method.copies: expected 2 or more, since a query needs a positive, got 1"),
        ("--method prediction --distance bins --distance.low 2", "distance.low: 2.0 is not below high, 1.0"),
        ("--method prediction --distance labels --distance.classes 0", "distance.classes: expected at least 1"),
        ("--method cmc --views rgb", "views: expected two or more to contrast, got rgb alone"),
        ("--method prediction --views rgb", "views: expected two or more, one to predict another, got rgb alone"),
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


@pytest.mark.parametrize("distance", ["l2", "l1", "bins", "labels --distance.classes 3"])
def test_every_distance_is_checked_without_data(distance: str) -> None:
    build.check(flags(f"--method prediction --distance {distance}"))


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


def test_a_layer_is_looked_for_in_the_encoder_itself() -> None:
    config = flags("--method deep_infomax --method.layer stage3 --augmentation.size 32")
    build.check(config)
    config.encoder["options"].update({"widths": [4, 6, 8], "blocks": [1, 1, 1]})
    assert build.method(config, {"image": 3}, 40).state_dict()
    config.encoder["options"].update({"widths": [4, 6], "blocks": [1, 1]})
    with pytest.raises(UserError, match=r"^method\.layer: patchnet has no feature map 'stage3'; did you mean 'stage2'"):
        build.method(config, {"image": 3}, 40)


@pytest.mark.parametrize("option", ["channels", "size", "stem", "crop", "pretrained", "checkpoint_path"])
def test_options_of_the_encoder_neither_repeat_a_setting_nor_load_a_file(option: str) -> None:
    config = flags("--method simclr")
    config.encoder["options"][option] = 3
    with pytest.raises(UserError, match=rf"^encoder\.options: '{option}' is (given by the setting|refused)"):
        build.encoder(config, 3)


def test_a_method_of_many_views_has_an_encoder_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "two_banks", two_banks)
    config = flags("--method two_banks --augmentation.size 16")
    config.encoder["options"].update({"widths": [8, 16], "blocks": [1, 1]})
    method = build.method(config, {"rgb": 3, "depth": 1}, 40)
    assert {view: each.options["channels"] for view, each in method.towers.encoders.items()} == {"rgb": 3, "depth": 1}
    assert [tuple(value.shape) for key, value in method.state_dict().items() if key.endswith(".vectors")] == [
        (40, 8)
    ] * 2


def test_a_network_of_one_size_cannot_see_the_patches_of_a_jigsaw() -> None:
    with pytest.raises(ValueError, match=r"^encoder: a jigsaw has patches: small_alexnet cannot take 9 x 9 images"):
        build.method(flags("--method pirl --augmentation.size 32 --encoder small_alexnet"), {"image": 3}, 100)
    assert build.method(flags("--method pirl --augmentation.size 32"), {"image": 3}, 100).jigsaw


def test_weights_that_do_not_fit_a_chosen_encoder_name_the_one_to_give(tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    save(create("vit", size=16, width=48, depth=1, heads=3), file)
    given = {**SCENES, "encoder.pretrained": str(file), "augmentation.size": 16}
    with pytest.raises(UserError) as refused:
        build.encoder(resolve({}, given), 3)
    said = str(refused.value)
    assert said.startswith(f"encoder: {file}: does not fit patchnet (channels 3, size 16); missing: ")
    chosen = "; no --encoder was given, so it is patchnet, the usual one on a CPU: the file is of --encoder vit"
    assert said.endswith(chosen)
    with pytest.raises(UserError) as refused:
        build.encoder(resolve({}, {**given, "encoder.name": "patchnet"}), 3)
    assert "no --encoder was given" not in str(refused.value)


def test_weights_that_nobody_published_are_said_to_come_from_pretrain() -> None:
    with pytest.raises(
        UserError, match=r"a file of them, such as the .* that `manyview pretrain` writes into its run's"
    ):
        create("patchnet", size=32, pretrained=True)
