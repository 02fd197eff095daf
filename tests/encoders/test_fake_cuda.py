"""Encoders and heads on a GPU, as far as that can be told without one."""

from __future__ import annotations

import pytest
import torch

from manyview.encoders import HEADS, create, dense_convolutions
from manyview.encoders.decoders import upsampling
from tests.fake_cuda import fake_cuda

NETWORKS = [
    "patchnet",
    "small_alexnet",
    "nyu",
    "resnet",
    "torchvision/resnet18",
    "torchvision/mobilenet_v3_small",
    "timm/resnet18",
    "timm/vit_tiny_patch16_224",
]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_embedding_and_maps_stay_on_the_gpu(name: str, training: bool) -> None:
    encoder, images = create(name, size=32).train(training), torch.zeros(2, 3, 32, 32)
    with fake_cuda() as cuda:
        embedded, maps = cuda.module(encoder).embed_with_maps(cuda.tensor(images))
        assert (embedded.device.type, embedded.shape) == ("cuda", (2, encoder.dim))
        assert {each.device.type for each in maps.values()} == {"cuda"}


def test_strided_crops_and_decoders_stay_on_the_gpu() -> None:
    encoder, images = create("patchnet", size=32, crop=16), torch.zeros(2, 3, 32, 32)
    decoder = upsampling((encoder.dim,), 2, side=6, width=4)
    with fake_cuda() as cuda:
        embedded, maps = cuda.module(encoder).embed_with_maps(cuda.tensor(images))
        assert {embedded.device.type, maps["crops"].device.type} == {"cuda"}
        assert cuda.module(decoder)(embedded).device.type == "cuda"


def test_dense_convolutions_stay_on_the_gpu() -> None:
    encoder, images = create("torchvision/resnet18", size=32), torch.zeros(2, 3, 32, 32)
    dense_convolutions(encoder)
    with fake_cuda() as cuda:
        assert cuda.module(encoder)(cuda.tensor(images)).device.type == "cuda"


@pytest.mark.parametrize("name", HEADS)
def test_heads_stay_on_the_gpu(name: str) -> None:
    head, features = HEADS[name](16, 8), torch.zeros(4, 16)
    with fake_cuda() as cuda:
        projected = cuda.module(head)(cuda.tensor(features))
        assert (projected.device.type, projected.shape) == ("cuda", (4, 8))
