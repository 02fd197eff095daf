"""The batches of a run: how many an epoch has, and whether its method can be trained on them."""

from __future__ import annotations

from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.data import Dataset
from manyview.data.epoch import Epoch
from manyview.data.factory import has_classes
from manyview.encoders.layers import groups_here
from manyview.methods import Method

LEAST_IMAGES = 8  # the smallest batch that is chosen where nobody gives one


def epoch_of(config: Config, images: int) -> Epoch:
    """Computes the epoch of so many training images.

    A last batch of a single image is always left out, because it has nothing to be contrasted with.
    """
    return Epoch(images, config.batch_size, config.drop_last or images % config.batch_size == 1)


def check_images(images: int) -> None:
    """Refuses so few training images that a batch has hardly any negatives."""
    if images < LEAST_IMAGES:
        have = "1 training image is" if images == 1 else f"{images} training images are"
        why = "an image learns by differing from the others of its batch"
        raise UserError("data", f"{have} too few: {why}; give {LEAST_IMAGES} at least, better hundreds")


def check_groups(method: Method, config: Config, world: int = 1, images: int = 0) -> None:
    """Refuses batches that split batch norm cannot divide evenly, and groups that processes cannot share."""
    splits, part = method.towers.bn_splits, config.micro_batch or 0
    try:
        here = groups_here(splits, world)
    except UserError as error:
        raise error.within("method") from None
    of_processes = f" of {world} processes" * (world > 1)
    for name, size, groups in (("batch_size", config.batch_size, splits), ("micro_batch", part, here)):
        if size % groups:
            said = f"{name} {size}{of_processes} does not fall into {groups} equal groups"
            raise UserError("method.bn_splits", f"{said}; give a divisor")
    last = epoch_of(config, images).seen % config.batch_size
    if last % splits:
        said = f"the {last} images{of_processes} of an epoch's last batch do not fall into {splits} equal groups"
        raise UserError("method.bn_splits", f"{said}; give --drop-last true, or another --batch-size")


def check_labels(method: Method, train: Dataset) -> None:
    """Refuses data without classes for a method that needs them."""
    if any(term.takes_labels for term in method.terms) and not has_classes(train):
        needed = "the method learns from labels, and the data has none, or one class only"
        raise UserError("data", f"{needed}; give images in a folder a class, or a method without labels such as simclr")
