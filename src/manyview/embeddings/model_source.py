"""Encoders by view with their preprocessing: what evaluation, embedding and transfer call a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn

from manyview import encoders
from manyview.core.errors import UserError
from manyview.core.text import digest
from manyview.data import Dataset
from manyview.data.selection import reference
from manyview.embeddings.checksums import heads_checksum, weights_checksum
from manyview.encoders import Encoder, Tower
from manyview.features.preprocess import EncoderInput
from manyview.training.load import untrained
from manyview.training.run import Run
from manyview.views import AUGMENTATIONS, PICTURE, VIEWS, Modality, ViewPipeline
from manyview.views.view import View, view_named

REFERENCE = ""  # stands for the data's reference view, whatever that is called
ALL = "all"  # the encoders of several views together


@dataclass(frozen=True, eq=False)
class ModelSource:
    """Encoders by view with their preprocessing, as `open_model` makes them.

    name        as the user named it
    encoders    by the view that each is for; `REFERENCE` stands for the data's first
    picture     the normalisation of a picture
    seed        of the random weights that `untrained` has
    run         the run that the encoders are from, if any
    trained     whether the weights are anything but random
    modalities  the normalisation of those views that need another than `picture`
    by_view     with an encoder per view, the sources that it was joined from
    inputs      what each encoder was given in training, where that is known
    heads       of a run with one encoder per view, behind which their embeddings can be compared
    """

    name: str
    encoders: Mapping[str, Encoder]
    picture: Modality = PICTURE
    seed: int = 0
    run: Run | None = None
    trained: bool = True
    modalities: Mapping[str, Modality] = field(default_factory=dict)
    by_view: Mapping[str, ModelSource] = field(default_factory=dict)
    inputs: Mapping[str, EncoderInput] = field(default_factory=dict)
    heads: Mapping[str, nn.Module] = field(default_factory=dict)

    @property
    def encoder(self) -> Encoder:
        """The only encoder, or the first."""
        return next(iter(self.encoders.values()))

    @property
    def size(self) -> int:
        """The size of the input pictures, in pixels."""
        return int(self.encoder.options["size"])

    @cached_property
    def checksums(self) -> dict[str, str]:
        """A check sum of each encoder by view, of its architecture and all weights."""
        return {view: weights_checksum(each) for view, each in self.encoders.items()}

    def only(self, view: str | None) -> ModelSource:
        """Returns a model of the one encoder that there is, or of the named view, with its head."""
        if view is None and len(self.encoders) == 1:
            return self
        if view is not None and list(self.encoders) == [REFERENCE]:  # of data that has several modalities
            known = self.inputs.get(REFERENCE)
            return replace(self, encoders={view: self.encoder}, inputs={} if known is None else {view: known})
        if view is None or view not in self.encoders:
            there = f"{self.name} has an encoder for {', '.join(self.encoders)}"
            raise UserError("view", f"{there}; give one of them{'' if view is None else f', got {view!r}'}")
        return replace(
            self.by_view.get(view, self),
            encoders={view: self.encoders[view]},
            inputs={name: each for name, each in self.inputs.items() if name == view},
            heads={name: each for name, each in self.heads.items() if name == view},
        )

    @property
    def checksum(self) -> str:
        """A check sum of all that a score depends on: networks, weights, size and normalisation."""
        more = [repr(sorted(self.inputs.items())), heads_checksum(self.heads)] if self.inputs or self.heads else []
        return digest([self.checksums, repr(self.picture), repr(sorted(self.modalities.items())), *more])

    def modality(self, view: str, data: Dataset) -> str:
        """Returns the modality of the data that an encoder's view is derived from.

        That of a derived view, such as L, is the one of training where the data has it, or else that of its colours.
        """
        known = self.inputs.get(view)
        if view in (REFERENCE, *VIEWS) and known is not None and known.view.modality in data.modalities:
            return known.view.modality
        return modality_of(view, data)

    def pipeline(
        self,
        reference: str,
        augmentation: str = "probe-test",
        *,
        view: str | None = None,
        of: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ViewPipeline:
        """Makes the pipeline for data whose first modality is `reference`, with one copy of each view.

        "probe-test" is the middle of a picture, "probe-train" a crop and a flip.

        view     of one encoder alone
        of       by view, the modality that it is derived from, where the data has another name for it (see `modality`)
        options  of the augmentation
        """
        views: dict[str, View] = {}
        modalities: dict[str, Modality] = {}
        for each in self.encoders if view is None else [view]:
            name, given = each or reference, self.inputs.get(each)
            usual = view_named(name, reference)
            source = (of or {}).get(each, usual.modality)
            views[name] = replace(usual if given is None else given.view, modality=source)
            known = self.modalities.get(name) if given is None else given.modality
            modalities |= {} if known is None else {source: known}
        copies = AUGMENTATIONS[augmentation](self.size, 1, **options).augmentations
        made = ViewPipeline(copies, modalities, picture=self.picture)
        return made.of(dict.fromkeys(views, 1), views=views)

    def untrained(self) -> ModelSource:
        """Returns the same networks as they were before training: a run's initial ones, or random ones by seed.

        The initial weights of a run need not be random: it may have been given some. An untrained model returns itself.
        """
        if not self.trained:
            return self
        by_view = {view: each.untrained() for view, each in self.by_view.items()}
        fresh, heads = {view: each.encoder for view, each in by_view.items()}, dict(self.heads)
        if not fresh:
            fresh, heads = self._first()
        name = f"{self.name}, untrained"
        return replace(self, name=name, encoders=fresh, run=None, trained=False, by_view=by_view, heads=heads)

    def _first(self) -> tuple[dict[str, Encoder], dict[str, nn.Module]]:
        """Returns encoders and heads as they were before any training."""
        if self.run is not None:
            towers = untrained(self.run).towers
            first = {view: towers.encoder(view if view in towers.query else None) for view in self.encoders}
            made = {view: encoders.merged(each) for view, each in first.items()}
            return made, {view: cast(Tower, towers.query[view]).head.eval() for view in self.heads}
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return {name: encoders.create(each.name, **each.options) for name, each in self.encoders.items()}, {}


def modality_of(view: str, data: Dataset) -> str:
    """Returns the modality of the data that a view is derived from by its name: colours come from its pictures."""
    return reference(data) if view in VIEWS else view or data.modalities[0]
