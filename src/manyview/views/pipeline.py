"""A view pipeline turns the modalities of samples into views: a whole batch at once, or one sample in a worker.

What is drawn for a picture depends on (seed, epoch, id) and on the number of the copy, never on who asks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.memory import new_memory
from manyview.core.parallel import parallel_map, scratch
from manyview.core.rng import key, uniform
from manyview.core.sample import Views
from manyview.views.augmentation import (
    GEOMETRY,
    PHOTOMETRY,
    Array,
    Augmentation,
    AugmentationParams,
    draw,
    draw_unplaced,
)
from manyview.views.colour import coloured
from manyview.views.jigsaw import cut_patches, jigsaw_of, shape_of
from manyview.views.normalise import is_plain, normalise, to_normalise
from manyview.views.plan import Drawn, Plan
from manyview.views.resample import PRODUCT_SIDE, crops
from manyview.views.view import PICTURE, Modality, View, checked, usual, view_named

PART_PIXELS = 1 << 18  # pixels worked on at a time, by one core: enough that starting the operations costs little

Geometry = Literal["shared", "own"]


class Cut(NamedTuple):
    """A modality that is cropped and coloured once for all views that are taken of it."""

    modality: str
    views: dict[str, View]
    copies: int


@dataclass(frozen=True, eq=False)
class ViewPipeline:
    """One augmentation for each copy, what is known of the modalities, and which views are made of them.

    >>> pipeline = ViewPipeline([Augmentation(32, scale=(0.2, 1.0))] * 2)
    >>> first, second = pipeline({"image": images}, ids, epoch=3)["image"]    # images (n, 3, H, W) uint8
    >>> [L], [ab] = pipeline.of({"L": 1, "ab": 1})({"image": images}, ids).values()

    augmentations  copy k of every view is made with augmentation k
    modalities     what is known of some; the others are what they are called and look like (`modality.usual`)
    picture        what pictures of three channels are, where nobody says
    views          by name; None: every modality is a view
    copies         of each view; as many as there are augmentations where it is not named
    geometry       "shared": copy k of all views of a sample has one crop and flip; "own": each view draws its own
    holes          views are NaN where there is no data, for who predicts them; else the mean stands there

    The first modality is the reference: crops are drawn on its size and scaled to that of the others. Views do not
    depend, to the bit, on the batch that a picture is in.
    """

    augmentations: Sequence[Augmentation]
    modalities: Mapping[str, Modality] = field(default_factory=dict)
    picture: Modality = field(default=PICTURE, kw_only=True)
    views: Mapping[str, View] | None = field(default=None, kw_only=True)
    copies: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    geometry: Geometry = field(default="shared", kw_only=True)
    holes: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        made = self.augmentations if isinstance(self.augmentations, Sequence) else ()
        if not made or not all(isinstance(each, Augmentation) for each in made):
            raise UserError("augmentations", "give a list of Augmentation, one for each copy, and at least one")
        for name, count in self.copies.items():
            if not 1 <= count <= len(made):
                raise UserError("copies", f"{count} of view {name!r} with {len(made)} augmentations: give one for each")
        if self.geometry not in get_args(Geometry):
            raise UserError("geometry", f"{self.geometry!r}: give one of {', '.join(get_args(Geometry))}")
        object.__setattr__(self, "augmentations", tuple(made))

    def __len__(self) -> int:
        """The number of augmentations, which is the most copies that a view can have."""
        return len(self.augmentations)

    def of(
        self,
        copies: Mapping[str, int],
        *,
        views: Mapping[str, View] | None = None,
        reference: str = "image",
        geometry: Geometry = "shared",
        jigsaw: bool = False,
    ) -> ViewPipeline:
        """Makes a pipeline with the same augmentations for these views, so many copies of each.

        A name means what `views` says, else what `VIEWS` has of the `reference` modality, else a modality. With
        `jigsaw` all views have one copy more than the most that one has: the last, which is cut into patches.
        """
        named = {name: (views or {}).get(name) or view_named(name, reference) for name in copies}
        made, counts = self.augmentations, dict(copies)
        if jigsaw:
            most = max(copies.values())
            made, counts = [*made[:most], jigsaw_of(made[0])], dict.fromkeys(copies, most + 1)
        return replace(self, augmentations=made, views=named, copies=counts, geometry=geometry)

    def sources(self, modalities: Iterable[str]) -> dict[str, str]:
        """The modality of each view that is made of data with these modalities."""
        modalities = tuple(modalities)
        unknown = set(self.modalities) - set(modalities)
        if unknown:
            raise UserError("modalities", f"the data has no {sorted(unknown)}; it has {', '.join(modalities)}")
        found = {name: view.modality for name, view in self._views(modalities).items()}
        for name, modality in found.items():
            if modality not in modalities:
                raise UserError(
                    "views", f"{name!r} is made of {modality!r}, which the data lacks; it has {', '.join(modalities)}"
                )
        return found

    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int = 0, epoch: int = 0) -> Views:
        """Makes all views of a batch of modalities (n, C, H, W), on their device, float32."""
        cuts = self._cuts(raw)
        size = self._reference(raw).shape[2:]
        for name, images in raw.items():
            if len(images) != len(ids):
                raise UserError(None, f"modality {name!r} has {len(images)} pictures for {len(ids)} ids: give as many")

        def cut(name: str, number: int, rows: slice, modality: Modality) -> tuple[Tensor, AugmentationParams]:
            params = self.params(name, ids[rows], number, seed, epoch, size)
            images = raw[cuts[name].modality][rows]
            return crops(images, self.augmentations[number], params, size, modality, holes=self.holes), params

        sources = {name: [raw[cut.modality]] * cut.copies for name, cut in cuts.items()}
        return self._develop(sources, cuts, cut, partial(self._geometry, ids=ids, seed=seed, epoch=epoch))

    def plan(
        self, modalities: Iterable[str], ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = True
    ) -> Plan:
        """Draws for the samples of a batch before their pictures are known; a worker then prepares one by one.

        Without `colour` they are only cropped, and `finish` does the rest, on a GPU for instance.
        """
        modalities = tuple(modalities)
        cuts = self._cuts(modalities)
        drawn = {name: self._drawn(name, cut.copies, ids, seed, epoch) for name, cut in cuts.items()}
        sources = {name: cut.modality for name, cut in cuts.items()}
        reference = next((name for name in modalities if name in sources.values()), "")
        return Plan(self.modality, reference, sources, drawn, colour, self.holes)

    def prepare(
        self, raw: Mapping[str, Tensor], id: int, *, seed: int = 0, epoch: int = 0, colour: bool = True
    ) -> Views:
        """Makes of one sample's modalities (C, H, W) what a worker hands on: see `Plan.prepare`."""
        return self.plan(raw, torch.tensor([id]), seed=seed, epoch=epoch, colour=colour).prepare(0, raw)

    def finish(self, prepared: Views, ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = False) -> Views:
        """Makes what the network sees of batches of what `prepare` gave; `colour` if that is still to be done."""
        cuts = self._cuts(prepared)

        def take(name: str, number: int, rows: slice, modality: Modality) -> tuple[Tensor, AugmentationParams | None]:
            crops = prepared[name][number][rows]
            late = colour and modality.colour
            if not late and is_plain(cuts[name].views):
                return crops.transpose(0, 1), None
            n, channels, height, width = crops.shape
            planes = scratch("b", channels, n, height, width, device=crops.device).copy_(crops.transpose(0, 1))
            planes.mul_(modality.unit(crops))
            return planes, self.params(name, ids[rows], number, seed, epoch, crops.shape[2:]) if late else None

        return self._develop(prepared, cuts, take, partial(self._geometry, ids=ids, seed=seed, epoch=epoch))

    def at_once(self, images: Tensor) -> bool:
        """Tells whether a batch of such pictures is better made at once than one by one in workers."""
        return images.device.type != "cpu" or max(images.shape[2:]) <= PRODUCT_SIDE

    def modality(self, name: str, image: Tensor) -> Modality:
        """What is known of a modality (..., C, H, W), by what was given or by its name and kind."""
        return checked(name, self.modalities.get(name) or usual(name, image, self.picture), image)

    def params(
        self, name: str, ids: Tensor, number: int, seed: int, epoch: int, size: Sequence[int]
    ) -> AugmentationParams:
        """Draws what one augmentation does to many pictures; modalities differ in colour only.

        `name` is that of the modality, or of the view if views have their own geometry.
        """
        return draw(self.augmentations[number], *self._numbers(name, ids, number, seed, epoch), *size)

    def _drawn(self, name: str, copies: int, ids: Tensor, seed: int, epoch: int) -> list[Drawn]:
        numbers = [self._numbers(name, ids, number, seed, epoch) for number in range(copies)]
        return [Drawn(a, g, draw_unplaced(a, g, p)) for a, (g, p) in zip(self.augmentations, numbers, strict=False)]

    def _numbers(self, name: str, ids: Tensor, number: int, seed: int, epoch: int) -> tuple[Array, Array]:
        """The numbers in [0, 1) that geometry and colour of a copy are drawn from."""
        geometry = self._geometry(name, number, ids=ids, seed=seed, epoch=epoch)
        own = key(geometry, zlib.crc32(name.encode()))
        if self.augmentations[0].offset is not None:  # all copies lie about one place, that of the first
            geometry = self._geometry(name, 0, ids=ids, seed=seed, epoch=epoch)
        return uniform(geometry, GEOMETRY).numpy(), uniform(own, PHOTOMETRY).numpy()

    def _geometry(self, name: str, number: int, *, ids: Tensor, seed: int, epoch: int) -> Tensor:
        """The keys that crops, flips and patches are drawn from."""
        shared = key(seed, epoch, ids.cpu(), number)
        return shared if self.geometry == "shared" else key(shared, zlib.crc32(name.encode()))

    def _views(self, modalities: Iterable[str]) -> Mapping[str, View]:
        return {name: View(name) for name in modalities} if self.views is None else self.views

    def _count(self, view: str) -> int:
        return self.copies.get(view, len(self))

    def _cuts(self, modalities: Iterable[str]) -> dict[str, Cut]:
        """What is cropped and coloured: each modality once, or with `own` geometry once for each view."""
        found: dict[str, Cut] = {}
        for name, view in self._views(modalities).items():
            of = name if self.geometry == "own" else view.modality
            views, copies = found[of][1:] if of in found else ({}, 0)
            found[of] = Cut(view.modality, {**views, name: view}, max(copies, self._count(name)))
        return found

    def _reference(self, raw: Mapping[str, Tensor]) -> Tensor:
        """The first modality that a view is made of."""
        used = {view.modality for view in self._views(raw).values()}
        image = next(image for name, image in raw.items() if name in used)
        for each in self.augmentations:
            each.check_picture(*image.shape[-2:])
        return image

    def _develop(
        self,
        sources: Mapping[str, Sequence[Tensor]],
        cuts: Mapping[str, Cut],
        planes_of: Planes,
        keys_of: Callable[[str, int], Tensor],
    ) -> Views:
        """Makes (n, C, size, size) of every view and copy as the network sees it, a few pictures at a time."""
        like = {view: sources[name] for name, cut in cuts.items() for view in cut.views}
        made: Views = {
            name: [
                new_memory(shape_of(a, len(x), view.width(x.shape[1])), device=x.device)
                for x, a in zip(like[name], self.augmentations[: self._count(name)], strict=False)
            ]
            for name, view in self._views(sources).items()
        }

        def develop(name: str, number: int, rows: slice) -> None:
            modality = self.modality(cuts[name].modality, sources[name][number])
            planes, params = planes_of(name, number, rows, modality)
            augmentation = self.augmentations[number]
            if params is not None and modality.colour:
                planes = coloured(planes, augmentation, params)
            views = {view: about for view, about in cuts[name].views.items() if number < len(made[view])}
            for view, own, scale, shift in to_normalise(planes, views, modality):
                out = made[view][number][rows]
                if augmentation.patch is None:
                    normalise(own, scale, shift, out.transpose(0, 1))
                else:
                    whole = normalise(own, scale, shift, torch.empty(own.shape, device=own.device))
                    out.copy_(cut_patches(whole, augmentation, keys_of(name, number)[rows]))

        jobs = [
            partial(develop, name, number, rows)
            for name, copies in sources.items()
            for number, source in enumerate(copies)
            for rows in _parts(source, self.augmentations[number].size)
        ]
        little = sum(copy.numel() for copies in made.values() for copy in copies) <= 3 * PART_PIXELS
        parallel_map(lambda some: [job() for job in some], [jobs] if little else [[job] for job in jobs])
        return made


Planes = Callable[[str, int, slice, Modality], tuple[Tensor, AugmentationParams | None]]
"""Cut, copy, rows -> crops (C, len(rows), size, size), float32, pictures in [0, 1], or in 8 bits if all that is left
to do is to normalise them; the numbers that colour them."""


def _parts(source: Tensor, size: int) -> list[slice]:
    """Runs of rows that are worked on at a time; all at once on a GPU."""
    n, pixels = len(source), max(size**2, source.shape[2] * source.shape[3])
    rows = max(1, PART_PIXELS // pixels) if source.device.type == "cpu" else max(1, n)
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]
