"""Builds what the settings name: data, views, encoders, method, optimiser."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from manyview import encoders
from manyview.config.config import OWN, Config, component, components, resolve
from manyview.config.keys import Flat
from manyview.config.sections import ENCODER
from manyview.core.errors import UserError, nearest
from manyview.core.parallel import resolve_device
from manyview.data import NAMED, Dataset
from manyview.data.dataset import few_samples, fingerprint, usual_shape
from manyview.data.decoded import some_samples
from manyview.data.factory import SCENES, divided_for, has_classes
from manyview.data.named_labels import is_table_of_labels
from manyview.data.selection import left_out, only_modalities, reference
from manyview.data.statistics import Statistics
from manyview.encoders import Encoder
from manyview.encoders.map_heads import UnknownLayer
from manyview.features.preprocess import EncoderInput
from manyview.methods import METHODS, Method
from manyview.methods.method import VIEW, UnknownView
from manyview.methods.terms import try_loss
from manyview.training import crops, normalisation
from manyview.training.batches import check_groups
from manyview.training.usual import Facts, computes_bf16, slow_in_bf16, usual
from manyview.views import AUGMENTATIONS, VIEWS, Modality, ViewPipeline
from manyview.views.augmentation_recipes import usual_augmentation, usual_size
from manyview.views.view import View, view_named

MANY = "encoders"  # the first parameter of a method that has an encoder a view
PHOTO_VIEWS = ("L", "ab")  # of photos, for such a method, where nobody says
TRAINED_PART = tuple(inspect.signature(encoders.choose_trained_part).parameters)[1:]
UNKNOWN = ("one", "other")  # stand for views that the data will say


@dataclass(frozen=True, eq=False)
class RunData:
    """What a run trains on and is scored on, and the views that its method sees."""

    train: Dataset
    test: Dataset | None
    views: dict[str, View]  # which modality each is derived from, and what is taken of it
    channels: dict[str, int]  # of each view
    side: int  # the usual length of a picture's shorter side
    fingerprint: tuple[int, ...]  # how many training images there are; sums of which, of sizes and times
    modalities: tuple[str, ...]  # all that the data has; those of no view are left out
    met: dict[str, Tensor] = field(default_factory=dict)  # one image (C, H, W) of each modality
    statistics: dict[str, Statistics] = field(default_factory=dict)  # of the modalities that are no pictures
    left_out: tuple[str, ...] = ()  # folders and columns of label maps, which are not taken for a modality
    opened_anew: bool = False  # with modalities that the data has on request alone, since views name them
    held_out: bool = False  # whether the images to score on were held out of the training data, and are no test split
    why: str | None = None  # the test split is not used, where there is one
    balanced: Dataset | None = None  # the training images before an imbalance left some of them out, where one did

    @property
    def bank(self) -> Dataset:
        """The training images that held-out ones are compared with: all, also those that an imbalance leaves out."""
        return self.train if self.balanced is None else self.balanced

    @property
    def labelled(self) -> bool:
        """Says whether there are images to score on, and classes to score them by."""
        return self.test is not None and has_classes(self.train)


def data(config: Config, own: Dataset | None = None) -> RunData:
    """The data of a run, with the modalities that its views are derived from."""
    if own is None and config.own_data:
        raise UserError("data", "the run was made on a data set of your own; give it: manyview.pretrain(data=...)")
    options, there = config.data_options, config.data["name"] if own is None else own
    found, opened_anew = divided_for(config.views or (), there, unlabelled=scored_without_labels(config), **options)
    normalisation.check(config, found.train.modalities)
    views = views_of(config, found.train.modalities, reference(found.train) if config.views else None)
    if takes_many(config) and config.views is None:
        check_method(config, tuple(views))
    used = tuple(dict.fromkeys(view.modality for view in views.values()))
    train = only_modalities(found.train, used)
    test = None if found.test is None else only_modalities(found.test, used)
    few = few_samples(train)
    met = {name: sample.modalities[name] for sample in reversed(few) for name in sample.modalities}
    if len(met) < len(used):  # one that few samples have
        met = {name: sample.modalities[name] for sample in some_samples(train) for name in sample.modalities}
    shapes = {name: usual_shape(few, view.modality, met.get(view.modality)) for name, view in views.items()}
    return RunData(
        train=train,
        test=test,
        views=views,
        channels={name: view.width(shapes[name][0]) for name, view in views.items()},
        side=next(iter(shapes.values()))[1],
        fingerprint=fingerprint(train, few),
        modalities=found.train.modalities,
        met=met,
        statistics=normalisation.measured(config, train, met),
        left_out=left_out(found.train),
        opened_anew=opened_anew,
        held_out=found.held_out,
        why=found.test_unused,
        balanced=None if found.balanced is None else only_modalities(found.balanced, used),
    )


def views_of(config: Config, modalities: tuple[str, ...], picture: str | None = None) -> dict[str, View]:
    """The views that the method sees: one of the data's first modality, or where it takes many all modalities.

    Of data with a single modality, which are photos, a method that takes many sees L and ab.

    picture  the modality of which colours are taken; the first unless given
    """
    many = takes_many(config)
    names = config.views or ((modalities if len(modalities) > 1 else PHOTO_VIEWS) if many else modalities[:1])
    views = {name: view_named(name, picture or modalities[0]) for name in names}
    for name, view in views.items():
        if name in VIEWS and name in modalities:
            raise UserError("views", f"{name!r} is a view derived of pictures: give the modality {name!r} another name")
        if view.modality not in modalities:
            near = nearest(name, (*modalities, *VIEWS))
            more = f"did you mean {near!r}?" if near else "`manyview list views` has what is derived of pictures"
            raise UserError("views", f"the data has no {name!r}; it has {', '.join(modalities)}; {more}")
    if many:
        return views
    if len(views) > 1:
        raise UserError("views", f"{config.method['name']} sees one view, got {', '.join(views)}; give one of them")
    return {VIEW: next(iter(views.values()))}


def facts(config: Config, found: RunData) -> Facts:
    """Gives what the settings that are left open go by."""
    machine = device(config)
    bf16 = "precision" in config.auto and computes_bf16(machine)
    if bf16 and machine == "cpu" and "encoder.name" not in config.auto:
        size = config.augmentation["size"] or usual_size(found.side)
        sized = replace(config, augmentation={**config.augmentation, "size": size})
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            bf16 = not slow_in_bf16(encoder(sized, next(iter(found.channels.values())), begun=True))
    return Facts(len(found.train), found.side, machine, bf16)


def settled(config: Config, found: RunData) -> Config:
    """The settings with everything decided that depends on the data and the machine, and the run's folder."""
    config = with_chosen(config, usual(config, facts(config, found)))
    size = config.augmentation["size"] or usual_size(found.side)
    name = config.augmentation["name"]
    name = usual_augmentation(size, len(found.views)) if name == "auto" else name
    augmentation, source = {**config.augmentation, "name": name, "size": size}, _absolute(config.data)
    augmentation |= crops.settled(config, size)
    if "statistics" in source:
        source |= normalisation.as_settings(found.statistics, source["nodata"])
    if found.opened_anew and not config.own_data:
        source["modalities"] = found.modalities
    encoder = {**config.encoder}
    if isinstance(encoder["pretrained"], str) and os.path.isfile(encoder["pretrained"]):
        encoder["pretrained"] = os.path.abspath(encoder["pretrained"])
    views = tuple(found.views) if takes_many(config) else config.views
    config = replace(config, augmentation=augmentation, data=source, encoder=encoder, views=views)
    config = with_chosen(config, {})
    images = source["name"]
    if config.out and os.path.isabs(images) and os.path.realpath(config.out) == os.path.realpath(images):
        raise UserError("out", f"{config.out} is the folder of the images; give another, which is made")
    return config if config.out else replace(config, out=str(Path("runs") / _name(config, found)))


def with_size(config: Config, views: int, size: int) -> Config:
    """The settings with views of another size, and the augmentation that goes with it unless somebody named one."""
    open_name = "augmentation.name" in config.auto
    name = usual_augmentation(size, views) if open_name else config.augmentation["name"]
    kept = {key: value for key, value in config.flat().items() if key != "augmentation.small_size"}
    made = resolve(kept, {"augmentation.name": name, "augmentation.size": size})
    return replace(made, augmentation={**made.augmentation, **crops.settled(made, size)}, auto=config.auto)


def with_chosen(config: Config, chosen: Flat) -> Config:
    """The settings with values for some that were left open, checked as if they had been given."""
    return replace(resolve({**config.flat(), **chosen}, {}), auto=config.auto)


def check(config: Config) -> None:
    """Refuses what can be refused before anyone waits for the data."""
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
    """Builds the method for views of these names, small and without memory: each part says what it refuses."""
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
    """The method with small networks that have no weights: enough to know what it contrasts."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        small = encoders.create(ENCODER, size=8, widths=(4,), blocks=(1,))
        networks = dict.fromkeys(views, small) if takes_many(config) else small
        return cast(Method, component(config, "method")(networks, **components(config)))


def scored_across_views(config: Config) -> bool:
    """Says whether one view of a sample can be found by another: embeddings of several are contrasted, no feature
    maps."""
    try:
        return takes_many(config) and bool(small_method(config, config.views or UNKNOWN).contrasted)
    except UnknownLayer:
        return False
    except UnknownView:  # one of the data's
        return True


def device(config: Config) -> str:
    """The name of the device that a run is on: cpu or cuda."""
    found = str(resolve_device(config.device))
    if config.precision == "fp16" and found == "cpu":
        raise UserError("precision", "fp16 needs a GPU; on a CPU give fp32 or bf16")
    return found


def pipeline(config: Config, views: Mapping[str, View], method: Method) -> ViewPipeline:
    """Gives what a method's towers see in training: so many augmented copies of each view."""
    made = crops.augmentations(config, method, config.augmentation["size"])
    made = replace(made, modalities=normalisation.modalities(config, views), holes=method.predicts)
    return made.of(method.views, views=views, geometry=method.geometry, jigsaw=method.jigsaw)


def test_pipeline(config: Config, views: Mapping[str, View]) -> ViewPipeline:
    """Gives what encoders see in evaluation: the middle of the picture, with training's normalisation."""
    middle = AUGMENTATIONS["probe-test"](config.augmentation["size"]).augmentations
    made = ViewPipeline(middle, normalisation.modalities(config, views), picture=picture(config))
    return made.of(dict.fromkeys(views, 1), views=views)


def whole_and_augmented(config: Config, views: Mapping[str, View], copies: int) -> ViewPipeline:
    """Gives what encoders see in evaluation, and then augmented copies of it.

    These are MoCo v2's without its blur, which leaves little of small pictures: the same for every run, whatever it
    trains with, so that runs can be compared.
    """
    whole, (augmented,) = (
        test_pipeline(config, views),
        AUGMENTATIONS["moco-v2"](config.augmentation["size"], 1).augmentations,
    )
    seen = [*whole.augmentations, *[replace(augmented, blur=0.0)] * copies]
    return replace(whole, augmentations=seen).of(dict.fromkeys(views, len(seen)), views=views)


def scored_without_labels(config: Config) -> bool:
    """Says whether unlabelled images are of use to score on: by augmented views of them, or by one view of another."""
    return (bool(config.evaluate_every) and "instance" in config.evaluators) or scored_across_views(config)


def picture(config: Config) -> Modality:
    """Says how training normalises a picture."""
    made: ViewPipeline = component(config, "augmentation")(config.augmentation["size"], 2)
    return made.picture


def inputs(config: Config, found: RunData) -> dict[str, EncoderInput]:
    """Gives what the encoder of each view is given: the form of the raw input, its normalisation, and what is seen of
    it."""
    pipeline, made = test_pipeline(config, found.views), {}
    for name, view in found.views.items():
        raw = found.met[view.modality]
        dtype = str(raw.dtype).removeprefix("torch.")
        made[name] = EncoderInput(len(raw), dtype, pipeline.modality(view.modality, raw), view)
    return made


def head(config: Config, dim: int) -> nn.Module | None:
    """The head that a method puts on an encoder of so many features; None of a method that contrasts no projections."""
    if "head" not in config.parts:
        return None
    return nn.Identity() if config.parts["head"] is None else cast(nn.Module, component(config, "head")(dim))


def encoder(config: Config, channels: int, *, begun: bool = False) -> Encoder:
    """An encoder of views with so many channels.

    begun  its weights come from a checkpoint, and not from wherever the run first had them
    """
    options: dict[str, Any] = {**config.encoder, **({"pretrained": False} if begun else {})}
    more, name = options.pop("options"), options.pop("name")
    learns = {key: options.pop(key) for key in TRAINED_PART}
    try:
        encoders.check_options(more)
        made = encoders.create(name, channels=channels, size=config.augmentation["size"], **options, **more)
        encoders.choose_trained_part(made, **learns)
        return made
    except UserError as error:
        raise error.within("augmentation" if error.setting == "size" else "encoder") from None


def method(
    config: Config,
    channels: Mapping[str, int],
    instances: int,
    *,
    begun: bool = False,
    present: Mapping[str, torch.Tensor] | None = None,
) -> Method:
    """The method with its parts, drawn from the run's seed, for so many training images.

    present  (instances,) by view: which of them have it; a checkpoint knows it too
    """
    return unstarted(config, channels, begun=begun).start(instances, present)


def unstarted(config: Config, channels: Mapping[str, int], *, begun: bool = False) -> Method:
    """The method as `method` has it, without memories."""
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
    """Says whether a method takes an encoder for each view, as its signature says."""
    return next(iter(inspect.signature(METHODS[config.method["name"]]).parameters)) == MANY


def _absolute(source: dict[str, Any]) -> dict[str, Any]:
    """The data's settings with folders that are the same from everywhere, however they were typed."""
    found = dict(source)
    if source["name"] not in (OWN, SCENES, *NAMED):
        found["name"] = os.path.abspath(source["name"])
    if source.get("root"):
        found["root"] = os.path.abspath(source["root"])
    if is_table_of_labels(source.get("labels")):
        found["labels"] = os.path.abspath(source["labels"])
    return found


def _name(config: Config, found: RunData) -> str:
    """The same settings and data give the same folder, so that the same command goes on with the same run."""
    settings = {**config.fixed(), **dict.fromkeys(config.auto, "auto")}
    settings["data.name"] = found.fingerprint[:2] if config.own_data else config.data["name"]  # copies have other times
    digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()[:6]
    source = "own" if config.own_data else os.fsencode(Path(config.data["name"]).name).decode("utf-8", "replace")
    return f"{config.method['name']}-{source or 'data'}-{digest}"
