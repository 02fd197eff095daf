from __future__ import annotations

import copy
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from manyview.encoders import Encoder, create, split_batch_norm
from manyview.encoders.hub import export_hub

resolve_model_data_config: Any = import_module("timm.data").resolve_model_data_config  # which has no types

HERE: dict[str, Any] = {"input_size": [3, 32, 32], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.9}


def trained(name: str, **options: Any) -> Encoder:
    torch.manual_seed(0)
    encoder = create(name, **options)
    with torch.no_grad():
        for value in encoder.state_dict().values():
            if value.is_floating_point():
                value.mul_(1 + 0.1 * torch.rand_like(value)).add_(0.01 * torch.rand_like(value))
    return encoder


def embedded(encoder: Encoder, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = copy.deepcopy(encoder).eval()(x)
    return found


def local(folder: Path, **settings: Any) -> Any:
    return timm.create_model(f"local-dir:{folder}", pretrained=True, **settings).eval()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("timm/test_resnet", {"size": 32}),
        ("timm/test_resnet", {"size": 32, "channels": 2}),
        ("timm/test_vit", {"size": 48, "channels": 1}),
        ("timm/test_efficientnet", {"size": 32, "drop_rate": 0.1}),
        pytest.param("timm/resnet18", {"size": 64}, marks=pytest.mark.slow),
        pytest.param("timm/vit_tiny_patch16_224", {"size": 64}, marks=pytest.mark.slow),
        pytest.param("timm/convnext_atto", {"size": 64, "channels": 4}, marks=pytest.mark.slow),
    ],
)
def test_timm_loads_the_folder_and_embeds_alike(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    encoder = trained(name, **options)
    lines = export_hub(encoder, tmp_path / "it's a net", "# A card", HERE)
    found: dict[str, Any] = {}
    exec(lines, found)
    x = torch.rand(3, options.get("channels", 3), options["size"], options["size"])
    ours = embedded(encoder, x)
    assert ours.std() > 1e-3
    with torch.no_grad():
        torch.testing.assert_close(found["model"](x), ours, rtol=1e-5, atol=1e-5)
    assert sorted(file.name for file in (tmp_path / "it's a net").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_it_can_be_given_a_classifier_and_knows_its_preprocessing(tmp_path: Path) -> None:
    encoder = trained("timm/test_resnet", size=32)
    split_batch_norm(encoder, 2)  # as some methods train
    export_hub(encoder, tmp_path, "", HERE)
    model, x = local(tmp_path, num_classes=7), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert model(x).shape == (2, 7)
        features = model.forward_head(model.forward_features(x), pre_logits=True)
        torch.testing.assert_close(features, embedded(encoder, x), rtol=1e-5, atol=1e-5)
    known = resolve_model_data_config(model)
    assert list(known["input_size"]) == [3, 32, 32]
    assert (list(known["mean"]), known["crop_pct"]) == ([0.1, 0.2, 0.3], 0.9)


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("patchnet", {}, "to: timm has no network 'patchnet'; .* as safetensors, onnx; for hub train with"),
        (
            "torchvision/squeezenet1_1",
            {},
            "to: timm has no network .* be written as torchvision, safetensors, onnx",
        ),
        ("timm/resnet18", {"stem": "cifar"}, "to: timm cannot make timm/resnet18 with stem='cifar' .* --to timm"),
        ("timm/test_vit", {"crop": 16}, "to: timm knows no strided crops"),
    ],
)
def test_what_timm_cannot_load_is_told_with_what_to_use(
    name: str, options: dict[str, Any], line: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=line):
        export_hub(create(name, size=32, **options), tmp_path / "hub", "", HERE)
    assert not any(tmp_path.iterdir())


def test_a_network_whose_weights_timm_would_change_on_loading_is_refused(tmp_path: Path) -> None:
    """timm takes a Swin without a classifier for one of an older version of itself."""
    encoder = create("timm/swin_tiny_patch4_window7_224", size=64, embed_dim=12, depths=(1, 1, 1, 1))
    with pytest.raises(ValueError, match=r"to: timm's own loader changes the weights of timm/swin.*; --to timm writes"):
        export_hub(encoder, tmp_path, "", HERE)
    assert not any(tmp_path.iterdir())


def test_only_an_export_is_written_over(tmp_path: Path) -> None:
    encoder = create("timm/test_vit", size=32)
    export_hub(encoder, tmp_path / "hub", "one", HERE)
    export_hub(encoder, tmp_path / "hub", "two", HERE)
    assert (tmp_path / "hub" / "README.md").read_text().startswith("two")
    for name in ("README.md", "config.json", "model.safetensors"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(ValueError, match=f"path: {folder / name} is there already"):
            export_hub(encoder, folder, "", HERE)
        assert [file.read_text() for file in folder.iterdir()] == ["mine"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    encoder = create("timm/test_vit", size=32)
    with pytest.raises(ValueError, match="path: there is no folder"):
        export_hub(encoder, tmp_path / "none" / "hub", "", HERE)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file, and hub is a folder"):
        export_hub(encoder, tmp_path / "file", "", HERE)


def test_what_was_left_half_written_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = create("timm/test_vit", size=32)
    export_hub(encoder, tmp_path, "", HERE)

    def full(draft: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match=r"path: cannot write .*No space left on device"):
        export_hub(encoder, tmp_path, "", HERE)
    assert not (tmp_path / "config.json").exists()


def test_the_configuration_has_nothing_of_this_machine(tmp_path: Path) -> None:
    export_hub(create("timm/test_vit", size=32), tmp_path / "hub", "", HERE)
    text = (tmp_path / "hub" / "config.json").read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["architecture"] == "test_vit"
