from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders import create, load_into
from manyview.encoders.state_dicts import beginning_of, read_torch_file

SIZE = 32


def resnet() -> nn.Module:
    import torchvision.models as zoo

    torch.manual_seed(1)
    made: nn.Module = zoo.resnet18()
    return made


def renamed(state: dict[str, Tensor], beginning: str) -> dict[str, Tensor]:
    return {beginning + key: value for key, value in state.items()}


WRAPPINGS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"epoch": 3, "state_dict": state},
    "model": lambda state: {"model": state, "args": Namespace(lr=0.1), "best": 0.7},
    "module.": lambda state: {"state_dict": renamed(state, "module.")},
    "backbone.": lambda state: renamed(state, "backbone.") | {"projection_head.0.weight": torch.ones(2, 2)},
    "two towers": lambda state: {
        "state_dict": renamed(state, "module.encoder_q.")
        | renamed({key: value + 1 for key, value in state.items()}, "module.encoder_k.")
    },
    "a teacher": lambda state: {
        "student": renamed({key: value + 1 for key, value in state.items()}, "module.backbone."),
        "teacher": renamed(state, "backbone."),
    },
    "a momentum encoder": lambda state: {
        "state_dict": renamed(state, "module.base_encoder.")
        | renamed({key: value + 1 for key, value in state.items()}, "module.momentum_encoder.")
    },
    "an average": lambda state: {
        "state_dict": {key: value + 1 for key, value in state.items()},
        "state_dict_ema": state,
    },
    "with its optimiser": lambda state: {"net": state, "optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}}},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("ending", [".pth", ".pt", ".bin", ""])
def test_weights_are_found_under_what_scripts_put_around_them(wrapping: str, ending: str, tmp_path: Path) -> None:
    theirs = resnet().state_dict()
    path = tmp_path / f"weights{ending}"
    torch.save(WRAPPINGS[wrapping](theirs), path)
    encoder = create("torchvision/resnet18", size=SIZE, pretrained=path)
    ours = encoder.network.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_the_beginning_is_the_one_with_most_weights() -> None:
    wanted = {"conv.weight", "fc.weight"}
    assert beginning_of(["conv.weight", "fc.weight"], wanted) == ""
    assert beginning_of(["a.conv.weight", "b.conv.weight", "b.fc.weight"], wanted) == "b."
    assert beginning_of(["b.conv.weight", "a.conv.weight"], wanted) == "b."
    assert beginning_of(["net.conv.weight", "ema.conv.weight"], wanted) == "ema."
    assert beginning_of(["something.else"], wanted) == ""


class Malicious:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (eval, ("__import__('pathlib').Path('executed').touch()",))


@pytest.mark.parametrize("content", [Malicious(), {"state_dict": {"conv1.weight": Malicious()}}])
def test_nothing_in_a_file_is_executed(content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, "weights.pth")
    with pytest.raises(UserError, match="weights that PyTorch reads without running code") as refused:
        create("torchvision/resnet18", size=SIZE, pretrained="weights.pth")
    assert "\n" not in str(refused.value)
    assert not Path("executed").exists()


@pytest.mark.parametrize("beginning", [b"some notes\n", b"\xff\xd8\xff\xe0\x00\x10JFIF", b""])
def test_a_file_of_anything_else_is_called_no_file_of_weights(beginning: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(beginning)
    with pytest.raises(UserError, match=r"notes\.txt: is no file of weights; give one in safetensors, \.pt or \.pth$"):
        read_torch_file(tmp_path / "notes.txt")


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_whole_model_is_called_one_with_what_to_do(as_zip: bool, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pth", _use_new_zipfile_serialization=as_zip)
    with pytest.raises(UserError) as refused:
        read_torch_file(tmp_path / "model.pth")
    said = (
        "holds a whole model, not its weights; save these alone where its code is: torch.save(model.state_dict(), FILE)"
    )
    assert str(refused.value) == f"{tmp_path / 'model.pth'}: {said}"


def test_half_a_file_is_called_damaged(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1000)}, tmp_path / "whole.pth")
    (tmp_path / "half.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:500])
    with pytest.raises(UserError, match="is damaged or not complete; fetch or save it again"):
        read_torch_file(tmp_path / "half.pth")


@pytest.mark.parametrize("content", [[torch.ones(2)], torch.ones(2).tolist(), {"epoch": 3}, "text"])
def test_a_file_without_weights_by_name_is_one_line(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="has no weights by name") as refused:
        read_torch_file(tmp_path / "weights.pt")
    assert "\n" not in str(refused.value)


def test_a_table_inside_itself_ends(tmp_path: Path) -> None:
    content: dict[str, Any] = {"conv.weight": torch.ones(2)}
    content["again"] = content
    torch.save(content, tmp_path / "weights.pt")
    assert "conv.weight" in read_torch_file(tmp_path / "weights.pt")


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"PK\x03\x04 and no more", b"\x80\x02}q\x00."])
def test_a_damaged_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(UserError, match=r"weights\.pth") as refused:
        create("torchvision/resnet18", size=SIZE, pretrained=tmp_path / "weights.pth")
    assert "\n" not in str(refused.value)


def test_another_network_is_told_by_its_first_keys_and_where_they_were_looked_for(tmp_path: Path) -> None:
    state = {key: value for key, value in resnet().state_dict().items() if not key.startswith("layer4")}
    torch.save({"state_dict": renamed(state, "module.")}, tmp_path / "weights.pth")
    said = r"taken from state_dict\.module\.\*,: does not fit torchvision/resnet18 .*missing: layer4\.0\.conv1"
    with pytest.raises(UserError, match=said):
        create("torchvision/resnet18", size=SIZE, pretrained=tmp_path / "weights.pth")


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_weights_of_colour_pictures_are_taken_for_other_channels(channels: int, tmp_path: Path) -> None:
    from timm.models import adapt_input_conv

    theirs = resnet().state_dict()
    torch.save(theirs, tmp_path / "weights.pth")
    encoder = create("torchvision/resnet18", size=SIZE, channels=channels, pretrained=tmp_path / "weights.pth")
    ours = encoder.network.state_dict()
    assert torch.equal(ours["conv1.weight"], adapt_input_conv(channels, theirs["conv1.weight"]))
    assert torch.equal(ours["layer4.1.conv2.weight"], theirs["layer4.1.conv2.weight"])


def test_position_embeddings_of_another_size_are_resampled_as_timm_does_it(tmp_path: Path) -> None:
    import timm

    theirs = timm.create_model("test_vit", img_size=160)
    torch.save({"teacher": renamed(theirs.state_dict(), "backbone.")}, tmp_path / "weights.pth")
    encoder = create("timm/test_vit", size=64)
    load_into(encoder, tmp_path / "weights.pth")
    ours, state = encoder.network.state_dict(), theirs.state_dict()
    assert ours["pos_embed"].shape[1] == 1 + (64 // 16) ** 2 < state["pos_embed"].shape[1]
    assert torch.equal(ours["blocks.0.attn.qkv.weight"], state["blocks.0.attn.qkv.weight"])
