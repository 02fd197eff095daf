"""Any classification model of torchvision as a backbone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torchvision.models as zoo
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders.feature_maps import Backbone, MapReader, channels_first, grid_of_tokens, module_outputs
from manyview.encoders.pretrained import refuse_if_unreachable, unavailable
from manyview.encoders.stem import cifar_stem, look_at_channels

SIDE_CLASSIFIED = (zoo.GoogLeNet, zoo.Inception3)
SITE = "https://download.pytorch.org"
NO_STAGE = (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.Dropout, nn.Identity)  # their activation is


def _nothing(size: int, pretrained: bool) -> dict[str, Any]:
    return {}


def _sized(size: int, pretrained: bool) -> dict[str, Any]:
    return {"image_size": size}


def _one_classifier(size: int, pretrained: bool) -> dict[str, Any]:
    """With weights torchvision wants to decide itself; what is at the side goes afterwards."""
    return {} if pretrained else {"aux_logits": False, "init_weights": True}


SETTINGS = {"googlenet": _one_classifier, "inception": _one_classifier, "vit": _sized}  # by a model's first word


def names() -> list[str]:
    return list(zoo.list_models(module=zoo))


def knows(model: str) -> bool:
    return model in names()


def build(
    model: str, *, channels: int, size: int, stem: str | None, pretrained: bool, options: dict[str, Any]
) -> Backbone:
    network = _network(model, size, pretrained, options)
    removed = _without_classifier(network)
    if isinstance(network, SIDE_CLASSIFIED) and channels != 3:
        network.transform_input = False  # from one normalisation of RGB to another
    if stem is None:
        look_at_channels(network, channels, keep=pretrained)
    elif isinstance(network, zoo.ResNet):
        cifar_stem(network, channels)
    else:
        raise UserError("stem", f"'cifar' is for ResNets; torchvision/{model} is a {type(network).__name__}")
    return Backbone(network, _reader(network), removed)


def _network(model: str, size: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    weights = _weights(model) if pretrained else None
    settings = SETTINGS.get(model.partition("_")[0], _nothing)(size, pretrained)
    try:
        network: nn.Module = zoo.get_model(model, weights=weights, **{**settings, **options})
    except TypeError as error:
        raise UserError("options", f"torchvision/{model} does not take them: {error}") from None
    except OSError:
        if weights is None:
            raise
        raise unavailable(f"torchvision/{model}", weights.url, _place(weights.url)) from None
    except (ValueError, RuntimeError, AssertionError) as error:
        given = f"size {size} and options {options}"
        raise UserError("size", f"torchvision/{model} cannot be made with {given}: {error}") from None
    return network


def _weights(model: str) -> Any:
    """torchvision's best for this model, on this machine or within reach."""
    weights: Any = zoo.get_model_weights(model).DEFAULT
    place = _place(weights.url)
    if not Path(place).exists():
        refuse_if_unreachable(f"torchvision/{model}", weights.url, place, SITE)
    return weights


def _place(url: str) -> str:
    return str(Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2])


def _without_classifier(network: nn.Module) -> tuple[str, ...]:
    """Takes off the layer that scores classes, and a dropout in front of it. Says which state dict entries went."""
    if isinstance(network, zoo.SqueezeNet):
        network.classifier = nn.AdaptiveAvgPool2d(1)
        return ("classifier",)
    if isinstance(network, zoo.Inception3):
        network.aux_logits, network.AuxLogits = False, None
    path = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)][-1]
    parent, _, last = path.rpartition(".")
    holder = network.get_submodule(parent)
    setattr(holder, last, nn.Identity())
    if isinstance(holder, nn.Sequential):
        before = len(holder) - 2
        if before >= 0 and isinstance(holder[before], nn.Dropout):
            holder[before] = nn.Identity()
    elif isinstance(getattr(network, "dropout", None), nn.Dropout):
        network.dropout = nn.Identity()
    return (path, "AuxLogits", "aux1", "aux2") if isinstance(network, SIDE_CLASSIFIED) else (path,)


def _reader(network: nn.Module) -> MapReader:
    if isinstance(network, zoo.VisionTransformer):
        blocks = network.encoder.layers
        return module_outputs([f"encoder.layers.{name}" for name, _ in blocks.named_children()], grid_of_tokens)
    if isinstance(network, zoo.SwinTransformer):
        return module_outputs([f"features.{name}" for name, _ in network.features.named_children()], channels_first)
    return module_outputs(_stages(network))


def _stages(network: nn.Module) -> list[str]:
    """Parts up to the pooling, those inside a part that is a list of stages; of single layers only activations."""
    parts: list[tuple[str, nn.Module]] = []
    for name, child in network.named_children():
        if name in ("avgpool", "classifier", "fc"):
            break
        inside = name in ("features", "layers", "blocks", "trunk_output")
        parts += [(f"{name}.{each}", part) for each, part in child.named_children()] if inside else [(name, child)]
    return [name for name, part in parts if not isinstance(part, NO_STAGE) or name == parts[-1][0]]
