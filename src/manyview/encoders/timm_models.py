"""Backbones from timm: any of its models."""

import sys
from collections.abc import Collection
from typing import Any

import timm
from timm.models.resnet import ResNet
from torch import Tensor

from manyview.core.errors import UserError
from manyview.encoders import backbone
from manyview.encoders.backbone import Backbone, Maps, State, cifar_stem, module_outputs, weights_unavailable

HUB = "https://huggingface.co"


def model_names() -> list[str]:
    return list(timm.list_models())


def has_model(model: str) -> bool:
    """Says whether timm has a model, with or without a tag of its weights: resnet18, resnet18.a1_in1k."""
    if not timm.is_model(model):
        return False
    try:
        timm.get_pretrained_cfg(model)
    except RuntimeError:  # there are no weights of this tag
        return False
    return True


def weight_names(model: str) -> list[str]:
    """The names of a model's published weights, which timm writes behind its own: resnet18.a1_in1k."""
    found = timm.list_models(f"{model.partition('.')[0]}.*", pretrained=True, include_tags=True)
    return [name.partition(".")[2] for name in found]


def build(
    model: str, *, channels: int, size: int, stem: str | None, pretrained: bool | str, options: dict[str, Any]
) -> Backbone:
    """pretrained: the published weights, the usual ones or those of a name."""
    if isinstance(pretrained, str):
        model = f"{model.partition('.')[0]}.{pretrained}"
    if pretrained:
        _check_weights(model)
    network = _network(model, channels, size, bool(pretrained), options)
    if stem == "cifar":
        if not isinstance(network, ResNet):
            raise UserError("stem", f"'cifar' is for ResNets; timm/{model} is a {type(network).__name__}")
        cifar_stem(network, channels)
    classifier = network.pretrained_cfg.get("classifier") or ()
    removed = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    if hasattr(network, "forward_intermediates"):
        return Backbone(network, intermediates, removed, _convert)
    return Backbone(network, module_outputs(_stages(network)), removed, _convert)


def _convert(network: Any, state: State) -> State:
    """Converts as timm does downloaded weights: names of the authors' code, position embeddings of other sizes."""
    convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    return state if convert is None else dict(convert(state, network))


def _network(model: str, channels: int, size: int, pretrained: bool, options: dict[str, Any]) -> Any:
    """Creates timm's model without classifier, with the size of the images if it must know it."""
    settings = {"pretrained": pretrained, "num_classes": 0, "in_chans": channels, **options}
    config = timm.get_pretrained_cfg(model)
    sized: dict[str, Any] = {"img_size": size} if config is not None and config.fixed_input_size else {}
    try:
        return timm.create_model(model, **sized, **settings)
    except TypeError as error:
        raise UserError("options", f"timm/{model} does not take them: {error}") from None
    except (AssertionError, ArithmeticError) as error:
        raise UserError("size", f"timm/{model} cannot be made for {size} x {size} images: {error}") from None
    except OSError:
        if not pretrained:
            raise
        raise _missing(model) from None


def _stages(network: Any) -> list[str]:
    info = network.feature_info
    return [str(each["module"]) for each in (info if isinstance(info, list) else info.info)]


def intermediates(network: Any, x: Tensor, names: Collection[str] | None) -> tuple[Tensor, Maps]:
    """Reads the stages of a network that gives them itself."""
    last, maps = network.forward_intermediates(x)
    stages = _stages(network)
    if len(stages) != len(maps):
        stages = [f"stage{number}" for number in range(len(maps))]
    found = dict(zip(stages, maps, strict=True))
    if last.dim() == 4 and last.shape[1] == network.num_features and last.shape != maps[-1].shape:
        found["features"] = last  # a last convolution that timm does not count as a stage
    wanted = {name: each for name, each in found.items() if names is None or name in names}
    return network.forward_head(last), wanted


def _check_weights(model: str) -> None:
    config = timm.get_pretrained_cfg(model)
    if config is None or not config.has_weights:
        raise UserError("pretrained", f"timm has no weights of {model}; see timm.list_pretrained()")
    if config.hf_hub_id and not _in_cache(config.hf_hub_id) and not backbone.responds(HUB):
        raise _missing(model)


def _in_cache(repository: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(repository, file), str) for file in files)


def _missing(model: str) -> UserError:
    from huggingface_hub.constants import HF_HUB_CACHE

    config = timm.get_pretrained_cfg(model)
    source = f"{HUB}/{config.hf_hub_id if config else 'timm'}"
    return weights_unavailable(f"timm/{model}", source, f"the Hugging Face cache {HF_HUB_CACHE}")
