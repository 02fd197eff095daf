"""Resolving settings: a recipe with flags on top of it."""

from __future__ import annotations

import itertools
import re

import pytest

from manyview.config.keys import Flat
from manyview.config.resolve import resolve
from manyview.core.errors import UserError
from manyview.methods import METHODS
from tests.config.small import DATA, flags


def test_the_order_of_flags_does_not_matter() -> None:
    words = [
        "--loss dcl",
        "--loss.sigma 0.5",
        "--method simclr",
        "--lr 0.5",
        "--memory queue",
        "--memory.size 64",
    ]
    found = [flags(" ".join(order)) for order in itertools.islice(itertools.permutations(words), 0, 720, 97)]
    assert all(each == found[0] for each in found)
    assert [found[0].flat()[key] for key in ("loss.sigma", "memory.size", "optimizer.lr")] == [0.5, 64, 0.5]


@pytest.mark.parametrize(
    ("short", "section", "name", "value"),
    [("lr", "optimizer", "lr", 0.7), ("temperature", "loss", "temperature", 0.3), ("dim-out", "head", "dim_out", 32)],
)
def test_a_key_that_only_one_section_has_needs_no_section(short: str, section: str, name: str, value: float) -> None:
    assert flags(f"--{short} {value}").flat()[f"{section}.{name}"] == value


def test_the_same_short_key_works_in_python() -> None:
    assert resolve(DATA, {"lr": 0.7}).optimizer["lr"] == 0.7


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("--data scenes --size 64", "--data.size, --augmentation.size"),
        ("--method jcl --data scenes --size 64", "--data.size, --memory.size, --augmentation.size"),
    ],
)
def test_a_short_key_of_two_sections_is_refused(text: str, both: str) -> None:
    with pytest.raises(ValueError, match=rf"which of {both}"):
        flags(text)


@pytest.mark.parametrize(
    ("data", "key"), [("photos", "count 5"), ("photos", "download"), ("scenes", "root x"), ("cifar10", "labels false")]
)
def test_a_setting_that_would_do_nothing_for_this_data_is_refused(data: str, key: str) -> None:
    with pytest.raises(ValueError, match=rf"^data\.{key.split()[0]}: there is no such setting"):
        flags(f"--data {data} --data.{key}")


def test_a_warm_up_as_long_as_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^schedule\.warmup: 10 epochs of a run of 10; give less"):
        flags("--epochs 10 --schedule.warmup 10")


def test_without_data_it_says_what_to_give() -> None:
    with pytest.raises(ValueError, match=r"^data.name: is needed; give --data$"):
        resolve({}, {})


def test_flags_win_over_the_recipe_and_leave_the_rest() -> None:
    recipe = {**DATA, "epochs": 7, "batch_size": 64, "optimizer.lr": 0.3}
    config = flags("--epochs 9 --lr 0.5", recipe)
    assert (config.epochs, config.batch_size, config.optimizer["lr"]) == (9, 64, 0.5)


RECIPE: Flat = {
    **DATA,
    "data.labels": False,
    "method.name": "jcl",
    "method.keys": 3,
    "loss.strength": 2.0,
    "memory.size": 128,
    "augmentation.name": "simclr",
    "augmentation.strength": 0.7,
    "augmentation.size": 96,
    "optimizer.name": "sgd",
    "optimizer.nesterov": True,
    "schedule.warmup": 3.0,
    "schedule.per": "epoch",
    "encoder.name": "torchvision/resnet18",
    "encoder.stem": "cifar",
}


def test_a_replaced_loss_brings_its_own_keys_and_its_recipe_s_go() -> None:
    config = flags("--loss dcl", RECIPE)
    assert config.parts["loss"] == {"name": "dcl", "temperature": 0.1, "sigma": None, "detach_weights": False}
    assert config.method == {"name": "jcl", "keys": 3, "ramp": False, "joint": True, "bn_splits": 1}
    with pytest.raises(
        ValueError, match=r"^loss.strength: there is no such setting; loss dcl takes name, temperature,"
    ):
        flags("--loss dcl --loss.strength 3", RECIPE)


def test_the_same_part_named_again_replaces_nothing() -> None:
    assert flags("--loss jcl --method jcl --memory queue --schedule cosine", RECIPE) == flags("", RECIPE)


def test_another_method_brings_its_own_parts() -> None:
    config = flags("--method moco_v2", RECIPE)
    assert config.parts["loss"] == {"name": "info_nce", "temperature": 0.2}
    assert config.flat()["memory.size"] == 65536
    assert config.augmentation["strength"] == 0.7
    with pytest.raises(ValueError, match=r"method.keys: there is no such setting; method moco_v2 takes name, "):
        flags("--method moco_v2 --method.keys 3", RECIPE)


def test_what_all_parts_of_a_section_have_stays_when_the_part_is_replaced() -> None:
    config = flags("--augmentation moco-v2 --schedule steps --schedule.milestones 3,5", RECIPE)
    assert config.augmentation == {"name": "moco-v2", "size": 96}
    kept = {"per": "epoch", "first_epoch": 0}
    assert config.schedule == {"name": "steps", "milestones": [3, 5], "factor": 0.1, "warmup": 0.0, **kept}


def test_the_sizes_of_small_crops_go_with_a_method_that_takes_some() -> None:
    recipe = {"data.name": "x", "method.name": "dcl", "method.small": 2, "augmentation.small_size": 16}
    assert resolve(recipe, {"loss.name": "jcl"}).augmentation["small_size"] == 16
    assert resolve(recipe, {"method.name": "simclr"}).augmentation["small_size"] == 16
    assert "small_size" not in resolve(recipe, {"method.name": "jcl"}).augmentation


def test_other_data_or_another_encoder_leave_their_options_behind() -> None:
    config = flags("--data scenes --encoder patchnet", RECIPE)
    assert "labels" not in config.data
    assert config.encoder["stem"] is None
    same = flags("--data photos", RECIPE)
    assert (same.data["labels"], same.encoder["stem"]) == (False, "cifar")


def test_a_part_that_the_recipe_leaves_to_the_default_can_be_replaced_as_well() -> None:
    recipe = {**DATA, "loss.sigma": 0.5, "optimizer.nesterov": True}  # of dcl and sgd, which nobody names
    config = flags("--method simclr --optimizer lars", recipe)
    assert config.parts["loss"] == {"name": "info_nce", "temperature": 0.1}
    assert "nesterov" not in config.optimizer


@pytest.mark.parametrize("text", ["--momentum.start 0.9", "--momentum cosine", "--predictor.hidden 3"])
def test_a_setting_of_a_part_that_the_method_has_not_says_so(text: str) -> None:
    name = text.split()[0].removeprefix("--")
    with pytest.raises(ValueError, match=rf"^{name}: the method simclr has no {name.partition('.')[0]}; its parts are"):
        flags(f"--method simclr {text}")


def test_a_key_that_only_the_optimizer_has_is_no_part() -> None:
    assert flags("--method simclr --optimizer sgd --momentum 0.5").optimizer["momentum"] == 0.5


def test_a_recipe_may_leave_out_the_section_of_a_key_too() -> None:
    assert flags("", {**DATA, "lr": 0.7}).optimizer["lr"] == 0.7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--micro-batch 512", "micro_batch: 512 images at a time are more than the batch of 64; leave it out"),
        ("--micro-batch 0", "micro_batch: expected at least 1, got 0"),
        ("--batch-size 1", "batch_size: expected at least 2, got 1"),
        ("--head.dim-out 0", "head.dim_out: expected at least 1, got 0"),
        ("--lr 0", "optimizer.lr: expected a number above 0, got 0"),
        ("--weight-decay -1", "optimizer.weight_decay: expected at least 0, got -1"),
        ("--grad-clip 0", "grad_clip: expected a number above 0, got 0"),
        ("--epochs .inf", "epochs: expected a number above 0, got inf"),
        ("--evaluate-every -1", "evaluate_every: expected at least 0, got -1"),
        ("--max-unreadable 1.5", "max_unreadable: expected a share from 0 to 1, got 1.5"),
        ("--snapshots 3,0", "snapshots: expected at least 1, got 0"),
        ("--augmentation.size 0", "augmentation.size: expected at least 1, got 0"),
        ("--schedule.warmup -2", "schedule.warmup: expected at least 0, got -2"),
        ("--seed -1", "seed: expected a number from 0 to 9223372036854775807, got -1"),
        ("--method jcl --method.keys 0", "method.keys: expected at least 1, got 0"),
        ("--method jcl --memory.size 0", "memory.size: expected at least 1, got 0"),
        ("--method jcl --momentum.start 2", "momentum.start: expected a number from 0 to 1, got 2"),
        ("--loggers tensorbord", "loggers: there is none named 'tensorbord'; did you mean 'tensorboard'?"),
    ],
)
def test_numbers_out_of_bounds_are_refused_without_building_anything(
    text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.nn.Module.__init__", None)
    with pytest.raises(UserError, match=f"^{re.escape(reason)}") as error:
        flags(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", METHODS)
def test_resolving_builds_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.Module.__init__", None)
    assert flags(f"--method {method}").method["name"] == method


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--epochs 1:30", "epochs: expected a number, got '1:30'"),
        ("--snapshots 1:30", "snapshots: expected a list, each a whole number, got '1:30'"),
        ("--lr 1:30.5", "optimizer.lr: expected a number, got '1:30.5'"),
        ("--epochs 1e20", "epochs: expected at most 2147483647, got 1e+20"),
        *(
            (f"--{key} 100000000000000000000", f"{key.replace('-', '_')}: expected at most ")
            for key in ("max-steps", "batch-size", "micro-batch", "workers", "snapshots", "checkpoint-steps")
        ),
        ("--workers 2000", "workers: expected at most 1024, got 2000"),
        ("--out ~nosuchuser/run", "out: ~nosuchuser/run: there is no such user; write ./~nosuchuser/run"),
        ("--data ~nosuchuser", "data: ~nosuchuser: there is no such user"),
        (
            "--encoder.pretrained ~nosuchuser/a.safetensors",
            "encoder.pretrained: ~nosuchuser/a.safetensors: there is no",
        ),
        ("--data cifar10 --data.root ~nosuchuser", "data.root: ~nosuchuser: there is no such user"),
        ('--encoder.options {"channels":3}', "encoder.options: channels is given by the data; leave it out"),
        ('--encoder.options {"size":3}', "encoder.options: size is given by --augmentation.size; leave it out"),
        ('--encoder.options {"stem":3}', "encoder.options: stem is given by --encoder.stem; leave it out"),
        ('--encoder.options {"name":3}', "encoder.options: name is given by --encoder.name; leave it out"),
        ("--views rgb,rgb", "views: rgb is named twice; name each once"),
        ("--views rgb,L,rgb,L", "views: rgb, L are named twice; name each once"),
        ("--encoder.options {1,2}", "encoder.options: expected"),
        ('--encoder.options {"a":&a[],"b":*a}', "encoder.options: expected a table of settings"),
        (f"--encoder.options {5000 * '['}", "encoder.options: expected a table of settings"),
    ],
)
def test_what_surprises_is_one_short_line(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(reason)}") as error:
        flags(text)
    assert len(str(error.value)) < 400


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert flags("--out ~/run").out == "/home/somebody/run"


def test_epochs_are_counted_only_where_the_rate_stays_for_one() -> None:
    with pytest.raises(ValueError, match=r"^schedule\.first_epoch: the rate changes with every step; give"):
        flags("--schedule.first-epoch 1")
    assert flags("--schedule.first-epoch 1 --schedule.per epoch").schedule["first_epoch"] == 1
    with pytest.raises(ValueError, match="schedule"):
        flags("--schedule.first-epoch 2 --schedule.per epoch")
