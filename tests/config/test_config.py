"""Settings: what flags and recipes may say, what comes of it, and what is refused."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manyview.config.config import (
    MACHINE,
    PARTS,
    SECTIONS,
    Config,
    component,
    components,
    differences,
    flat,
    from_yaml,
    read_flags,
    resolve,
    schema,
    to_yaml,
)
from manyview.config.settings import REQUIRED, Flat, read_yaml
from manyview.losses import LOSSES, dcl, info_nce
from manyview.methods import METHODS
from manyview.training import build

DATA = {"data.name": "photos"}


def flags(text: str, recipe: Flat | None = None) -> Config:
    return resolve(DATA if recipe is None else recipe, read_flags(text.split()))


def values(config: Config) -> Flat:
    return config.flat()


# What flags may look like


def test_flags_come_as_two_words_or_one_or_alone_with_dashes_or_underscores() -> None:
    found = read_flags(["--epochs", "3", "--loss.name=dcl", "--quiet", "--micro-batch", "8", "--max_steps=2"])
    assert found == {"epochs": "3", "loss.name": "dcl", "quiet": True, "micro_batch": "8", "max_steps": "2"}


def test_a_negative_number_is_a_value_and_no_flag() -> None:
    assert read_flags(["--seed", "-3"]) == {"seed": "-3"}


def test_an_equals_sign_within_a_value_stays() -> None:
    assert read_flags(["--out=a=b"]) == {"out": "a=b"}


@pytest.mark.parametrize("words", [["photos"], ["-x", "3"], ["--"], ["--epochs", "3", "4"]])
def test_a_word_that_belongs_to_no_flag_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="expected --key value, got"):
        read_flags(words)


@pytest.mark.parametrize("section", [*SECTIONS, "loss", "head", "memory", "momentum"])
def test_a_section_alone_chooses_its_part(section: str) -> None:
    name = {"augmentation": "moco-v2", "method": "jcl"}.get(section) or list({**SECTIONS, **PARTS}[section].table)[-1]
    method = "" if section == "method" else "--method jcl"
    long, short = (flags(f"{method} --{key} {name}") for key in (f"{section}.name", section))
    assert long == short
    assert values(short)[f"{section}.name"] == name


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
    assert [values(found[0])[key] for key in ("loss.sigma", "memory.size", "optimizer.lr")] == [0.5, 64, 0.5]


def test_texts_are_read_as_what_the_setting_is() -> None:
    words = [
        "--snapshots",
        "1,20",
        "--lr",
        "1e-3",
        "--out",
        "3",
        "--grad-clip",
        "null",
        "--quiet",
        "yes",
        "--workers",
        "2",
    ]
    config = resolve(DATA, read_flags([*words, "--encoder.options", '{"widths": [8]}']))
    assert (config.snapshots, config.optimizer["lr"], config.out, config.grad_clip) == ((1, 20), 0.001, "3", None)
    assert (config.encoder["options"], config.quiet, config.workers) == ({"widths": [8]}, True, 2)


@pytest.mark.parametrize(("text", "expected"), [("7", (7,)), ("[1, 2]", (1, 2)), ("[]", ()), ("1,2,3", (1, 2, 3))])
def test_lists_come_with_commas_or_brackets(text: str, expected: tuple[int, ...]) -> None:
    assert resolve(DATA, {"snapshots": text}).snapshots == expected


# Names that are short, ambiguous, misspelt


@pytest.mark.parametrize(
    ("short", "section", "name", "value"),
    [("lr", "optimizer", "lr", 0.7), ("temperature", "loss", "temperature", 0.3), ("dim-out", "head", "dim_out", 32)],
)
def test_a_key_that_only_one_section_has_needs_no_section(short: str, section: str, name: str, value: float) -> None:
    assert values(flags(f"--{short} {value}"))[f"{section}.{name}"] == value


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


def test_an_augmentation_is_named_like_any_other_part() -> None:
    config = flags("--augmentation moco-v3 --augmentation.smallest 0.08")
    assert config.augmentation == {"name": "moco-v3", "smallest": 0.08, "size": None}
    with pytest.raises(ValueError, match="augmentation: there is none named 'mocov9'"):
        flags("--augmentation mocov9")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("--precison fp32", "did you mean 'precision'"),
        ("--loss.temprature 1", "did you mean 'loss.temperature'"),
        ("--los dcl", "did you mean 'loss'"),
        ("--method mocov2", "did you mean 'moco_v2'"),
        ("--method moco-v2", "did you mean 'moco_v2'"),
        ("--loss info-nce", "did you mean 'info_nce'"),
        ("--optimizer adamw2", "did you mean 'adamw'"),
        ("--optimiser.lr 1", "did you mean 'optimizer.lr'"),
        ("--xyzzy 1", "`manyview show` lists all settings"),
        ("--loss xyzzy", "there are info_nce, dcl"),
    ],
)
def test_a_name_that_there_is_not_comes_with_the_nearest(text: str, near: str) -> None:
    with pytest.raises(ValueError, match=near):
        flags(text)


def test_without_data_it_says_what_to_give() -> None:
    with pytest.raises(ValueError, match=r"^data.name: is needed; give --data$"):
        resolve({}, {})


# Types


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("batch_size", "1.5", "a whole number"),
        ("batch_size", "true", "a whole number"),
        ("batch_size", "", "a whole number"),
        ("epochs", "true", "a number"),
        ("optimizer.lr", "fast", "a number"),
        ("optimizer.lr", "true", "a number"),
        ("quiet", "maybe", "true or false"),
        ("grad_clip", "x", "a number or null"),
        ("precision", "fp8", "one of fp32, bf16, fp16, fp64"),
        ("snapshots", "1,x", "a list, each a whole number"),
        ("optimizer.betas", "0.9", "a list of 2, each a number"),
        ("encoder.options", "3", "a table of settings"),
        ("data.imbalance", "steep", "one of linear, exponential or null"),
        ("encoder.stem", "big", "one of cifar or null"),
        ("schedule.per", "day", "one of step, epoch"),
        ("memory.enqueue", "first", "one of mean, last, each"),
    ],
)
def test_a_wrong_type_is_one_line_with_key_value_and_what_was_expected(key: str, value: str, expected: str) -> None:
    recipe = {**DATA, "optimizer.name": "adamw", "method.name": "jcl"}
    with pytest.raises(ValueError, match="expected") as error:
        resolve(recipe, {key: value})
    assert str(error.value) == f"{key}: expected {expected}, got {value!r}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("batch_size", value) for value in (1.5, "many", [1], True, None)),
        *(("epochs", value) for value in ("many", [1], True, None)),
        *(("quiet", value) for value in ("maybe", 3)),
        *(("snapshots", value) for value in (3, [1.5])),
        ("encoder.options", 3),
        ("loss.temperature", [0.1]),
    ],
)
def test_recipes_are_as_strict(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        resolve({**DATA, key: value}, {})
    assert str(error.value).startswith(f"{key}: expected ")
    assert str(error.value).endswith(f", got {value!r}")
    assert "\n" not in str(error.value)


def test_a_recipe_may_write_numbers_as_people_do() -> None:
    recipe = flat(yaml.safe_load("{data: photos, optimizer: {lr: 1e-3, weight_decay: 0}, grad_clip: 1}"))
    config = resolve(recipe, {})
    assert config.optimizer["lr"] == 0.001  # a text to YAML, without a point
    assert (config.optimizer["weight_decay"], config.grad_clip) == (0, 1)


# Recipes, and flags on top


def test_sections_of_a_recipe_are_tables_or_names() -> None:
    found = flat({"data": "photos", "loss": {"name": "dcl", "detach-weights": True}, "epochs": 3})
    assert found == {"data.name": "photos", "loss.name": "dcl", "loss.detach_weights": True, "epochs": 3}


@pytest.mark.parametrize(
    ("text", "message"), [("[1, 2", "is no YAML"), ("- 1", "expected settings such as 'epochs: 100', got list")]
)
def test_a_file_that_holds_no_settings_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_yaml(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml")


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
    assert config.part("loss") == {"name": "dcl", "temperature": 0.1, "sigma": None, "detach_weights": False}
    assert config.method == {"name": "jcl", "keys": 3, "ramp": False, "bn_splits": 1}
    with pytest.raises(
        ValueError, match=r"^loss.strength: there is no such setting; loss dcl takes name, temperature,"
    ):
        flags("--loss dcl --loss.strength 3", RECIPE)


def test_the_same_part_named_again_replaces_nothing() -> None:
    assert flags("--loss jcl --method jcl --memory queue --schedule cosine", RECIPE) == flags("", RECIPE)


def test_another_method_brings_its_own_parts() -> None:
    config = flags("--method moco_v2", RECIPE)
    assert config.part("loss") == {"name": "info_nce", "temperature": 0.2}
    assert values(config)["memory.size"] == 65536
    assert config.augmentation["strength"] == 0.7
    with pytest.raises(ValueError, match=r"method.keys: there is no such setting; method moco_v2 takes name, "):
        flags("--method moco_v2 --method.keys 3", RECIPE)


def test_what_all_parts_of_a_section_have_stays_when_the_part_is_replaced() -> None:
    config = flags("--augmentation moco-v2 --schedule steps --schedule.milestones 3,5", RECIPE)
    assert config.augmentation == {"name": "moco-v2", "size": 96}
    assert config.schedule == {"name": "steps", "milestones": [3, 5], "factor": 0.1, "warmup": 0.0, "per": "epoch"}


def test_other_data_or_another_encoder_leave_their_options_behind() -> None:
    config = flags("--data scenes --encoder patchnet", RECIPE)
    assert "labels" not in config.data
    assert config.encoder["stem"] is None
    same = flags("--data photos", RECIPE)
    assert (same.data["labels"], same.encoder["stem"]) == (False, "cifar")


def test_a_part_that_the_recipe_leaves_to_the_default_can_be_replaced_as_well() -> None:
    recipe = {**DATA, "loss.sigma": 0.5, "optimizer.nesterov": True}  # of dcl and sgd, which nobody names
    config = flags("--method simclr --optimizer lars", recipe)
    assert config.part("loss") == {"name": "info_nce", "temperature": 0.1}
    assert "nesterov" not in config.optimizer


@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in PARTS["loss"].refused])
@pytest.mark.parametrize("method", ["simclr", "moco_v2", "cacr_moco"])
def test_every_whole_loss_fits_into_every_kind_of_method_and_its_keys_are_its_arguments(method: str, loss: str) -> None:
    config = flags(f"--method {method} --loss {loss}")
    assert values(config)["loss.name"] == loss
    function = component(config, "loss")
    assert function.func is LOSSES[loss]  # type: ignore[attr-defined]
    assert not {"present", "reduction", "gather"} & set(config.part("loss") or {})


def test_a_method_s_own_numbers_win_over_the_function_s_defaults_but_only_for_its_own_part() -> None:
    assert values(flags("--method simclr"))["loss.temperature"] == 0.1
    assert values(flags("--method moco_v1"))["loss.temperature"] == 0.07
    assert values(flags("--method moco_v1 --loss dcl"))["loss.temperature"] == 0.1
    assert component(flags("--method moco_v1"), "loss").func is info_nce  # type: ignore[attr-defined]
    assert component(flags("--method moco_v1 --loss dcl"), "loss").func is dcl  # type: ignore[attr-defined]


# The parts of a method


def test_a_part_that_may_be_none_can_be_left_out_by_null_and_comes_back_so(tmp_path: Path) -> None:
    config = flags("--method multikey --momentum null")
    assert config.part("momentum") is None
    assert components(config)["momentum"] is None
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert "momentum: null" in (tmp_path / "config.yaml").read_text()
    assert from_yaml(tmp_path / "config.yaml") == config
    assert resolve({**DATA, "method.name": "multikey", "momentum": None}, {}) == config
    with pytest.raises(ValueError, match=r"^momentum: expected the name of one, got none"):
        resolve({**DATA, "method.name": "jcl", "momentum": None}, {})


def test_a_momentum_schedule_is_a_part_like_any_other() -> None:
    config = flags("--method jcl --momentum cosine --momentum.start 0.9")
    assert config.part("momentum") == {"name": "cosine", "start": 0.9}
    assert component(config, "momentum")(5, 5) == 1.0
    assert flags("--method jcl").part("momentum") == {"name": "constant", "start": 0.999}


@pytest.mark.parametrize("text", ["--momentum.start 0.9", "--momentum cosine", "--predictor.hidden 3"])
def test_a_setting_of_a_part_that_the_method_has_not_says_so(text: str) -> None:
    name = text.split()[0].removeprefix("--")
    with pytest.raises(ValueError, match=rf"^{name}: the method simclr has no {name.partition('.')[0]}; its parts are"):
        flags(f"--method simclr {text}")


def test_a_key_that_only_the_optimizer_has_is_no_part() -> None:
    assert flags("--method simclr --optimizer sgd --momentum 0.5").optimizer["momentum"] == 0.5


def test_parts_that_no_table_knows_are_read_off_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoder(dim: int, *, width: int = 8) -> int:
        return dim * width

    def toy(encoder: Any, *, copies: int = 2, decoder: Any = partial(decoder, width=16)) -> int:
        return int(decoder(copies))

    monkeypatch.setitem(METHODS, "toy", toy)
    monkeypatch.setattr("manyview.config.config._try_out", lambda config: None)
    config = flags("--method toy --decoder.width 4")
    assert config.parts == {"decoder": {"name": "decoder", "width": 4}}
    assert component(config, "method")(None, **components(config)) == 8
    with pytest.raises(ValueError, match=r"^loss.temperature: the method toy has no loss; its parts are decoder"):
        flags("--method toy --loss.temperature 1")


# There and back


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_every_method_come_back_from_yaml(method: str, tmp_path: Path) -> None:
    for more in (
        "",
        "--optimizer adamw --schedule steps --augmentation custom --grad-clip 1 --snapshots 1,2 --head projector",
    ):
        config = flags(f"--method {method} {more}")
        path = tmp_path / "config.yaml"
        path.write_text(to_yaml(config))
        assert to_yaml(from_yaml(path)) == to_yaml(config)
        assert differences(config, from_yaml(path)) == []
        assert set(values(config)) == set(schema(values(config)))


def other_value(hint: Any, default: Any) -> Any:
    """Another value than the default, of the same kind."""
    import typing

    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[-1]
    if isinstance(default, bool):
        return not default
    if isinstance(default, float):
        return default / 2
    return {"int": default}.get(type(default).__name__, default)


@pytest.mark.parametrize("method", METHODS)
def test_every_key_of_every_method_can_be_given_as_value_and_as_text(method: str, tmp_path: Path) -> None:
    """With its default, or another value of its kind, on top of a recipe; and what is read back is the same."""
    base = {**DATA, "method.name": method}
    keys = schema(base)
    given = {
        key: other_value(each.type, each.default)
        for key, each in keys.items()
        if not key.endswith(".name") and each.default is not REQUIRED and key != "method.ramp"
    }
    given |= {"memory.enqueue": "last"} if "memory.enqueue" in given else {}
    as_values = resolve(base, given)
    assert as_values == resolve({**base, **given}, {})
    texts = {
        key: yaml.safe_dump(_listed(value), default_flow_style=True).split("\n")[0] for key, value in given.items()
    }
    assert differences(as_values, resolve(base, texts)) == []
    (tmp_path / "config.yaml").write_text(to_yaml(as_values))
    assert to_yaml(from_yaml(tmp_path / "config.yaml")) == to_yaml(as_values)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@given(
    lr=st.floats(1e-6, 10), temperature=st.floats(0.01, 5), epochs=st.integers(1, 10**6), seed=st.integers(0, 2**31),
    out=st.text("abc/.- é", min_size=1), shots=st.lists(st.integers(1, 999)),
)  # fmt: skip
def test_any_number_and_text_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    lr: float,
    temperature: float,
    epochs: int,
    seed: int,
    out: str,
    shots: list[int],
) -> None:
    given_ = {"lr": lr, "temperature": temperature, "epochs": epochs, "seed": seed, "snapshots": shots}
    config = resolve({**DATA, "out": out}, given_)
    path = tmp_path_factory.mktemp("yaml") / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert from_yaml(path) == config
    assert (config.optimizer["lr"], values(config)["loss.temperature"], config.out) == (lr, temperature, out)


def test_differences_name_what_makes_two_runs_other_runs() -> None:
    old, new = flags("--lr 0.1 --out a --workers 1"), flags("--lr 0.2 --out b --workers 3 --device cpu --epochs 5")
    assert differences(old, new) == ["optimizer.lr: 0.1 -> 0.2", "epochs: 100 -> 5"]
    assert differences(flags("--loss dcl"), flags("--loss info_nce"))[0] == "loss.name: dcl -> info_nce"


def test_what_is_said_of_the_machine_are_settings_and_makes_no_other_run() -> None:
    keys = schema({})
    assert set(MACHINE) <= set(keys)
    changed = flags(
        "--out a --device cpu --workers 0 --loggers [] --quiet --data cifar10 --data.root /x --data.download"
    )
    assert differences(flags("--data cifar10"), changed) == []


def test_a_list_and_a_tuple_of_the_same_are_no_difference() -> None:
    steps = flags("--schedule steps")
    assert differences(steps, resolve(values(steps), {})) == []
    assert differences(steps, resolve({**values(steps), "schedule.milestones": []}, {})) == []


# What makes no sense


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--loss nce", "loss: nce needs a memory bank, which no method has yet"),
        ("--loss attraction", "loss: attraction alone pushes nothing apart"),
        ("--method cacr --loss repulsion", "loss: repulsion alone pulls nothing together"),
        ("--loss nce --loss.population 5 --loss.partition 3", "loss: nce needs a memory bank"),
        ("--method jcl --method.ramp --loss dcl", "method.ramp: is the growth of jcl's strength"),
        ("--memory queue --memory.size 0", "memory.size and dim: expected at least 1"),
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
        ("--snapshots 0", "snapshots: expected epochs, counted from 1, got 0"),
        ("--augmentation.size 0", "augmentation.size: expected at least 1, got 0"),
        ("--schedule.warmup -2", "schedule.warmup: expected at least 0, got -2"),
        ("--workers -1", "workers: expected at least 0, got -1"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason_before_a_run_is_begun(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}") as error:
        flags(text)
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
        ("--optimizer.betas 2,3", "optimizer: Invalid beta parameter at index 0: 2.0"),
        ("--augmentation probe-test", "augmentation: probe-test shows a picture as it is"),
        ("--augmentation custom --augmentation.scale 2,3", "augmentation.scale: expected shares of the picture"),
        ("--method jcl --memory.size 9999999999999999999", "memory.size: expected at most 2147483647"),
        ("--method", "method: expected the name of one, got none"),
    ],
)
def test_what_a_newcomer_may_type_is_answered_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        flags(text)
    assert "\n" not in str(refused.value)


def test_a_queue_is_tried_out_without_its_memory() -> None:
    assert flags("--method jcl --memory.size 2000000000").flat()["memory.size"] == 2_000_000_000  # a terabyte


def test_looking_whether_settings_make_sense_draws_no_random_numbers() -> None:
    torch.manual_seed(4)
    before = torch.get_rng_state()
    flags("--method jcl")
    assert torch.equal(torch.get_rng_state(), before)


# What the settings build


def test_views_have_the_size_that_was_asked_for() -> None:
    for stack in ("moco-v2", "simclr-cifar", "multicrop", "custom"):
        config = flags(f"--augmentation {stack} --augmentation.size 48")
        assert build.stack(config, 3).looks[0].size == 48
        assert len(build.stack(config, 3).looks) == 3
        assert build.plain_stack(config).looks[0].size == 48


def test_the_method_is_built_from_its_parts_and_the_seed_alone() -> None:
    config = flags("--method jcl --memory.size 32 --dim-out 16 --loss.strength 2 --augmentation.size 16 --seed 5")
    config.encoder["options"].update({"widths": [8, 16], "blocks": [1, 1]})
    torch.manual_seed(1)
    first = build.method(config, 3)
    torch.manual_seed(2)
    second = build.method(config, 3)
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())
    assert first.terms[0].option("strength") == 2.0
    assert first.state_dict()["negatives.0.queue.keys"].shape == (32, 16)


def test_a_flag_without_its_value_is_asked_for_it() -> None:
    with pytest.raises(ValueError, match=r"^data\.name: expected a text, got none; write --data VALUE"):
        resolve({}, read_flags(["--data"]))
    with pytest.raises(ValueError, match=r"^epochs: expected a number, got none"):
        flags("--epochs")
    with pytest.raises(ValueError, match="for data write --data photos"):
        read_flags(["photos"])


def test_a_recipe_may_leave_out_the_section_of_a_key_too() -> None:
    assert flags("", {**DATA, "lr": 0.7}).optimizer["lr"] == 0.7


@pytest.mark.parametrize("recipe", [{"method.name": ["jcl"]}, {"loss.name": {"a": 1}}, {"augmentation.name": 3}])
def test_a_part_that_is_no_name_is_refused(recipe: Flat) -> None:
    with pytest.raises(ValueError, match="expected the name of one, got"):
        resolve({**DATA, **recipe}, {})


def test_data_that_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^data: expected a folder or a name, got \['a'\]"):
        resolve({"data.name": ["a"]}, {})
