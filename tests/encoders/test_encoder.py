from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.encoders import Encoder, check_options, create


def images(channels: int, size: int, count: int = 2) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(0))


CASES = [
    # name, channels, size, dim
    ("patchnet", 3, 32, 256),
    ("patchnet", 2, 96, 256),
    ("resnet", 2, 64, 2048),
    ("timm/resnet18", 1, 32, 512),
    ("timm/resnet18.a1_in1k", 4, 64, 512),
    ("timm/resnet50", 2, 64, 2048),
    ("timm/vit_tiny_patch16_224", 4, 64, 192),
    ("timm/vit_tiny_patch16_224", 3, 224, 192),
    ("timm/convnext_atto", 1, 64, 320),
    ("timm/mobilenetv3_small_050", 2, 64, 1024),
    ("timm/efficientnet_b0", 3, 64, 1280),
    ("timm/regnetx_002", 4, 64, 368),
    ("timm/swin_tiny_patch4_window7_224", 2, 64, 768),
    ("timm/densenet121", 3, 32, 1024),
    ("torchvision/resnet18", 2, 32, 512),
    ("torchvision/mobilenet_v3_small", 1, 64, 1024),
    ("torchvision/efficientnet_b0", 4, 32, 1280),
    ("torchvision/regnet_x_400mf", 2, 64, 400),
    ("torchvision/squeezenet1_1", 2, 64, 512),
    ("torchvision/densenet121", 2, 64, 1024),
    ("torchvision/shufflenet_v2_x0_5", 3, 64, 1024),
    ("torchvision/mnasnet0_5", 3, 64, 1280),
]
LARGE = [
    ("torchvision/convnext_tiny", 3, 64, 768),
    ("torchvision/googlenet", 1, 64, 1024),
    ("torchvision/resnet50", 4, 64, 2048),
    ("torchvision/swin_t", 1, 64, 768),
    ("torchvision/vit_b_32", 1, 64, 768),
    ("torchvision/alexnet", 2, 64, 4096),
    ("torchvision/vgg11", 2, 224, 4096),
    ("torchvision/inception_v3", 2, 96, 2048),
    ("torchvision/maxvit_t", 1, 224, 512),
    ("timm/vgg11", 1, 224, 4096),
    ("timm/levit_128s", 3, 224, 384),
    ("timm/mixer_s32_224", 3, 224, 512),
]


def check(name: str, channels: int, size: int, dim: int) -> None:
    encoder = create(name, channels=channels, size=size).eval()
    x = images(channels, size)
    with torch.no_grad():
        embedded, maps, again = encoder(x), encoder.layers(x), encoder(x)
    assert encoder.dim == dim
    assert embedded.shape == (2, dim)
    assert len(maps) >= 3
    assert all(each.dim() == 4 and len(each) == 2 for each in maps.values())
    sides = [each.shape[-1] for each in maps.values()]
    assert sides == sorted(sides, reverse=True)
    assert torch.equal(again, embedded)


@pytest.mark.parametrize(("name", "channels", "size", "dim"), CASES)
def test_a_network_gives_vectors_and_the_maps_of_its_stages(name: str, channels: int, size: int, dim: int) -> None:
    check(name, channels, size, dim)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "channels", "size", "dim"), LARGE)
def test_so_does_a_large_one(name: str, channels: int, size: int, dim: int) -> None:
    check(name, channels, size, dim)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "patchnet"])
@pytest.mark.parametrize("size", [32, 64])
def test_the_last_map_of_a_resnet_pooled_is_the_embedding(name: str, size: int) -> None:
    encoder = create(name, size=size).eval()
    x = images(3, size)
    with torch.no_grad():
        last = list(encoder.layers(x).values())[-1]
        torch.testing.assert_close(last.mean((2, 3)), encoder(x))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("patchnet", ["stage1", "stage4"]),
        ("small_alexnet", ["conv2", "fc7"]),
        ("torchvision/resnet18", ["relu", "layer3"]),
        ("timm/resnet18", ["act1", "layer3"]),
        ("timm/densenet121", ["features.denseblock2"]),  # one that timm has no forward_intermediates for
        ("timm/vit_tiny_patch16_224", ["blocks.1", "blocks.11"]),
    ],
)
def test_one_pass_gives_what_two_give_to_the_bit_and_the_same_gradient(name: str, layers: list[str]) -> None:
    encoder, x = create(name, size=32), images(3, 32)

    def gradients(output: Tensor) -> list[Tensor]:
        parameters = list(encoder.parameters())
        found = torch.autograd.grad(output.square().sum(), parameters, retain_graph=True, materialize_grads=True)
        return [output, *found]

    embedded, maps = encoder.embed_with_maps(x, layers)
    assert list(maps) == layers
    all_maps = encoder.layers(x)
    pairs = [(embedded, encoder(x)), *((maps[layer], all_maps[layer]) for layer in layers)]
    for once, twice in pairs:
        assert all(torch.equal(a, b) for a, b in zip(gradients(once), gradients(twice), strict=True))


def test_one_pass_moves_the_running_statistics_once() -> None:
    encoder = create("patchnet", size=32)
    encoder.embed_with_maps(images(3, 32), ["stage2"])
    assert int(encoder.state_dict()["network.stem.1.num_batches_tracked"]) == 1


def test_a_stage_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="layer: patchnet has none named stage9; there are stem, stage1, stage2"):
        create("patchnet", size=32).embed_with_maps(images(3, 32), ["stage1", "stage9"])


def test_reading_the_layers_leaves_no_hook_behind() -> None:
    encoder = create("patchnet", size=32)
    encoder.layers(images(3, 32))
    assert not any(part._forward_hooks for part in encoder.modules())


def test_vectors_are_the_same_twice_in_evaluation() -> None:
    encoder = create("timm/efficientnet_b0", size=64).eval()
    assert torch.equal(encoder(images(3, 64)), encoder(images(3, 64)))


def test_creating_leaves_the_network_in_train_mode_and_its_statistics_fresh() -> None:
    encoder = create("patchnet", size=32)
    assert all(part.training for part in encoder.modules())
    assert not any(int(each) for name, each in encoder.state_dict().items() if name.endswith("num_batches_tracked"))


def test_an_encoder_knows_how_to_be_made_again() -> None:
    first = create("patchnet", channels=2, size=32, widths=(8, 16), blocks=(1, 2))
    again = create(first.name, **first.options)
    assert isinstance(again, Encoder)
    assert (again.dim, again.options) == (16, first.options)
    again.load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("resnet18", "timm/resnet18, torchvision/resnet18"),
        ("timm/resnet81", "timm/resnet18"),
        ("torchvision/reznet50", "torchvision/resnet50"),
        ("patchnett", "patchnet"),
        ("qqqqqqqq", "patchnet, small_alexnet"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"no encoder '{name}'; nearest: {nearest}") as caught:
        create(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("torchvision/alexnet", 32),
        ("small_alexnet", 8),
        ("timm/vit_tiny_patch16_224", 8),
        ("torchvision/vit_b_16", 40),
        ("patchnet", 1),
        ("timm/swin_tiny_patch4_window7_224", 10),
    ],
)
def test_a_size_that_is_not_possible_is_named(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=rf"^size: .*\b{size}\b") as caught:
        create(name, size=size)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "patchnet", "small_alexnet"])
def test_an_unknown_option_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"options: .*bogus"):
        create(name, size=32, bogus=1)


@pytest.mark.parametrize(
    ("argument", "value"), [("channels", 0), ("size", -1), ("size", 32.0), ("stem", "imagenet"), ("pretrained", "no")]
)
def test_a_wrong_argument_is_named(argument: str, value: object) -> None:
    with pytest.raises(ValueError, match="path" if argument == "pretrained" else argument):
        create("patchnet", **{argument: value})  # type: ignore[arg-type]


def test_images_of_another_shape_are_refused() -> None:
    encoder = create("patchnet", size=32)
    for shape in ((3, 32, 32), (2, 1, 32, 32)):
        with pytest.raises(ValueError, match=r"x: patchnet expects \(B, 3, H, W\)"):
            encoder(torch.zeros(shape))


def test_importing_the_encoders_imports_no_library_of_networks() -> None:
    look = "import sys, manyview.encoders; print([m for m in ('timm', 'torchvision') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("argument", "value"), [("channels", 1025), ("size", 4097)])
def test_sizes_beyond_reason_are_refused(argument: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{argument}: expected a whole number from 1 to {value - 1}, got {value}"):
        create("patchnet", **{argument: value})  # type: ignore[arg-type]


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="name: expected a text such as 'patchnet' or 'timm/resnet18', got 5"):
        create(5)  # type: ignore[arg-type]


def test_weights_that_are_neither_wanted_nor_a_file_are_refused() -> None:
    with pytest.raises(ValueError, match="pretrained: expected True, False or a file of weights, got 5"):
        create("patchnet", size=32, pretrained=5)  # type: ignore[arg-type]


def test_whole_numbers_are_not_looked_at() -> None:
    with pytest.raises(ValueError, match=r"expects floats, such as views are, got torch\.uint8"):
        create("patchnet", size=32)(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "patchnet"])
@pytest.mark.parametrize(
    "option",
    ["checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "pretrained_strict", "weights", "weights_backbone",
     "cache_dir", "url"],
)  # fmt: skip
def test_an_option_by_which_a_library_would_load_a_file_is_refused(name: str, option: str) -> None:
    with pytest.raises(UserError, match=f"^options: '{option}' is refused: it may load a file"):
        create(name, size=32, **{option: "evil.pth"})  # type: ignore[arg-type]


@pytest.mark.parametrize(("option", "argument"), [("in_chans", "channels"), ("img_size", "size"), ("size", "size")])
def test_an_option_that_repeats_an_argument_is_refused(option: str, argument: str) -> None:
    with pytest.raises(UserError, match=f"^options: '{option}' is given by the setting {argument} already"):
        check_options({option: 3})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("patchnet", {"widths": "wide"}),
        ("patchnet", {"widths": 5}),
        ("patchnet", {"widths": [None], "blocks": [1]}),
        ("patchnet", {"widths": [10**20], "blocks": [1]}),
        ("small_alexnet", {"out_dim": "x"}),
        ("timm/resnet18", {"block": "x"}),
        ("timm/resnet18", {"layers": 3}),
        ("timm/vit_tiny_patch16_224", {"depth": -1, "num_heads": 0}),
        ("torchvision/resnet18", {"norm_layer": 3}),
        ("torchvision/vit_b_16", {"num_layers": "two"}),
    ],
)
def test_options_that_make_no_sense_are_one_line(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"options|size|widths") as refused:
        create(name, size=32, **options)
    assert "\n" not in str(refused.value)
