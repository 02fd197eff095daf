from __future__ import annotations

import copy
import warnings
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor

from manyview.encoders import Encoder, create, load, save, split_batch_norm
from manyview.encoders.export import export

module = import_module("manyview.encoders.export")
PATCHNET: dict[str, Any] = {"size": 16, "widths": (8, 12), "blocks": (1, 1)}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("timm/resnet18", {"size": 64}),
    ("timm/resnet18", {"size": 32, "channels": 1, "stem": "cifar"}),
    ("timm/vit_tiny_patch16_224", {"size": 32, "channels": 1}),
    ("timm/mobilenetv3_small_050", {"size": 64, "drop_rate": 0.1}),
    ("torchvision/resnet18", {"size": 64}),
    ("torchvision/resnet18", {"size": 32, "channels": 1, "stem": "cifar"}),
    ("torchvision/mobilenet_v3_small", {"size": 64, "channels": 1}),
    ("torchvision/squeezenet1_1", {"size": 64}),
]
SLOW: list[tuple[str, dict[str, Any]]] = [
    ("timm/resnet18", {"size": 64, "channels": 2}),
    ("torchvision/googlenet", {"size": 64}),
    ("torchvision/inception_v3", {"size": 96, "channels": 1}),
    ("torchvision/vit_b_16", {"size": 32}),
    ("torchvision/swin_t", {"size": 64}),
    ("torchvision/vgg11", {"size": 32}),
]
ONNX: list[tuple[str, dict[str, Any]]] = [
    ("patchnet", PATCHNET),
    ("timm/test_vit", {"size": 32, "channels": 1}),
]
SLOW_ONNX: list[tuple[str, dict[str, Any]]] = [
    ("timm/test_resnet", {"size": 32, "channels": 2}),
    ("timm/resnet18", {"size": 64}),
    ("timm/vit_tiny_patch16_224", {"size": 32}),
    ("torchvision/resnet18", {"size": 32, "channels": 1, "stem": "cifar"}),
    ("torchvision/mobilenet_v3_small", {"size": 64}),
    ("torchvision/swin_t", {"size": 64}),
]


def trained(name: str, options: dict[str, Any]) -> Encoder:
    """With weights and running statistics that no other one has; in train mode, as training leaves it."""
    torch.manual_seed(0)
    encoder = create(name, **options)
    with torch.no_grad():
        for value in encoder.state_dict().values():
            if value.is_floating_point():
                value.mul_(1 + 0.1 * torch.rand_like(value)).add_(0.01 * torch.rand_like(value))
    return encoder


def images(encoder: Encoder, count: int = 3) -> Tensor:
    size = encoder.options["size"]
    return torch.rand(count, encoder.options["channels"], size, size)


def embedded(encoder: Encoder, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = copy.deepcopy(encoder).eval()(x)
    return found


def run(code: str) -> dict[str, Any]:
    """What the returned lines define."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.std() > 1e-3  # or nothing is compared
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)])
def test_the_library_itself_loads_it_by_the_returned_lines(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    encoder = trained(name, options)
    family: Any = name.partition("/")[0]
    code = export(encoder, family, tmp_path / "it's [a] net.safetensors")
    assert "manyview" not in code.replace(str(tmp_path), "")
    assert ("cifar" in code) == ("stem" in options)
    x = images(encoder)
    with torch.no_grad():
        assert_close(embedded(encoder, x), run(code)["model"](x))
    assert encoder.training
    assert len(list(tmp_path.iterdir())) == 1


def test_timm_takes_the_file_as_a_checkpoint(tmp_path: Path) -> None:
    encoder = trained("timm/test_vit", {"size": 32})
    path = tmp_path / "net.safetensors"
    export(encoder, "timm", path)
    model = timm.create_model("test_vit", num_classes=0, img_size=32, checkpoint_path=str(path)).eval()
    x = images(encoder)
    assert_close(embedded(encoder, x), model(x).detach())


def test_batch_norm_that_was_split_for_training_is_plain_again(tmp_path: Path) -> None:
    encoder = trained("timm/test_resnet", {"size": 32})
    split_batch_norm(encoder, 2)
    code = export(encoder, "timm", tmp_path / "net.safetensors")
    x = images(encoder)
    assert_close(embedded(encoder, x), run(code)["model"](x).detach())


@pytest.mark.parametrize("name", ["patchnet", "timm/test_vit"])
def test_our_own_format_is_loaded_by_manyview(name: str, tmp_path: Path) -> None:
    encoder = trained(name, PATCHNET if name == "patchnet" else {"size": 32})
    code = export(encoder, "safetensors", tmp_path / "net.safetensors")
    x = images(encoder)
    assert_close(embedded(encoder, x), run(code)["model"](x).detach())
    assert load(tmp_path / "net.safetensors").name == name


def assert_onnx_agrees(encoder: Encoder, path: Path) -> None:
    session = run(export(encoder, "onnx", path))
    for count in (1, 5):
        x = images(encoder, count)
        assert_close(embedded(encoder, x), torch.from_numpy(np.asarray(session["embed"](x.numpy()))))
    assert [each.name for each in session["session"].get_inputs()] == ["image"]
    assert [each.name for each in session["session"].get_outputs()] == ["embedding"]
    assert encoder.training


@pytest.mark.parametrize(("name", "options"), ONNX)
def test_onnx_gives_the_same_for_any_number_of_images(
    name: str, options: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert_onnx_agrees(trained(name, options), tmp_path / "net.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), SLOW_ONNX)
def test_onnx_gives_the_same_for_larger_networks(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    assert_onnx_agrees(trained(name, options), tmp_path / "net.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_onnx_it_says_how_to_get_it(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name == package else util.find_spec(name)

    monkeypatch.setattr(module, "find_spec", found)
    with pytest.raises(ValueError, match=rf'to: onnx needs {package}; pip install "manyview\[export\]"'):
        export(create("patchnet", **PATCHNET), "onnx", tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("name", "to", "line"),
    [
        ("patchnet", "timm", "to: timm has no network 'patchnet'; it can be written as safetensors, onnx"),
        ("timm/test_vit", "torchvision", "to: torchvision has no network .* as timm, safetensors, onnx"),
        ("patchnet", "onx", r"to: there is no format 'onx'; did you mean 'onnx'\?"),
    ],
)
def test_what_is_not_possible_is_told_with_what_is(name: str, to: Any, line: str, tmp_path: Path) -> None:
    encoder = create(name, **(PATCHNET if name == "patchnet" else {"size": 32}))
    with pytest.raises(ValueError, match=line):
        export(encoder, to, tmp_path / "net")


def test_strided_crops_are_written_as_onnx_or_safetensors_alone(tmp_path: Path) -> None:
    assert_onnx_agrees(trained("patchnet", {**PATCHNET, "crop": 8}), tmp_path / "net.onnx")
    with pytest.raises(ValueError, match="to: timm knows no strided crops; write the encoder as safetensors or onnx"):
        export(create("timm/test_vit", size=64, crop=32), "timm", tmp_path / "net")


@pytest.mark.parametrize("to", ["timm", "safetensors", "onnx"])
def test_a_place_that_cannot_be_written_is_one_line(to: Any, tmp_path: Path) -> None:
    encoder = create("timm/test_vit", size=32)
    with pytest.raises(ValueError, match="path: there is no folder"):
        export(encoder, to, tmp_path / "none" / "net")
    (tmp_path / "net").mkdir()
    with pytest.raises(ValueError, match=r"path: cannot write .*it is a folder"):
        export(encoder, to, tmp_path / "net")


def test_a_full_disk_is_one_line_and_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(draft: Path, content: bytes) -> None:
        draft.write_text("half")
        raise OSError(28, "No space left on device")

    encoder, path = create("timm/test_vit", size=32), tmp_path / "net"
    export(encoder, "timm", path)
    older = path.read_bytes()
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match=r"path: cannot write .*No space left on device"):
        export(encoder, "timm", path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [older]


@pytest.mark.parametrize("to", ["timm", "safetensors", "onnx"])
def test_an_export_is_written_over_and_nothing_else(to: Any, tmp_path: Path) -> None:
    """Neither a person's own file or link, nor the encoder of a run."""
    encoder, path, link = create("timm/test_vit", size=32), tmp_path / "net", tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    save(encoder, tmp_path / "encoder.safetensors")
    (tmp_path / "mine").write_text('{"manyview_export": "a note about it"}')
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file != link}
    for other in (link, *(tmp_path / name for name in before)):
        with pytest.raises(ValueError, match=f"^path: {other} is there already, and does not say that"):
            export(encoder, to, other)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file != link} == before
    path.touch()
    export(encoder, to, path)
    path.chmod(0o600)
    export(encoder, to, path)
    assert path.stat().st_size > 1000
