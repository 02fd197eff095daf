"""Detection, instance masks and keypoints: R-CNNs on top of an encoder, trained as a whole."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from manyview.core.atomic import atomic_write
from manyview.core.bounds import AtLeast, AtMost, OptionalCount, OptionalPositive
from manyview.core.distributed import join_lists, rank, world_size
from manyview.core.errors import UserError
from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.open_model import open_model
from manyview.encoders import Encoder
from manyview.encoders.layers import batch_norms
from manyview.transfer.average_precision import as_entries, average_precision
from manyview.transfer.detection_batches import THREADS, DetectionBatch, DetectionBatches, on_device
from manyview.transfer.detection_pictures import save_pictures
from manyview.transfer.detection_recipes import RECIPES, DetectionRecipe, chosen_recipe
from manyview.transfer.detector_export import torchvision_code
from manyview.transfer.fit import MODEL, Training
from manyview.transfer.object_data import SCENES, open_objects
from manyview.transfer.objects import Entry, Kind, ObjectImages
from manyview.transfer.onnx_export import export_detector
from manyview.transfer.prepared import DataSource, Prepared, Start
from manyview.transfer.rcnn import DetectorShape, check_neck, detector, precise_statistics
from manyview.transfer.records import PICTURES
from manyview.transfer.voc_precision import voc_average_precision
from manyview.views import Modality

Recipe = Annotated[str, f"how it is trained: {', '.join(RECIPES)}"]
Steps = Annotated[OptionalCount, "instead of the recipe's, whose schedule becomes as much shorter or longer"]
Rate = Annotated[OptionalPositive, "the learning rate, instead of the recipe's"]
BatchSize = Annotated[OptionalCount, "images a step, instead of the recipe's"]
Side = Annotated[int | None, AtLeast(32), AtMost(4096), "an image's shorter side in pixels, instead of the recipe's"]
WORDS = {"boxes": "box", "masks": "mask", "keypoints": "keypoint"}
PREDICTIONS, LOADING = "predictions.json", "load_with_torchvision.py"
SCENE_OPTIONS = ("count", "size", "seed")


def _task(kind: Kind, about: str) -> Callable[..., Prepared]:
    """The task of finding one kind of thing; all have the same settings."""

    def prepare(
        data: DataSource,
        *,
        recipe: Recipe = "small",
        steps: Steps = None,
        lr: Rate = None,
        batch_size: BatchSize = None,
        side: Side = None,
    ) -> Prepared:
        chosen = chosen_recipe(recipe, kind, steps=steps, lr=lr, batch_size=batch_size, side=side)
        return _prepared(data, kind, chosen)

    prepare.__doc__ = about
    return prepare


detect = _task(
    "boxes",
    "Boxes: COCO's AP, AP50 and AP75 of a Faster R-CNN that is trained on top of the encoder, together with it.",
)
instances = _task("masks", "Boxes and masks: the AP of a Mask R-CNN, with the settings of `detect`.")
keypoints = _task("keypoints", "Boxes and keypoints: the AP of a Keypoint R-CNN, with the settings of `detect`.")


def _prepared(data: DataSource, kind: Kind, recipe: DetectionRecipe) -> Prepared:
    options = {name: each for name, each in data.options.items() if data.name == SCENES and name in SCENE_OPTIONS}
    for name in data.options:
        if name not in options and name not in data.inherited:
            line = f"of images with objects, {SCENES} alone has options: {', '.join(SCENE_OPTIONS)}; leave it out"
            raise UserError(f"data.{name}", line)
    check_neck(kind, recipe)
    train, test = open_objects(data.name, kind, **options)
    learnt = train.subset(train.rows_with_objects())
    if not len(learnt):
        raise UserError("data", f"no training image of {data.name} has {kind} to learn from")
    made = DetectionTask(kind, recipe, learnt, test)
    return Prepared(
        data.name, learnt, test, train.classes, made.training, made.supervised, held_out=test.held_out,
        notes=(*train.told, *test.told),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class DetectionTask:
    """A detector's recipe, the images that it is trained on, and those that it is scored on."""

    kind: Kind
    recipe: DetectionRecipe
    train: ObjectImages
    test: ObjectImages

    def training(self, start: Start) -> Training:
        """The training of a detector on a copy of the encoder."""
        encoder, shape = _encoder(start.model), self._shape(start.model)
        with torch.random.fork_rng():
            torch.manual_seed(start.seed)
            model = detector(encoder, shape).to(start.device)
        recipe, device = self.recipe, start.device
        if min(recipe.batch_size, len(self.train)) < world_size():
            raise UserError("batch_size", f"{world_size()} processes need a batch of as many images, or more")
        threads = THREADS if start.workers is None else start.workers
        batches = DetectionBatches(self.train, min(recipe.batch_size, len(self.train)), start.seed, threads)

        def losses(batch: DetectionBatch) -> Mapping[str, Tensor]:
            found: dict[str, Tensor] = model(*on_device(batch, device))
            return found

        entries: list[Entry] = []

        def score() -> dict[str, float]:
            if recipe.precise:
                with torch.random.fork_rng():
                    torch.manual_seed(start.seed)
                    precise_statistics(model, _some(batches, recipe.precise, device))
            entries[:] = predicted(model, self.test, device)
            return self._scores(entries)

        def write(folder: Path) -> None:
            self._write(folder, entries, torchvision_code(encoder, shape, self.train.classes, MODEL))

        return Training(
            model, optimizer_of(model, recipe), recipe.steps, batches.per_epoch, batches, losses, score,
            factor=lambda epochs: rate(recipe, round(epochs * batches.per_epoch)), clip=recipe.clip, write=write,
            weight=lambda batch: float(len(batch[0])),
            onnx=lambda path: export_detector(model, self.kind, self.test.read(0).float().div(255), path),
        )  # fmt: skip

    def supervised(self, start: Start) -> Training:
        """The same from the published weights of the network, which its library trained with labels."""
        given = next(iter(start.model.encoders.values()))
        options = {name: given.options[name] for name in ("size", "stem")}
        return self.training(replace(start, model=open_model(given.name, pretrained=True, **options)))

    def _write(self, folder: Path, entries: list[Entry], code: str | None) -> None:
        """Writes what was found in the test images, as COCO's servers take it, some pictures, and how to load it."""
        with atomic_write(folder / PREDICTIONS) as draft:
            draft.write_text(json.dumps(entries))
        save_pictures(self.test, entries, folder / PICTURES)
        if code is not None:
            with atomic_write(folder / LOADING) as draft:
                draft.write_text(code)

    def _scores(self, entries: list[Entry]) -> dict[str, float]:
        """The AP of what was asked for first, then that of boxes."""
        kinds: list[Kind] = [self.kind] if self.kind == "boxes" else [self.kind, "boxes"]
        found = {kind: average_precision(self.test, entries, kind) for kind in kinds}
        if self.test.voc:
            found["boxes"] |= voc_average_precision(self.test, entries)
        return {f"{WORDS[kind]} {name}": value for kind in kinds for name, value in found[kind].items()}

    def _shape(self, model: ModelSource) -> DetectorShape:
        picture = _picture(model)
        mean, std = (tuple(each * (3 // len(each))) for each in (picture.mean, picture.std))
        return DetectorShape(self.kind, len(self.train.classes), len(self.train.keypoints), mean, std, self.recipe)


def optimizer_of(model: nn.Module, recipe: DetectionRecipe) -> torch.optim.Optimizer:
    """SGD without decay of batch norms, as detectron2 has it."""
    norms = {id(each) for part in batch_norms(model) for each in part.parameters()}
    groups: list[dict[str, Any]] = [
        {"params": [each for each in model.parameters() if id(each) not in norms]},
        {"params": [each for each in model.parameters() if id(each) in norms], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def rate(recipe: DetectionRecipe, step: int) -> float:
    """What the learning rate is multiplied with at a step: a linear start, then a tenth after each milestone."""
    warm = 1.0 if step >= recipe.warmup else 0.001 + 0.999 * step / recipe.warmup
    return warm * 0.1 ** sum(step >= milestone for milestone in recipe.milestones)


@torch.no_grad()
def predicted(model: nn.Module, data: ObjectImages, device: torch.device) -> list[Entry]:
    """What a detector finds in images, one by one, in COCO's form; of several processes each looks at some of them."""
    model.eval()
    own: list[tuple[int, list[Entry]]] = []
    for row in range(rank(), len(data), world_size()):
        image = data.read(row).to(device).float().div(255)
        found = {name: each.cpu() for name, each in model([image])[0].items()}
        own.append((row, as_entries(data, row, found)))
    return [entry for _, entries in sorted(join_lists(own), key=lambda each: each[0]) for entry in entries]


def _some(batches: DetectionBatches, count: int, device: torch.device) -> Iterator[DetectionBatch]:
    """The first batches of a training, from as many epochs as it takes."""
    for number in range(-(-count // batches.per_epoch)):
        for batch in islice(batches(number), count - number * batches.per_epoch):
            yield on_device(batch, device)


def _encoder(model: ModelSource) -> Encoder:
    """A copy of the only encoder, which must see pictures."""
    _picture(model)
    return copy.deepcopy(model.encoder)


def _picture(model: ModelSource) -> Modality:
    """How an encoder's pictures are normalised; refuses one that sees something else."""
    known = next(iter(model.inputs.values()), None)
    is_picture = known is None or (known.is_picture and known.view.space is None)
    if model.encoder.options["channels"] != 3 or not is_picture:
        raise UserError(
            "encoder", f"{model.name} does not see RGB pictures, which detectors are given; use one that does"
        )
    return model.picture if known is None else known.modality
