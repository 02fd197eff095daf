"""Surface normals from depth: a modality `normals` for data that has depth and no normals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data.dataset import Dataset, partial_sample, present
from manyview.data.selection import Subset, left_out, on_request, only_modalities
from manyview.data.statistics import NoData, holds_data, no_data_of

NORMALS, DEPTH = "normals", "depth"  # the latter is what the name of a depth begins with
FIELD_OF_VIEW = 60.0  # degrees from the left to the right edge of a picture, where nobody knows the camera

Camera = tuple[float, float, float, float]
"""Focal lengths fx, fy and principal point cx, cy of a pinhole camera, in pixels of the depth map."""


def normals_of(depth: Tensor, camera: Camera | None = None, nodata: float | None = None) -> Tensor:
    """Surface normals (3, H, W) of a depth map (1, H, W): x to the right, y down, z away from the camera.

    depth   along the optical axis, in any unit: normals do not depend on it
    camera  fx, fy, cx, cy; without, one that sees `FIELD_OF_VIEW` degrees in width and looks through the middle
    nodata  the value of pixels where nothing was seen; NaN and what is not above 0 always are

    The pixel (u, v) of depth z is the point P = ((u - cx) z / fx, (v - cy) z / fy, z). The normal is the cross product
    of its differences to the neighbours below and to the right, dP/dv x dP/du, of unit length, which faces the camera
    (n . P < 0): central differences, at an edge or beside a hole the one that there is. Where the depth is missing, or
    both neighbours in a direction, the normal is NaN.
    """
    _, height, width = depth.shape
    z = depth[0].to(torch.float32)
    z = torch.where(holds_data(z, nodata) & (z > 0), z, torch.nan)
    fx, fy, cx, cy = camera or usual_camera(height, width)
    u, v = torch.arange(width) - cx, torch.arange(height) - cy
    points = torch.stack([u[None, :] * z / fx, v[:, None] * z / fy, z])
    normal = torch.linalg.cross(_difference(points, 1), _difference(points, 2), dim=0)
    normal = normal / torch.linalg.vector_norm(normal, dim=0)
    normal = torch.where((normal * points).sum(0) > 0, -normal, normal)
    return torch.where(z.isnan(), torch.nan, normal)


def usual_camera(height: int, width: int) -> Camera:
    """A camera with square pixels that sees `FIELD_OF_VIEW` degrees in width, and looks through the middle."""
    focal = width / 2 / math.tan(math.radians(FIELD_OF_VIEW / 2))
    return focal, focal, (width - 1) / 2, (height - 1) / 2


def _difference(points: Tensor, axis: int) -> Tensor:
    """The change of points (3, H, W) from one pixel to the next: the mean of both sides, or the one that is there."""
    size, ends = points.shape[axis], torch.full_like(points.narrow(axis, 0, 1), torch.nan)
    steps = points.narrow(axis, 1, size - 1) - points.narrow(axis, 0, size - 1)
    after, before = torch.cat([steps, ends], axis), torch.cat([ends, steps], axis)
    both = (after + before) / 2
    return torch.where(both.isnan(), torch.where(after.isnan(), before, after), both)


class WithNormals:
    """A data set with the modality `normals` besides its own, derived from its depth when a sample is read.

    >>> rooms = WithNormals(Paired("rooms"), camera=(519.0, 519.0, 320.0, 240.0))
    """

    def __init__(self, dataset: Dataset, camera: Camera | None = None, nodata: NoData = None) -> None:
        self.dataset, self.depth = dataset, depth_of(dataset)
        self.camera: Camera | None = camera or getattr(_whole(dataset), "camera", None)
        if self.camera is not None and not min(self.camera[:2]) > 0:
            raise UserError("camera", f"expected focal lengths above 0, got {self.camera[0]:g} and {self.camera[1]:g}")
        self.nodata = no_data_of(nodata, self.depth)
        self.modalities = (*dataset.modalities, NORMALS)
        self.threads: bool = getattr(dataset, "threads", False)

    @property
    def ids(self) -> Tensor:
        return self.dataset.ids

    @property
    def labels(self) -> Tensor | None:
        return self.dataset.labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self.dataset.classes

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        return self.dataset.name(index)

    def __getitem__(self, index: int) -> Sample:
        return self.sample(index, self.modalities)

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities."""
        derived = NORMALS in modalities
        read = partial_sample(self.dataset, index, {*modalities, self.depth} if derived else modalities)
        kept = {name: image for name, image in read.modalities.items() if name in modalities}
        if derived and self.depth in read.modalities:
            kept[NORMALS] = normals_of(read.modalities[self.depth], self.camera, self.nodata)
        return replace(read, modalities=kept)

    def present(self, index: int) -> set[str]:
        there = present(self.dataset, index)
        return {*there, NORMALS} if self.depth in there else there

    @property
    def left_out(self) -> tuple[str, ...]:
        return left_out(self.dataset)

    def paths(self, index: int) -> dict[str, str]:
        """Where the files of a sample are; that of the depth for the normals as well."""
        files: dict[str, str] = getattr(self.dataset, "paths", lambda row: {})(index)
        return {**files, NORMALS: files[self.depth]} if self.depth in files else files


def open_with_normals(
    opened: Callable[[tuple[str, ...] | None], Dataset],
    modalities: tuple[str, ...],
    camera: Camera | None = None,
    nodata: NoData = None,
) -> Dataset:
    """Opens data with these modalities, of which `normals` are made of the depth where the data has none.

    opened  opens the data with some of its modalities, or all
    """
    own = opened(None)
    if NORMALS in own.modalities:
        return opened(modalities)
    stored = [name for name in modalities if name != NORMALS]
    if not set(stored) <= set(own.modalities):
        own = opened(tuple(dict.fromkeys([*stored, depth_of(own)])))
    return only_modalities(WithNormals(own, camera, nodata), modalities)


def requested(dataset: Dataset, views: Iterable[str]) -> tuple[str, ...]:
    """The modalities that views name and the data has on request alone, or for normals can be made of its depth."""
    there = (*on_request(dataset), NORMALS)
    return tuple(view for view in views if view in there and view not in dataset.modalities)


def camera_of(dataset: Dataset) -> str | None:
    """The camera by which a data set's normals are made, in words; None where they are its own."""
    dataset = _whole(dataset)
    if not isinstance(dataset, WithNormals):
        return None
    if dataset.camera is None:
        return f"a camera that sees {FIELD_OF_VIEW:g} degrees in width (--data.camera fx,fy,cx,cy gives yours)"
    return "a camera with fx {:g}, fy {:g}, cx {:g}, cy {:g}".format(*dataset.camera)


def _whole(dataset: Dataset) -> Dataset:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def depth_of(dataset: Dataset) -> str:
    """The modality that is a depth, by its name."""
    found = next((name for name in dataset.modalities if name.startswith(DEPTH)), None)
    if found is None:
        there = ", ".join(dataset.modalities)
        raise UserError("modalities", f"the data has no {NORMALS!r}, and no {DEPTH!r} to make them of; it has {there}")
    return found
