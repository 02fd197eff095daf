from __future__ import annotations

import re
import shlex
from collections import Counter
from functools import cache
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonargparse import ArgumentParser

from manyview.config import recipes as module
from manyview.config.component import component, components
from manyview.config.config import differences
from manyview.config.keys import REQUIRED, Flat
from manyview.config.recipes import HOMES, Recipe, from_yaml, read, read_yaml, recipes, smoke, to_yaml
from manyview.config.resolve import resolve, schema
from manyview.config.sections import parts_of
from manyview.methods import METHODS
from manyview.training import build, pipelines
from manyview.training.launch import _check_parameters, configured, encoder_parameters, start
from manyview.training.run import encoder_files
from tests.config.small import DATA, read_flags
from tests.config.small import flags as run_with

OWN = ("demo",)  # written for this package, not after a paper
NAMES = tuple(recipes())
PUBLISHED = [name for name in NAMES if name not in OWN and "-cpu-" not in name]
HCL = [  # its set-up
    name for name in PUBLISHED if re.fullmatch("(?!dcl|supcon).*-(cifar10|cifar100|stl10)-resnet50", name)
]
CHEAP = ["cifar10-cpu-jcl", "cifar10-cpu-cacr", "cifar10-cpu-align_uniform"]
QUIET: Flat = {"quiet": True, "loggers": (), "evaluate_every": 0, "device": "cpu", "workers": 0}
KNOWN = {  # parameters without classifier or head, from the libraries and from the authors' code less its 128-d layer
    ("torchvision/resnet50", None, 224): 23_508_032,
    ("torchvision/resnet18", None, 224): 11_176_512,
    ("torchvision/resnet50", "cifar", 32): 23_508_032 - 64 * 3 * (7 * 7 - 3 * 3),
    ("torchvision/resnet18", "cifar", 32): 11_176_512 - 64 * 3 * (7 * 7 - 3 * 3),
    ("small_alexnet", None, 32): 27_221_088 - (4096 * 128 + 128),
    ("small_alexnet", None, 64): 58_678_368 - (4096 * 128 + 128),
}

OTHER_NETWORKS = ("encoder.options", "encoder.crop", "views")  # settings that make it another


@cache
def recipe(name: str) -> Recipe:
    return read(name)


def flags_of(name: str) -> tuple[str, Flat]:
    """The recipe that a recipe's command names, and the settings it gives."""
    words = shlex.split(recipe(name).about["command"])
    given = read_flags(words[words.index("pretrain") + 1 :])
    return given.pop("recipe"), given


def needed(name: str) -> Flat:
    """What the recipe leaves to a flag."""
    return {} if "data.name" in recipe(name).settings else {"data.name": "DIR"}


@cache
def parser(hint: Any) -> ArgumentParser:
    made = ArgumentParser(exit_on_error=False, add_help=False)
    made.add_argument("--value", type=hint)
    return made


def test_there_are_recipes_and_no_two_have_the_same_name() -> None:
    home = next(home for home in HOMES if home.is_dir())
    assert len(NAMES) > 80
    assert max(Counter(path.stem for path in home.rglob("*.yaml")).values()) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_exists_and_has_its_type(name: str) -> None:
    settings = {**recipe(name).settings, **needed(name)}
    keys = schema(settings)
    assert sorted(set(settings) - set(keys)) == []
    assert [key for key, each in keys.items() if each.default is REQUIRED and key not in settings] == []
    for key, value in settings.items():
        assert (parser(keys[key].type).parse_object({"value": value}).value is None) == (value is None)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_tells_what_it_is_and_what_to_expect(name: str) -> None:
    about = recipe(name).about
    texts = [about[key] for key in ("title", "paper", "command", "hardware", "expected", "evaluation")]
    assert all(isinstance(text, str) and text for text in texts)
    assert isinstance(about["parameters"], int)
    assert "\n" not in about["title"]
    assert len(about["title"]) <= 100


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN])
def test_its_command_names_the_recipe_and_gives_settings_that_exist(name: str) -> None:
    named, given = flags_of(name)
    assert named == name
    assert "data.name" in {**recipe(name).settings, **given}
    assert set(given) <= set(schema({**recipe(name).settings, **given}))


@pytest.mark.parametrize("name", NAMES)
def test_flags_of_its_sweep_exist_and_change_the_recipe(name: str) -> None:
    settings = {**recipe(name).settings, **needed(name)}
    for flags, published in recipe(name).about.get("sweep", {}).items():
        given = read_flags(shlex.split(flags))
        assert given
        assert set(given) <= set(schema({**settings, **given}))
        assert published


@pytest.mark.parametrize("name", NAMES)
def test_its_batch_falls_into_equal_parts_for_the_processes_of_its_command(name: str) -> None:
    found = re.search(r"--nproc-per-node (\d+)", recipe(name).about["command"])
    world, splits = int(found[1]) if found else 1, recipe(name).settings.get("method.bn_splits", 1)
    groups = world if splits == 1 else splits
    assert groups % world == 0
    assert recipe(name).settings["batch_size"] % groups == 0
    assert recipe(name).settings["batch_size"] // groups >= 16


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers_have_their_source_beside_them(name: str) -> None:
    lines = recipes()[name].read_text(encoding="utf-8").splitlines()
    numbers = r"\s*(lr|weight_decay|epochs|batch_size|temperature|t_pos|t_neg|strength|keys|size): [\d.]+"
    bare = [
        line
        for before, line in pairwise(lines)
        if re.match(numbers, line) and " # " not in line and not before.strip().startswith("#")
    ]
    assert bare == []


def test_the_small_cacr_recipe_names_the_text_that_has_its_t_neg() -> None:
    """0.9 for K = 4 on CIFAR-10 is in appendix C.1; Table 20 is of 2.0."""
    lines = recipes()["cifar10-cpu-cacr"].read_text(encoding="utf-8").splitlines()
    (line,) = (each for each in lines if each.startswith("loss:"))
    assert "t_neg: 0.9" in line
    assert line.partition(" # ")[2] == "CACR C.1, CIFAR-10, K = 4"


def test_encoders_have_as_many_parameters_as_their_recipes_say() -> None:
    said: dict[tuple[Any, ...], set[int]] = {}
    example: dict[tuple[Any, ...], str] = {}
    for name in NAMES:
        if "parameters" in recipe(name).about:
            settings = recipe(name).settings
            network = (
                settings["encoder.name"], settings.get("encoder.stem"), settings["augmentation.size"],
                *(str(settings[key]) for key in OTHER_NETWORKS if key in settings),
            )  # fmt: skip
            said.setdefault(network, set()).add(recipe(name).about["parameters"])
            example[network] = name
    assert set(KNOWN) <= set(said)
    for network, counts in said.items():
        settings = recipe(example[network]).settings
        kept = {
            key: value
            for key, value in settings.items()
            if key in ("augmentation.size", "views") or key.startswith("encoder.")
        }
        found = encoder_parameters(resolve(kept, {"data.name": "scenes"}))
        assert counts == {found}
        assert KNOWN.get(network, found) == found


ALGORITHM_1 = {  # CACR, appendix C.1: mean and deviation of the pictures of each data set
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "stl10": ((0.4409, 0.4279, 0.3868), (0.2683, 0.2610, 0.2687)),
}


@pytest.mark.parametrize("name", [name for name in NAMES if "-alexnet" in name])
def test_small_alexnet_sees_and_begins_as_published(name: str) -> None:
    config = resolve(recipe(name).settings, {})
    picture = pipelines.picture(config)
    assert (picture.mean, picture.std) == ALGORITHM_1[config.data["name"]]
    fc8 = component(config, "head")(512)
    torch.testing.assert_close(float(fc8.weight.detach().std()), 0.02, rtol=0.02, atol=0)
    assert not fc8.bias.any()


@pytest.mark.parametrize("name", HCL)
def test_hcls_set_up_has_its_statistics_and_head(name: str) -> None:
    config = resolve(recipe(name).settings, {})
    picture = pipelines.picture(config)
    assert (picture.mean, picture.std) == ALGORITHM_1["cifar10"]  # of every data set
    with torch.device("meta"):
        head = component(config, "head")(2048)
    assert [type(each).__name__ for each in head] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert [tuple(each.weight.shape) for each in (head[0], head[3])] == [(512, 2048), (128, 512)]
    assert (head[0].bias, tuple(head[3].bias.shape)) == (None, (128,))


@pytest.mark.parametrize("name", [*HCL, *(name for name in PUBLISHED if "-alexnet" in name)])
def test_copies_and_last_batches_are_as_in_the_code_behind_cacrs_tables(name: str) -> None:
    """HCL embeds each view in a pass of its own, as CACR does; Wang & Isola both at once. Only HCL drops batches."""
    config = resolve(recipe(name).settings, {})
    at_once = name not in HCL and not name.startswith(("cacr", "cmc"))
    assert build.small_method(config, config.views or ("image",)).towers.joint == at_once
    assert config.drop_last == (name in HCL)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if recipe(name).settings.get("method.bn_splits", 1) > 1])
def test_who_splits_batch_norm_has_full_batches_alone(name: str) -> None:
    assert resolve(recipe(name).settings, {**needed(name)}).drop_last


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("moco_v2-cifar10-")])
def test_mocos_notebook_has_its_statistics_and_counts_its_epochs_from_1(name: str) -> None:
    config = resolve(recipe(name).settings, {})
    assert pipelines.picture(config).std == (0.2023, 0.1994, 0.2010)
    assert (config.schedule["per"], config.schedule["first_epoch"]) == ("epoch", 1)
    assert config.drop_last


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("multikey-imagenet100")])
def test_vanilla_many_keys_are_offered_with_and_without_gradient_to_the_keys(name: str) -> None:
    other = name.removesuffix("-gradient") if name.endswith("-gradient") else f"{name}-gradient"
    assert other in NAMES
    config, else_ = (resolve(recipe(each).settings, {}) for each in (name, other))
    assert (config.parts["momentum"] is None) == name.endswith("-gradient")
    assert {line.partition(":")[0] for line in differences(config, else_)} <= {"momentum.name", "momentum.start"}


@pytest.mark.parametrize("name", [name for name in NAMES if re.match("cacr-k[14]-.*-alexnet$", name)])
def test_the_rbf_cost_is_published_for_the_t_neg_of_its_table(name: str) -> None:
    ((flags, published),) = ((a, b) for a, b in recipe(name).about["sweep"].items() if "--loss.cost rbf" in a)
    if name == "cacr-k1-stl10-alexnet":
        assert "unknown" in published
    else:
        config = resolve(recipe(name).settings, read_flags(shlex.split(flags)))
        assert config.flat()["loss.t_neg"] == 2.0  # Table 20's Euclidean scores are Table 13's for it


def swept(name: str, *keys: str) -> list[tuple[Any, ...]]:
    """The values that the recipe itself and the lines of its sweep give to these settings, each once."""
    lines = [{}, *(read_flags(shlex.split(flags)) for flags in recipe(name).about["sweep"])]
    found = [resolve(recipe(name).settings, given).flat() for given in lines if set(given) <= set(keys)]
    return sorted({tuple(each[key] for key in keys) for each in found})


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "stl10"])
@pytest.mark.parametrize("method", ["simclr", "align_uniform", "hard_negative", "cacr-k1", "cmc-k4", "cacr-k4"])
def test_every_batch_of_cacrs_figure_8_has_its_line(method: str, data: str) -> None:
    points = swept(f"{method}-{data}-alexnet", "batch_size", "optimizer.lr")
    assert [batch for batch, _ in points] == [64, 128, 256, 512, 768]
    assert [lr for _, lr in points] == pytest.approx([0.12 * batch / 256 for batch, _ in points])  # C.1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cacr-k4-cifar10-alexnet", [1, 2, 4, 6, 8, 10]),
        ("cacr-k4-cifar100-alexnet", [1, 2, 4, 6, 8, 10]),
        ("cacr-k4-imagenet-resnet50", [1, 2, 3, 4]),
    ],
)
def test_every_number_of_positives_of_cacrs_figure_9_has_its_line(name: str, expected: list[int]) -> None:
    assert [positives for (positives,) in swept(name, "method.positives")] == expected


def test_the_four_weighings_of_cacrs_table_10_have_their_lines() -> None:
    found = swept("cacr-k4-cifar10-alexnet", "loss.attract", "loss.repel")
    assert found == [("far", "far"), ("far", "near"), ("near", "far"), ("near", "near")]


def test_counting_parameters_makes_no_weights() -> None:
    network = build.encoder
    devices: set[str] = set()

    def spied(*arguments: Any) -> Any:
        made = network(*arguments)
        devices.update(each.device.type for each in made.parameters())
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "encoder", spied)
        assert encoder_parameters(resolve({"data.name": "scenes", "augmentation.size": 32}, {})) == 1_227_072
    assert devices == {"meta"}


def test_smoke_refuses_a_recipe_whose_encoder_is_another_than_it_says() -> None:
    small = Recipe("small", {"parameters": 1_227_071}, {"data.name": "cifar10", "augmentation.size": 32})
    with pytest.raises(ValueError, match=r"^small: its encoder has 1,227,072 parameters, the recipe says 1,227,071$"):
        _check_parameters(small)
    _check_parameters(small._replace(about={"parameters": 1_227_072}))
    _check_parameters(small._replace(about={}))


def test_smoke_shortens_a_queue_and_leaves_methods_without_one_alone() -> None:
    assert smoke(Recipe("jcl", {}, {"method.name": "jcl", "memory.size": 65536}), {})["memory.size"] == 64
    assert "memory.size" not in smoke(Recipe("dcl", {}, {"method.name": "dcl"}), {})


def test_smoke_draws_few_negatives_and_does_what_the_recipe_says_of_it() -> None:
    about = {"smoke": {"augmentation": {"size": 64}}}
    found = smoke(Recipe("npid", about, {"method.name": "npid", "memory.m": 4096}), {})
    assert (found["memory.m"], found["augmentation.size"], found["batch_size"]) == (64, 64, 16)
    assert smoke(Recipe("npid", about, {"method.name": "npid"}), {"augmentation.size": 32})["augmentation.size"] == 32


def test_a_recipe_that_leaves_its_data_to_a_flag_can_be_smoked() -> None:
    settings = {"method.name": "dcl", "augmentation.size": 32}
    assert smoke(Recipe("folder", {"parameters": 1_227_072}, settings), {})["data.name"] == "scenes"


@pytest.mark.parametrize("name", CHEAP)
def test_smoke_trains_a_recipe(name: str, tmp_path: Path) -> None:
    smoked(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in CHEAP])
def test_smoke_trains_every_recipe(name: str, tmp_path: Path) -> None:
    smoked(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_recipes_with_their_commands_and_sweeps_resolve(name: str) -> None:
    resolve(recipe(name).settings, {} if name in OWN else flags_of(name)[1])
    for flags in recipe(name).about.get("sweep", {}):
        resolve(recipe(name).settings, {**needed(name), **read_flags(shlex.split(flags))})


def smoked(name: str, folder: Path) -> None:
    config = configured(name, {**QUIET, "out": str(folder / name)}, smoke=True)
    assert (config.data["name"], config.max_steps) == ("scenes", 2)
    assert config.method["name"] == recipe(name).settings["method.name"]
    run = start(config)
    assert encoder_files(folder / name)  # one, or one a view
    assert run is not None


def test_recipes_are_found_inside_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "site-packages" / "manyview" / "recipes"
    (inside / "cifar10").mkdir(parents=True)
    (inside / "cifar10" / "mine.yaml").write_text("epochs: 3\n")
    (inside.parent / "recipes.py").touch()
    beside = PathFinder.find_spec("recipes", [str(inside.parent)])
    assert beside is not None
    assert beside.origin == str(inside.parent / "recipes.py")  # the folder does not hide the module
    assert HOMES[0] == Path(module.__file__).parents[1] / "recipes"
    monkeypatch.setattr(module, "HOMES", (inside, tmp_path / "recipes"))
    assert recipes() == {"mine": inside / "cifar10" / "mine.yaml"}
    assert read("mine").settings == {"epochs": 3}


def test_a_wrong_name_says_which_are_near() -> None:
    with pytest.raises(ValueError, match="did you mean 'jcl-imagenet-resnet50"):
        read("jcl-imagenet-resnet5")


@pytest.mark.parametrize(("text", "said"), [("a: [", "is no YAML"), ("- a\n- b\n", "expected settings such as")])
def test_a_file_that_is_no_recipe_is_refused_in_a_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as refused:
        read(path)
    assert "\n" not in str(refused.value)


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


def test_a_part_that_may_be_none_can_be_left_out_by_null_and_comes_back_so(tmp_path: Path) -> None:
    config = run_with("--method multikey --momentum null")
    assert config.parts["momentum"] is None
    assert components(config)["momentum"] is None
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert "momentum: null" in (tmp_path / "config.yaml").read_text()
    assert from_yaml(tmp_path / "config.yaml") == config
    assert resolve({**DATA, "method.name": "multikey", "momentum": None}, {}) == config
    with pytest.raises(ValueError, match=r"^momentum: expected the name of one, got none"):
        resolve({**DATA, "method.name": "jcl", "momentum": None}, {})


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_every_method_come_back_from_yaml(method: str, tmp_path: Path) -> None:
    head = "--head projector" if "head" in parts_of(METHODS[method]) else ""
    for more in ("", f"--optimizer adamw --schedule steps --augmentation custom --grad-clip 1 --snapshots 1,2 {head}"):
        config = run_with(f"--method {method} {more}")
        path = tmp_path / "config.yaml"
        path.write_text(to_yaml(config))
        assert to_yaml(from_yaml(path)) == to_yaml(config)
        assert differences(config, from_yaml(path)) == []
        assert set(config.flat()) == set(schema(config.flat()))


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
    assert (config.optimizer["lr"], config.flat()["loss.temperature"], config.out) == (lr, temperature, out)


LAUGHS = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]" for n in range(1, 20))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (5000 * "[", "is nested too deeply for settings"),
        (5000 * "{a: ", "is nested too deeply for settings"),
        (LAUGHS, r"\*a0 stands for something else; write that out instead"),
        ("data: scenes\nencoder: {options: &a {b: *a}}", r"\*a stands for something else"),
        ("data: scenes\nepochs: 1:30", "expected a number, got '1:30'"),
        ("data: scenes\nlr: 1:30.5", r"expected a number, got '1:30\.5'"),
    ],
)
def test_yaml_that_surprises_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        resolve(read(path).settings, {})
    assert len(str(error.value)) < 400


TABLE_16 = {  # of CACR, by recipe: epochs and top-1 of methods that are here; what FNC is, no recipe is of
    "byol-imagenet-resnet50": {100: 66.5, 200: 70.6, 400: 73.2, 800: 74.3},
    "barlow_twins-imagenet-resnet50": {1000: 73.2},
    "swav-imagenet-resnet50": {100: 66.5, 200: 69.1, 400: 70.7, 800: 71.8},
    "simsiam-imagenet-resnet50": {100: 68.1, 200: 70.0, 400: 70.8, 800: 71.3},
    "simclr-imagenet-resnet50": {100: 66.5, 200: 68.3, 400: 69.8, 800: 70.4, 1000: 71.7},
    "moco_v2-imagenet-resnet50": {100: 67.4, 200: 69.9, 400: 71.0, 800: 72.2},
    "cacr_moco_v3-k4-imagenet-resnet50": {100: 68.3, 200: 70.4, 400: 73.8, 800: 74.0, 1000: 74.4},
}


@pytest.mark.parametrize("name", TABLE_16)
def test_every_number_of_cacrs_table_16_is_a_line_of_a_recipe(name: str) -> None:
    found: dict[int, list[str]] = {}
    about = recipe(name).about
    for flags, published in {"": about["expected"], **about["sweep"]}.items():
        given = {**recipe(name).settings, **read_flags(shlex.split(flags))}
        found.setdefault(int(given["epochs"]), []).append(published)
    for epochs, score in TABLE_16[name].items():
        assert any(str(score) in each and "Table" in each for each in found[epochs])


def test_cacr_in_100_epochs_has_mocos_settings_for_100_epochs() -> None:
    (flags,) = (each for each in recipe("cacr_moco_v3-k4-imagenet-resnet50").about["sweep"] if "--epochs 100 " in each)
    given = {**recipe("cacr_moco_v3-k4-imagenet-resnet50").settings, **read_flags(shlex.split(flags))}
    theirs = recipe("moco_v3-imagenet-resnet50").settings
    keys = ("epochs", "optimizer.lr", "optimizer.weight_decay", "momentum.start", "schedule.warmup", "batch_size")
    assert {key: float(given[key]) for key in keys} == {key: float(theirs[key]) for key in keys}
