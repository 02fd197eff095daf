from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders import Encoder, create, load, load_into, save
from manyview.encoders.weights import load_head, normalisation, read_metadata

SMALL: dict[str, Any] = {"size": 16, "widths": (8, 12), "blocks": (1, 1)}


@pytest.fixture
def encoder() -> Encoder:
    torch.manual_seed(0)
    made = create("patchnet", channels=2, **SMALL)
    made(torch.randn(4, 2, 16, 16))
    return made


def assert_same(a: Encoder, b: Encoder) -> None:
    ours, theirs = a.state_dict(), b.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_what_is_saved_is_loaded_bit_for_bit(encoder: Encoder, tmp_path: Path) -> None:
    save(encoder, tmp_path / "net.safetensors")
    again = load(tmp_path / "net.safetensors")
    assert_same(again, encoder)
    assert again.name == "patchnet"
    assert again.options["channels"] == 2
    assert [each.name for each in tmp_path.iterdir()] == ["net.safetensors"]


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18"])
def test_networks_of_the_libraries_make_the_round_trip(name: str, tmp_path: Path) -> None:
    first = create(name, channels=1, size=32, stem="cifar")
    save(first, tmp_path / "net.safetensors")
    assert_same(load(tmp_path / "net.safetensors"), first)


def test_a_folder_whose_name_is_no_utf8_is_no_hindrance(encoder: Encoder, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    save(encoder, folder / "net.safetensors")
    assert_same(load(folder / "net.safetensors"), encoder)


def test_memory_format_and_precision_do_not_matter(encoder: Encoder, tmp_path: Path) -> None:
    save(encoder.to(memory_format=torch.channels_last), tmp_path / "net.safetensors")
    assert_same(load(tmp_path / "net.safetensors"), encoder)


def test_a_saved_file_replaces_an_older_one(encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_text("older")
    save(encoder, path)
    assert_same(load(path), encoder)


def test_a_failed_write_leaves_the_older_file(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.safetensors"
    path.write_text("older")

    def full(draft: Path, content: bytes) -> int:
        draft.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match=r"cannot write .*No space left"):
        save(encoder, path)
    assert path.read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there_is_named(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no folder .*nowhere"):
        save(encoder, tmp_path / "nowhere" / "net.safetensors")


@pytest.mark.parametrize(("library", "name"), [("timm", "resnet18"), ("torchvision", "resnet18")])
def test_a_plain_state_dict_of_a_library_loads_without_its_classifier(library: str, name: str, tmp_path: Path) -> None:
    import timm
    import torchvision.models as zoo

    theirs: torch.nn.Module = timm.create_model(name) if library == "timm" else zoo.get_model(name)
    save_file(theirs.state_dict(), tmp_path / "plain.safetensors")
    encoder = create(f"{library}/{name}", pretrained=tmp_path / "plain.safetensors")
    ours, state = encoder.network.state_dict(), theirs.state_dict()
    assert all(torch.equal(ours[key], state[key]) for key in ours)
    assert set(state) - set(ours) == {"fc.weight", "fc.bias"}
    with pytest.raises(ValueError, match=r"does not say which network it is for; .*load_into"):
        load(tmp_path / "plain.safetensors")


def test_a_network_that_does_not_fit_is_told_by_its_first_keys(encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save(encoder, path)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    wider = create("patchnet", channels=3, **SMALL)
    with pytest.raises(ValueError, match=r"shapes: stem.0.weight \(8, 2, 4, 4\) instead of \(8, 3, 4, 4\)"):
        load_into(wider, path)
    deeper = create("patchnet", channels=2, size=16, widths=(8, 12), blocks=(1, 2))
    with pytest.raises(ValueError, match=r"does not fit patchnet .*missing: stage2.1.conv1.weight.* and \d+ more"):
        load_into(deeper, path)
    shallower = create("patchnet", channels=2, size=16, widths=(8,), blocks=(1,))
    with pytest.raises(ValueError, match="unexpected: stage2"):
        load_into(shallower, path)
    load_into(encoder, path)
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())


def test_nothing_is_loaded_where_something_does_not_fit(encoder: Encoder, tmp_path: Path) -> None:
    save(encoder, tmp_path / "net.safetensors")
    other = create("patchnet", channels=3, **SMALL)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    with pytest.raises(ValueError, match="does not fit"):
        load_into(other, tmp_path / "net.safetensors")
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())


def test_a_damaged_file_is_one_clear_line(encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save(encoder, path)
    whole = path.read_bytes()
    pickled = tmp_path / "net.pt"
    torch.save(encoder.state_dict(), pickled)
    for content in (whole[: len(whole) // 2], b"", b"GIF89a", b"\xff" * 100, pickled.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a whole safetensors file") as caught:
            load(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="there is no file"):
        load(tmp_path / "other.safetensors")


def rewrite(path: Path, **metadata: str) -> None:
    state = load_file(path)
    save_file(state, path, metadata={"manyview_encoder": "1", "name": '"patchnet"', "options": "{}", **metadata})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"options": "{"}, "missing or damaged"),
        ({"name": "3"}, "expected a name and a table of options"),
        ({"options": "[]"}, "expected a name and a table of options"),
        ({"options": '{"name": 3}'}, "expected a name and a table of options"),
        ({"options": "[" * 100_000}, "missing or damaged"),
        ({"name": '"no_such_net"'}, "cannot be made: name: there is no encoder 'no_such_net'"),
        ({"name": '"timm/hf-hub:someone/something"'}, "cannot be made: name: there is no encoder"),
        ({"manyview_encoder": "99"}, "is of format '99', this version reads '1'"),
        ({"options": json.dumps({"pretrained": True})}, "ask for other files: pretrained"),
        ({"options": json.dumps({"checkpoint_path": "x"})}, "ask for other files: checkpoint_path"),
        ({"options": json.dumps({"pretrained_cfg_overlay": {}})}, "ask for other files: pretrained_cfg_overlay"),
        ({"options": json.dumps({"size": "big"})}, "cannot be made: size: expected a whole number"),
        ({"options": json.dumps({"size": 10**6})}, "cannot be made: size: expected a whole number from 1 to 4096"),
        ({"options": json.dumps({"widths": 5})}, "cannot be made: "),
        ({"name": '"timm/resnet18"', "options": json.dumps({"block": "x"})}, "cannot be made: "),
        ({"name": '"timm/resnet18"', "options": json.dumps({"features_only": True})}, "cannot be made: "),
    ],
)
def test_what_a_file_says_about_itself_is_not_trusted(
    encoder: Encoder, tmp_path: Path, metadata: dict[str, str], message: str
) -> None:
    path = tmp_path / "net.safetensors"
    save(encoder, path)
    rewrite(path, **metadata)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_options_that_cannot_be_written_down_are_refused(encoder: Encoder, tmp_path: Path) -> None:
    encoder.options["act"] = torch.relu
    with pytest.raises(ValueError, match="options: patchnet was created with what JSON cannot hold"):
        save(encoder, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def test_the_same_encoder_gives_the_same_bytes(encoder: Encoder, tmp_path: Path) -> None:
    for number in range(8):
        save(encoder, tmp_path / f"{number}.safetensors")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_the_normalisation_of_pictures_is_kept_where_it_is_known(encoder: Encoder, tmp_path: Path) -> None:
    path, seen = tmp_path / "net.safetensors", ((0.5, 0.25, 0.125), (0.25, 0.5, 1.0))
    save(encoder, path)
    assert normalisation(load(path)) is None
    save(encoder, path, picture=seen)
    again = load(path)
    assert normalisation(again) == seen
    assert_same(again, encoder)
    save(again, path)  # what it was trained on it takes along
    load_into(encoder, path)
    assert normalisation(encoder) == seen


@pytest.mark.parametrize(
    "told",
    [
        "x",
        "[]",
        '{"mean": [0.5]}',
        '{"mean": [0.5], "std": [0]}',
        '{"mean": [0.5], "std": [1, 1]}',
        '{"mean": [NaN], "std": [1]}',
        '{"mean": 1, "std": 1}',
        '{"mean": ["a"], "std": [1]}',
    ],
)
def test_a_normalisation_that_makes_no_sense_is_one_line(told: str, encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    recipe = {"manyview_encoder": "1", "name": json.dumps(encoder.name), "options": json.dumps(encoder.options)}
    save_file(encoder.network.state_dict(), path, metadata={**recipe, "picture": told})
    with pytest.raises(ValueError, match="its normalisation of pictures") as refused:
        load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.complex64])
def test_weights_that_are_no_floats_are_refused_and_nothing_is_loaded(
    dtype: torch.dtype, encoder: Encoder, tmp_path: Path
) -> None:
    path = tmp_path / "encoder.safetensors"
    save(encoder, path)
    with safe_open(path, framework="pt") as file:
        state, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    first = next(key for key, value in state.items() if value.is_floating_point())
    save_file({**state, first: state[first].to(dtype)}, path, metadata)
    before = {key: value.clone() for key, value in encoder.network.state_dict().items()}
    for attempt in (lambda: load(path), lambda: load_into(encoder, path)):
        with pytest.raises(
            UserError, match=rf"does not fit patchnet .*; types: {first} {dtype} instead of torch.float32$"
        ):
            attempt()
    assert all(torch.equal(value, before[key]) for key, value in encoder.network.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_taken(dtype: torch.dtype, encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    state = {key: value.to(dtype) for key, value in encoder.network.state_dict().items() if value.is_floating_point()}
    save_file(state, path)
    load_into(encoder, path)


def test_a_head_goes_beside_its_encoder_and_comes_back(tmp_path: Path) -> None:
    encoder, head = create("patchnet", size=32, widths=[8], blocks=[1]), nn.Linear(8, 4)
    path = tmp_path / "encoder.safetensors"
    save(encoder, path, head=head, metadata={"input": "told"})
    assert read_metadata(path)["input"] == "told"
    assert load(path).options == encoder.options  # which the head is no part of
    again = nn.Linear(8, 4)
    assert load_head(again, path)
    assert torch.equal(again.weight, head.weight)
    with pytest.raises(UserError, match="its head does not fit the settings of the run"):
        load_head(nn.Linear(8, 5), path)
    save(encoder, path)
    assert not load_head(again, path)
