"""The data set that is always there: scenes of solids on a ground plane, rendered when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.parallel import parallel_map
from manyview.core.rng import key
from manyview.core.sample import Sample
from manyview.data.scenes.description import Description, describe
from manyview.data.scenes.render import EXACT, PICTURES, render
from manyview.data.scenes.shading import rays_per_pixel
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.stage import main_shape, stage

SPLITS = ("train", "val", "test")
MODALITIES = (*PICTURES, *EXACT)
TARGETS = tuple(each.name for each in fields(Description))
MIN_CHUNK = 64  # scenes for a thread, below which it is not worth while
RAYS = 2**19  # at a time: enough to keep the processor busy, few enough to bound the memory


class Scenes:
    """`count` scenes; the class is the shape of the main object.

    A scene is a function of seed, split and index alone: other counts, sizes and batches show the same one. Samples
    carry the label and those `targets` that are asked for by their names in `Description`.

    >>> Scenes(100, size=64)[7].modalities["image"].shape == (3, 64, 64)
    >>> Scenes(modalities=("rgb", "depth", "flow")).batch(torch.arange(256))["depth"].shape == (256, 1, 32, 32)
    >>> Scenes(targets=("caption", "boxes"))[7].targets["caption"]

    image, rgb  (3, H, W) uint8, the picture under either name
    rgb2        (3, H, W) uint8, a moment later: objects and camera have moved
    depth       (1, H, W) float32, distance from the camera along the ray, 20 in the sky
    normals     (3, H, W) float32, in the camera's axes right, down, forward; 0 in the sky
    semantic    (1, H, W) uint8, 0 sky, 1 ground, 2 + class
    instance    (1, H, W) uint8, 0 no object, 1 the main one, 2 to 4 the others
    flow        (2, H, W) float32, pixels to the right and down, from rgb to rgb2
    """

    classes = tuple(SHAPES)
    renderable = MODALITIES

    def __init__(
        self,
        count: int = 20000,
        *,
        size: int = 32,
        seed: int = 0,
        split: str = "train",
        modalities: Sequence[str] = ("image",),
        targets: Sequence[str] = (),
    ) -> None:
        if count < 1:
            raise UserError("count", f"expected at least 1 scene, got {count}")
        if size < 1:
            raise UserError("size", f"expected at least 1 pixel, got {size}")
        if split not in SPLITS:
            raise UserError("split", f"expected one of {', '.join(SPLITS)}, got {split!r}")
        _check_names("modalities", modalities, MODALITIES)
        _check_names("targets", targets, TARGETS)
        if not modalities:
            raise UserError("modalities", f"expected at least one of {', '.join(MODALITIES)}")
        self.size, self.split = size, split
        self.modalities, self._targets = tuple(modalities), tuple(targets)
        self._keys = key(seed, SPLITS.index(split), torch.arange(count))
        self.ids, self.labels = self._keys & (2**63 - 1), main_shape(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Sample:
        index = self._row(index)
        modalities = {name: images[0] for name, images in self.batch(torch.tensor([index])).items()}
        known = vars(self.describe(index)) if self._targets else {}
        targets = {"label": int(self.labels[index]), **{name: known[name] for name in self._targets}}
        return Sample(int(self.ids[index]), index, modalities, targets)

    def name(self, index: int) -> str:
        return f"{self.split}-{self._row(index):06d}"

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """The modalities of many scenes, (len(index), C, H, W) each."""
        if not len(index):
            return {name: images[:0] for name, images in self.batch(torch.tensor([0])).items()}
        keys = self._keys[index]
        chunks = keys.split(chunk_length(len(keys), self.size))
        parts = parallel_map(lambda part: render(stage(part), self.size, self.modalities), chunks)
        return {name: torch.cat([part[name] for part in parts]) for name in self.modalities}

    def describe(self, index: int) -> Description:
        """Caption, boxes and keypoints of one scene."""
        row = self._row(index)
        return describe(stage(self._keys[row : row + 1]), self.size)

    def _row(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index: {index} is not among the {len(self)} scenes; count= makes more")
        return index % len(self)


def chunk_length(count: int, size: int) -> int:
    """Scenes to render at a time: some for every thread, but no more than the memory bound."""
    share = -(-count // torch.get_num_threads())
    bound = RAYS // (len(rays_per_pixel(size)) * size**2)
    return max(1, min(bound, max(share, MIN_CHUNK)))


def _check_names(setting: str, names: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(names, str):
        raise UserError(setting, f"expected a sequence of names such as ({names!r},), got the text {names!r}")
    if set(names) - set(known) or len(set(names)) < len(names):
        raise UserError(setting, f"expected different names among {', '.join(known)}, got {tuple(names)}")
