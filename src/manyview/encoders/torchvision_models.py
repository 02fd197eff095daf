"""Backbones from torchvision: any of its classification models."""

from math import isqrt
from pathlib import Path
from typing import Any

import torch
import torchvision.models as zoo
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders import backbone
from manyview.encoders.backbone import Backbone, MapReader, module_outputs

WITH_AUXILIARY_CLASSIFIERS = (zoo.GoogLeNet, zoo.Inception3)
SITE = "https://download.pytorch.org"
NOT_A_STAGE = (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.Dropout, nn.Identity)  # their activation is


def model_names() -> list[str]:
    return list(zoo.list_models(module=zoo))


def has_model(model: str) -> bool:
    return model in model_names()


def weight_names(model: str) -> list[str]:
    """The names of a model's published weights."""
    return [each for each in zoo.get_model_weights(model).__members__ if each != "DEFAULT"]


def build(
    model: str, *, channels: int, size: int, stem: str | None, pretrained: bool | str, options: dict[str, Any]
) -> Backbone:
    """pretrained: the published weights, the best ones or those of a name."""
    network = _network(model, size, pretrained, options)
    removed = _without_classifier(network)
    if isinstance(network, WITH_AUXILIARY_CLASSIFIERS) and channels != 3:
        network.transform_input = False  # from one normalisation of RGB to another
    if stem is None:
        backbone.adapt_input_channels(network, channels, keep=bool(pretrained))
    elif isinstance(network, zoo.ResNet):
        backbone.cifar_stem(network, channels)
    else:
        raise UserError("stem", f"'cifar' is for ResNets; torchvision/{model} is a {type(network).__name__}")
    return Backbone(network, _reader(network), removed)


def _network(model: str, size: int, pretrained: bool | str, options: dict[str, Any]) -> nn.Module:
    weights = _weights(model, pretrained) if pretrained else None
    settings = network_arguments(model, size, pretrained=bool(pretrained))
    try:
        network: nn.Module = zoo.get_model(model, weights=weights, **{**settings, **options})
    except TypeError as error:
        raise UserError("options", f"torchvision/{model} does not take them: {error}") from None
    except OSError:
        if weights is None:
            raise
        raise _missing(model, weights.url) from None
    except (ValueError, RuntimeError, AssertionError) as error:
        given = f"size {size} and options {options}"
        raise UserError("size", f"torchvision/{model} cannot be made with {given}: {error}") from None
    return network


def network_arguments(model: str, size: int, *, pretrained: bool) -> dict[str, Any]:
    """The arguments that some families of networks need."""
    family = model.partition("_")[0]
    if family == "vit":
        return {"image_size": size}
    if family in ("googlenet", "inception") and not pretrained:  # with weights torchvision decides itself
        return {"aux_logits": False, "init_weights": True}
    return {}


def _weights(model: str, named: bool | str) -> Any:
    """The best weights that torchvision has for this model, or some by name, if they can be had here."""
    published = zoo.get_model_weights(model)
    weights: Any = published[named] if isinstance(named, str) else published.DEFAULT
    if not _cache_path(weights.url).exists() and not backbone.responds(SITE):
        raise _missing(model, weights.url)
    return weights


def _missing(model: str, url: str) -> UserError:
    return backbone.weights_unavailable(f"torchvision/{model}", url, str(_cache_path(url)))


def _cache_path(url: str) -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


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
    return (path, "AuxLogits", "aux1", "aux2") if isinstance(network, WITH_AUXILIARY_CLASSIFIERS) else (path,)


def channels_first(output: Tensor) -> Tensor:
    """Turns (B, H, W, C) into (B, C, H, W)."""
    return output.permute(0, 3, 1, 2)


def grid_of_tokens(output: Tensor) -> Tensor:
    """Turns tokens (B, 1 + H W, C) with a class token in front into (B, C, H, W) without it."""
    patches = output[:, 1:].transpose(1, 2)
    return patches.reshape(*patches.shape[:2], isqrt(patches.shape[2]), -1)


def _reader(network: nn.Module) -> MapReader:
    if isinstance(network, zoo.VisionTransformer):
        blocks = network.encoder.layers
        return module_outputs([f"encoder.layers.{name}" for name, _ in blocks.named_children()], grid_of_tokens)
    if isinstance(network, zoo.SwinTransformer):
        return module_outputs([f"features.{name}" for name, _ in network.features.named_children()], channels_first)
    return module_outputs(_stages(network))


def _stages(network: nn.Module) -> list[str]:
    """The parts up to the pooling, and those inside a list of stages; of single layers only activations."""
    parts: list[tuple[str, nn.Module]] = []
    for name, child in network.named_children():
        if name in ("avgpool", "classifier", "fc"):
            break
        inside = name in ("features", "layers", "blocks", "trunk_output")
        parts += [(f"{name}.{each}", part) for each, part in child.named_children()] if inside else [(name, child)]
    return [name for name, part in parts if not isinstance(part, NOT_A_STAGE) or name == parts[-1][0]]
