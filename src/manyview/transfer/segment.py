"""Semantic segmentation: a decoder on an encoder's feature maps, as CMC judges representations of views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.bounds import Between, Count, OptionalCount, OptionalPositive
from manyview.core.distributed import rank, sum_over_processes, world_size
from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.data import Dataset, Loader
from manyview.data.selection import only_modalities
from manyview.embeddings.model_source import ModelSource
from manyview.encoders import Encoder
from manyview.evaluate.classifier import seeded
from manyview.training.optimizers import adam, cosine, steps
from manyview.transfer.decoders import DECODERS
from manyview.transfer.fit import Training
from manyview.transfer.iou import IGNORED, confusion, segmentation_scores
from manyview.transfer.legend import Legend, find_legend
from manyview.transfer.mask_folders import SEMANTIC, hold_out, open_masks
from manyview.transfer.mask_pictures import SHOWN, Segmented, save_mask_pictures
from manyview.transfer.masks import MASK, check_legend, check_readable, having_masks, legend_of_masks, masked
from manyview.transfer.onnx_export import export_segmenter
from manyview.transfer.prepared import DataSource, Prepared, Start
from manyview.transfer.records import PICTURES
from manyview.transfer.segmenter import Segmenter
from manyview.views import Modality, View, ViewPipeline

TEST_BATCH = 32
NAMED = 3  # pictures that cannot be read
UNREADABLE = 0.05  # of the pictures, above which it is an error
WIDTH = 64
NO_CLASS = (255,)


@dataclass(frozen=True)
class Recipe:
    """How a decoder is trained.

    source      where the numbers are from
    milestones  shares of the epochs from which on the learning rate is `drop` times what it was; none: a cosine
    baseline    epochs of the baselines, where they have others
    """

    source: str
    lr: float
    betas: tuple[float, float]
    batch_size: int
    epochs: int
    baseline: int | None = None
    milestones: tuple[float, ...] = ()
    drop: float = 0.2

    def factor(self, epoch: float, epochs: int) -> float:
        """What the learning rate is multiplied with after so many epochs."""
        if not self.milestones:
            return cosine(epoch, epochs)
        return steps(epoch, epochs, milestones=[share * epochs for share in self.milestones], factor=self.drop)


RECIPES = {
    "short": Recipe("nobody's: a short one for small machines, chosen by hand", 2e-3, (0.9, 0.999), 32, 20),
    "cmc-nyu": Recipe(
        "CMC (Tian et al., ECCV 2020), appendix E.4: Adam, lr 0.001, betas 0.5 and 0.999, the same optimiser as in "
        "pre-training, which falls by 0.2 after 2000, 2400 and 2800 of 3000 epochs: here after the same shares of 200; "
        "1000 for the baselines. It says nothing of the batch",
        1e-3, (0.5, 0.999), 32, 200, baseline=1000, milestones=(2 / 3, 0.8, 14 / 15),
    ),
}  # fmt: skip


def segment(
    data: DataSource,
    *,
    decoder: Annotated[Literal["unet", "linear"], "on the encoder's feature maps"] = "unet",
    frozen: Annotated[bool, "keep the encoder as it is; false trains it along"] = True,
    recipe: Annotated[Literal["short", "cmc-nyu"], "of optimiser and schedule"] = "short",
    epochs: Annotated[OptionalCount, "instead of the recipe's, also for the baselines"] = None,
    lr: Annotated[OptionalPositive, "instead of the recipe's"] = None,
    batch_size: Annotated[OptionalCount, "instead of the recipe's"] = None,
    width: Annotated[Count, "channels of the U-Net's decoder"] = WIDTH,
    scale: Annotated[float, Between(0.01, 1), "the smallest share of a picture that a training crop covers"] = 0.5,
    mask: Annotated[str | None, "the modality that holds masks; by default the one named like label maps"] = None,
    legend: Annotated[
        str | None, "what values mean: a file, voc, nyu13, nyu40 or msrs; by default beside the data"
    ] = None,
    ignore: Annotated[tuple[int, ...], "numbers of masks that are no class"] = NO_CLASS,
) -> Prepared:
    """Semantic segmentation (CMC 4.3): mIoU, pixel accuracy and the IoU of each class.

    Pictures are seen at the encoder's size: in training a random crop and flip, in the test the largest middle square.
    The mask has the same crop, by nearest neighbours.
    """
    if decoder != "unet" and width != WIDTH:
        raise UserError("width", f"the {decoder} decoder has none; leave it out")
    numbers = _chosen(RECIPES[recipe], epochs, lr, batch_size)
    train, test, name = open_masks(data, mask)
    pictures = [each for each in train.modalities if each != name]
    train, lacking = having_masks(train, name, pictures)
    notes = [f"training pictures without a mask, left out: {lacking:,}"] if lacking else []
    if test is not None:
        test, lacking = having_masks(test, name, pictures)
        notes += [f"test pictures without a mask, left out: {lacking:,}"] if lacking else []
    meaning = _legend(data, [train] if test is None else [train, test], name, legend, ignore, notes)
    held_out = test is None
    train, test = hold_out(train) if test is None else (train, test)
    ready = [masked(each, name, meaning) for each in (train, test)]
    for each in ready:
        check_readable(each)
    task = Segmentation(ready[0], ready[1], meaning, decoder, width, scale, numbers)
    return Prepared(
        data.name, ready[0], ready[1], meaning.classes, partial(task.training, frozen=frozen),
        supervised=partial(task.training, frozen=False) if frozen else None,
        joins=True, held_out=held_out, notes=tuple(notes),
    )  # fmt: skip


def _chosen(recipe: Recipe, epochs: int | None, lr: float | None, batch_size: int | None) -> Recipe:
    return replace(
        recipe, epochs=epochs or recipe.epochs, baseline=epochs or recipe.baseline, lr=lr or recipe.lr,
        batch_size=batch_size or recipe.batch_size,
    )  # fmt: skip


def _legend(
    data: DataSource, both: list[Dataset], name: str, asked: str | None, ignore: tuple[int, ...], notes: list[str]
) -> Legend:
    """What the values of the masks mean, of training and test; adds to the notes what is to be told of them."""
    train = both[0]
    if asked is None and name == SEMANTIC and hasattr(train, "renderable"):
        classes = "sky", "ground", *train.classes
        return Legend(classes, {**{place: place for place in range(len(classes))}, **dict.fromkeys(ignore, IGNORED)})
    found = find_legend(asked, data.name)
    if found is None:
        return legend_of_masks(both, name, ignore)
    if found.colours and ignore != NO_CLASS:
        raise UserError("ignore", f"{found.source} is of colours; name a colour void in it instead")
    numbers = () if found.colours else ignore
    for split, each in zip(("training", "test"), both, strict=False):
        notes += check_legend(each, name, found, numbers, split)
    return replace(found, values={**found.values, **dict.fromkeys(numbers, IGNORED)})


@dataclass(frozen=True, eq=False)
class Segmentation:
    """The data and the settings of a segmentation, from which encoders are trained."""

    train: Dataset
    test: Dataset
    legend: Legend
    decoder: str
    width: int
    scale: float
    recipe: Recipe

    def training(self, start: Start, *, frozen: bool) -> Training:
        """A training of a decoder on frozen encoders, or of all."""
        model, recipe, classes = start.model, self.recipe, len(self.legend.classes)
        more = {"width": self.width} if self.decoder == "unet" else {}
        make = partial(DECODERS[self.decoder], size=model.size, classes=classes, **more)
        network = seeded(lambda: Segmenter(named_encoders(model, self.train), make, frozen=frozen), start.seed)
        network.to(start.device)
        size = min(recipe.batch_size, len(self.train)) // world_size() * world_size()
        if not size:
            raise UserError("batch_size", f"{world_size()} processes need a batch of as many pictures, or more")
        train = self._loader(self.train, start, size, "probe-train", smallest=self.scale)
        test = self._loader(self.test, start, TEST_BATCH, "probe-test", resize=start.model.size)
        epochs = recipe.baseline if start.baseline and recipe.baseline is not None else recipe.epochs
        return Training(
            network, adam(network, lr=recipe.lr, betas=recipe.betas), epochs * len(train), len(train),
            batches=lambda epoch, begin: (batch.views() for batch in train.epoch(epoch, begin)),
            losses=lambda views: {"cross-entropy": pixel_loss(network(views), classes_of(views))},
            score=lambda: segmentation_scores(self._confusion(network, test), self.legend.classes),
            factor=lambda epoch: recipe.factor(epoch, epochs),
            write=lambda folder: self._write(network, test, folder),
            onnx=lambda path: self._export(network, test, path),
            remarks=lambda: [*unreadable(train, "training"), *unreadable(test, "test")],
            weight=lambda views: float((classes_of(views) != IGNORED).sum()),
        )  # fmt: skip

    def _loader(self, data: Dataset, start: Start, size: int, augmentation: str, **options: Any) -> Loader:
        views = pipeline(start.model, data, augmentation, **options)
        seen = only_modalities(
            data, [name for name in data.modalities if name in views.sources(data.modalities).values()]
        )
        learns = augmentation == "probe-train"
        return Loader(
            seen, views, min(size, len(seen)), seed=start.seed, shuffle=learns, drop_last=learns,
            workers=start.workers, device=start.device, max_unreadable=UNREADABLE,
            rank=rank() if learns else 0, world=world_size() if learns else 1,
        )  # fmt: skip

    @torch.no_grad()
    def _confusion(self, network: Segmenter, test: Loader) -> Tensor:
        """Pixels of the test pictures by class and prediction; a picture that cannot be read is left out."""
        classes, network = len(self.legend.classes), network.eval()
        counts = torch.zeros(classes, classes, dtype=torch.long)
        for number, views in enumerate(_each_once(test)):
            if number % world_size() == rank():
                counts += confusion(network(views).argmax(1), classes_of(views), classes)
        return sum_over_processes(counts)

    def _export(self, network: Segmenter, test: Loader, path: Path) -> None:
        views = next(iter(_each_once(test)))
        export_segmenter(network, [views[name][0][:2] for name in network.views], path)

    @torch.no_grad()
    def _write(self, network: Segmenter, test: Loader, folder: Path) -> None:
        """Writes what is predicted for the first test pictures, in the first view."""
        views = next(iter(_each_once(test)), None)
        if views is None:
            return
        seen = {name: [each[:SHOWN] for each in copies] for name, copies in views.items()}
        parts = (seen[network.views[0]][0], classes_of(seen), network.eval()(seen).argmax(1))
        samples = [Segmented(*each) for each in zip(*(part.cpu() for part in parts), strict=True)]
        save_mask_pictures(samples, self.legend.classes, folder / PICTURES)


def named_encoders(model: ModelSource, data: Dataset) -> dict[str, Encoder]:
    """Encoders by the names of their views in this data."""
    return {view or data.modalities[0]: encoder for view, encoder in model.encoders.items()}


def pipeline(model: ModelSource, data: Dataset, augmentation: str, **options: Any) -> ViewPipeline:
    """The views of a model's encoders, and the mask cut as they are."""
    of = {view: model.modality(view, data) for view in model.encoders}
    made = model.pipeline(data.modalities[0], augmentation, of=of, **options)
    views = {**(made.views or {}), MASK: View(MASK)}
    known = replace(made, modalities={**made.modalities, MASK: Modality(nearest=True)})
    return known.of(dict.fromkeys(views, 1), views=views)


def unreadable(loader: Loader, split: str) -> list[str]:
    """A line on the pictures that could not be read with their masks; none where all could."""
    some = [f"{loader.dataset.name(row)} ({why})" for row, why in list(loader.unreadable.items())[:NAMED]]
    count = len(loader.unreadable)
    more = ", ..." * (count > NAMED)
    return (
        [f"{split} pictures that cannot be read and are left out: {count:,}; {', '.join(some)}{more}"] if some else []
    )


def classes_of(views: Views) -> Tensor:
    """The masks (B, H, W) among the views, int64."""
    return views[MASK][0][:, 0].long()


def pixel_loss(scores: Tensor, right: Tensor) -> Tensor:
    """Cross-entropy, the mean over all pixels that are not ignored; 0 where all are."""
    if not bool((right != IGNORED).any()):
        return scores.sum() * 0
    return F.cross_entropy(scores, right, ignore_index=IGNORED)


def _each_once(loader: Loader) -> Iterator[Views]:
    """The views of the pictures that can be read, in order, without those that stand in for others."""
    start = 0
    for batch in loader.epoch(0):
        itself = batch.index.cpu() == torch.arange(start, start + len(batch))
        start += len(batch)
        if itself.any():
            yield {name: [copy[itself] for copy in copies] for name, copies in batch.views().items()}
