"""The view pipelines of a run: what towers see in training, and encoders in evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from manyview.config.component import component
from manyview.config.config import Config
from manyview.features.preprocess import EncoderInput
from manyview.methods import Method
from manyview.training import crops, normalisation
from manyview.training.run_data import RunData
from manyview.views import AUGMENTATIONS, Modality, ViewPipeline
from manyview.views.view import View


def training(config: Config, views: Mapping[str, View], method: Method) -> ViewPipeline:
    """Makes the pipeline of training: so many augmented copies of each view."""
    made = crops.augmentations(config, method, config.augmentation["size"])
    made = replace(made, modalities=normalisation.modalities(config, views), holes=method.predicts)
    return made.of(method.views, views=views, geometry=method.geometry, jigsaw=method.jigsaw)


def evaluation(config: Config, views: Mapping[str, View]) -> ViewPipeline:
    """Makes the pipeline of evaluation: the middle of the picture, with training's normalisation."""
    middle = AUGMENTATIONS["probe-test"](config.augmentation["size"]).augmentations
    made = ViewPipeline(middle, normalisation.modalities(config, views), picture=picture(config))
    return made.of(dict.fromkeys(views, 1), views=views)


def whole_and_augmented(config: Config, views: Mapping[str, View], copies: int) -> ViewPipeline:
    """Makes a pipeline of the picture as in evaluation, followed by augmented copies of it.

    The copies are MoCo v2's without its blur, which leaves little of small pictures. They are the same for every run,
    whatever it trains with, so that runs can be compared.
    """
    whole = evaluation(config, views)
    (augmented,) = AUGMENTATIONS["moco-v2"](config.augmentation["size"], 1).augmentations
    seen = [*whole.augmentations, *[replace(augmented, blur=0.0)] * copies]
    return replace(whole, augmentations=seen).of(dict.fromkeys(views, len(seen)), views=views)


def picture(config: Config) -> Modality:
    """Returns the normalisation of pictures in training."""
    made: ViewPipeline = component(config, "augmentation")(config.augmentation["size"], 2)
    return made.picture


def inputs(config: Config, found: RunData) -> dict[str, EncoderInput]:
    """Describes the input of each view's encoder: the raw input, its normalisation, and what is taken of it."""
    pipeline, made = evaluation(config, found.views), {}
    for name, view in found.views.items():
        raw = found.met[view.modality]
        dtype = str(raw.dtype).removeprefix("torch.")
        made[name] = EncoderInput(len(raw), dtype, pipeline.modality(view.modality, raw), view)
    return made
