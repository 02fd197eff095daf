"""Builds what the settings name, encoders and the method, and checks beforehand that it can be built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from manyview import encoders
from manyview.config.component import component, components
from manyview.config.config import Config
from manyview.config.sections import ENCODER
from manyview.core.errors import UserError
from manyview.core.parallel import resolve_device
from manyview.encoders import Encoder
from manyview.encoders.map_heads import UnknownLayer
from manyview.encoders.weights import Misfit, named_encoder
from manyview.methods import METHODS, Method
from manyview.methods.method import UnknownView
from manyview.methods.terms import try_loss
from manyview.training import crops, normalisation
from manyview.training.batches import check_groups

MANY = "encoders"  # the first parameter of a method that has an encoder a view
TRAINED_PART = tuple(inspect.signature(encoders.choose_trained_part).parameters)[1:]
UNKNOWN = ("one", "other")  # stand for views that the data will say


def check(config: Config) -> None:
    """Refuses settings that can be refused before the data is opened."""
    device(config)
    try:
        encoders.check_name(config.encoder["name"])
    except UserError as error:
        raise error.within("encoder") from None
    try:
        check_method(config, config.views or UNKNOWN)
    except UnknownView:
        if config.views is not None:
            raise  # otherwise the data may have it, and `data` checks again


def check_method(config: Config, views: tuple[str, ...]) -> None:
    """Builds the method for views of these names, small and without memory, so that each part checks its arguments."""
    try:
        declared = small_method(config, views)
    except UnknownLayer:
        return  # the encoder itself may have it, and says so where it is built
    with torch.device("meta"):
        component(config, "optimizer")(declared.towers)
    check_groups(declared, config)
    if (loss := components(config).get("loss")) is not None:
        try_loss(loss)
    if config.augmentation["name"] != "auto":
        crops.augmentations(config, declared, config.augmentation["size"] or 32)


def small_method(config: Config, views: Sequence[str]) -> Method:
    """Builds the method with small networks without weights: enough to know what it contrasts."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        small = encoders.create(ENCODER, size=8, widths=(4,), blocks=(1,))
        networks = dict.fromkeys(views, small) if takes_many(config) else small
        return cast(Method, component(config, "method")(networks, **components(config)))


def device(config: Config) -> str:
    """Returns the device that a run is on: cpu or cuda."""
    found = str(resolve_device(config.device))
    if config.precision == "fp16" and found == "cpu":
        raise UserError("precision", "fp16 needs a GPU; on a CPU give fp32 or bf16")
    return found


def head(config: Config, dim: int) -> nn.Module | None:
    """Builds the head that a method puts on an encoder of so many features; None for a method without projections."""
    if "head" not in config.parts:
        return None
    return nn.Identity() if config.parts["head"] is None else cast(nn.Module, component(config, "head")(dim))


def encoder(config: Config, channels: int, *, begun: bool = False) -> Encoder:
    """Builds an encoder of views with so many channels.

    begun  its weights come from a checkpoint, and not from where the run first had them
    """
    options: dict[str, Any] = {**config.encoder, **({"pretrained": False} if begun else {})}
    more, name = options.pop("options"), options.pop("name")
    learns = {key: options.pop(key) for key in TRAINED_PART}
    try:
        encoders.check_options(more)
        made = encoders.create(name, channels=channels, size=config.augmentation["size"], **options, **more)
        encoders.choose_trained_part(made, **learns)
        return made
    except Misfit as error:
        raise Misfit(None, f"{error.message}{_chosen_encoder(config)}").within("encoder") from None
    except UserError as error:
        raise error.within("augmentation" if error.setting == "size" else "encoder") from None


def _chosen_encoder(config: Config) -> str:
    """Says that nobody named the encoder that weights do not fit, and which one their file names."""
    if "encoder.name" not in config.auto:
        return ""
    named = named_encoder(config.encoder["pretrained"])
    which = f"the file is of --encoder {named}" if named else "give the --encoder that the file is of"
    return f"; no --encoder was given, so it is {config.encoder['name']}, the usual one on a CPU: {which}"


def method(
    config: Config,
    channels: Mapping[str, int],
    instances: int,
    *,
    begun: bool = False,
    present: Mapping[str, torch.Tensor] | None = None,
) -> Method:
    """Builds the method with its parts from the run's seed, for so many training images.

    present  (instances,) by view: which images have it; a checkpoint records it too
    """
    return unstarted(config, channels, begun=begun).start(instances, present)


def unstarted(config: Config, channels: Mapping[str, int], *, begun: bool = False) -> Method:
    """Builds the method as `method` does, without memories."""
    torch.manual_seed(config.seed)
    made = {view: encoder(config, count, begun=begun) for view, count in channels.items()}
    networks = made if takes_many(config) else next(iter(made.values()))
    declared: Method = component(config, "method")(networks, **components(config))
    normalisation.check_classes(channels, declared)
    crops.check_sizes(config, declared, made.values())
    return declared


def checkpoint_blocks(method: Method) -> None:
    """Turns gradient checkpointing on in the encoders that have a gradient."""
    for each in method.towers.encoders.values():
        encoders.checkpoint_blocks(each)


def takes_many(config: Config) -> bool:
    """Tells whether a method takes an encoder for each view, by its signature."""
    return next(iter(inspect.signature(METHODS[config.method["name"]]).parameters)) == MANY


def scored_across_views(config: Config) -> bool:
    """Tells whether a view can be retrieved by another, because the method contrasts embeddings of several views."""
    try:
        return takes_many(config) and bool(small_method(config, config.views or UNKNOWN).contrasted)
    except UnknownLayer:
        return False
    except UnknownView:  # one of the data's
        return True


def scored_without_labels(config: Config) -> bool:
    """Tells whether unlabelled images can be scored, by their augmented views or by retrieval across views."""
    return (bool(config.evaluate_every) and "instance" in config.evaluators) or scored_across_views(config)
