"""The embeddings of some images by a run's encoder, or the reason why they cannot be computed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.parallel import resolve_device
from manyview.core.text import reason
from manyview.data import Dataset
from manyview.diagnose import Nearest, Spread, flat_map, nearest, spread
from manyview.embeddings import run_epochs, view_embeddings
from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.model_spread import model_spread
from manyview.embeddings.open_model import open_model
from manyview.embeddings.view_embeddings import Snapshot
from manyview.features.embedding_pass import embedding, features, forward
from manyview.methods import Contrast, Method
from manyview.report.cross_view import CrossView, embed_samples
from manyview.report.images import MAX_BYTES, PageImages, choose_images, open_images, source_of
from manyview.report.run_record import RunRecord
from manyview.report.view_samples import ViewSamples, choose_samples
from manyview.training.run_data import RunData

NEIGHBOURS = 8  # that are shown of an image
MIN_IMAGES, MAX_IMAGES = 48, 5000  # the least however slow the encoder, the most of all maps of a page
AUGMENTED = 32  # copies of an image, as in JCL's Fig. 3
CONTRASTED = 5  # copies of an image: a query and four positives, as in CACR's Fig. 6
SNAPSHOTS = 4  # of a run that are shown: the untrained, the last, and two between
MAX_RUNS = 4  # whose images are shown; more would be neither distinguished nor loaded
PASSES = 4  # from which the time of one image is measured
MAX_SAMPLES = 512  # of several views, that are searched across them


@dataclass(frozen=True)
class TimeBudget:
    """About how many seconds embedding the images of one run may take, and the time per image.

    lacking  is called with the seconds that would have been enough for what is left out
    """

    seconds: float
    per_image: float
    lacking: Callable[[float], object] = lambda seconds: None

    def images(self, share: float, copies: int, *, least: int, most: int) -> int:
        """Computes for how many images a share of the time suffices; a power of two, so that reports are alike."""
        allowed = share * self.seconds / (copies * self.per_image)
        if allowed < least:
            needed = math.ceil(least * copies * self.per_image / share)
            self.lacking(needed)
            raise UserError(
                None,
                f"embedding an image takes {1000 * self.per_image:.0f} ms here: {least * copies} augmented views would "
                f"take more than their share of {self.seconds:.0f} s; `manyview report --seconds {needed}` shows it",
            )
        count = least
        while count * 2 <= min(allowed, most):
            count *= 2
        return count


@dataclass(frozen=True, eq=False)
class RunEmbeddings:
    """Some images and their embeddings by a run's encoder, each computed when it is first needed.

    Of a run with several views the images are shown in the first that has an encoder; `samples` has all of them.

    source         the trained encoders
    data           of the run
    sheet          the number of the thumbnails' sheet on the page
    own            the data set of a run on data that the caller passed
    spread_images  training images whose augmented copies are compared; None: as many of those shown as time allows
    """

    record: RunRecord
    source: ModelSource
    images: PageImages
    budget: TimeBudget
    data: RunData
    sheet: int = 0
    own: Dataset | None = None
    spread_images: int | None = None

    @cached_property
    def features(self) -> Tensor:
        """The features (n, d) of the whole pictures."""
        return self._features(self.source)

    @cached_property
    def untrained_features(self) -> Tensor:
        return self._features(self.untrained)

    @cached_property
    def untrained(self) -> ModelSource:
        return self.source.untrained()

    @cached_property
    def neighbours(self) -> Nearest:
        return nearest(self.features, min(NEIGHBOURS, len(self.features) - 1))

    @cached_property
    def positions(self) -> Tensor:
        """The positions on the map, (n, 2) between -1 and 1."""
        return flat_map(self.features)

    @cached_property
    def spread(self) -> Spread:
        return self._spread(self.source)

    @cached_property
    def untrained_spread(self) -> Spread:
        return self._spread(replace(self.untrained, run=self.source.run))  # augmented as the run augments

    @cached_property
    def snapshots(self) -> list[Snapshot]:
        """The run before training, at its snapshots and at its end, embedded through encoder and head."""
        run = self.record.run
        count = self.budget.images(0.3, len(run_epochs.epochs(run)) * (CONTRASTED + 2), least=16, most=128)
        options: dict[str, Any] = {"own": self.own, "device": resolve_device(), "workers": 0}
        return list(view_embeddings.snapshots(run, images=count, copies=CONTRASTED, **options))

    @property
    def few_snapshots(self) -> list[Snapshot]:
        """The first snapshot, the last, and a few between them."""
        last = len(self.snapshots) - 1
        rows = dict.fromkeys(round(number * last / (SNAPSHOTS - 1)) for number in range(SNAPSHOTS))
        return [self.snapshots[row] for row in rows]

    @property
    def views(self) -> list[str]:
        return list(self.data.views)

    @property
    def view(self) -> str:
        """The view that the images are shown in."""
        return shown_view(self.source, self.data)

    @cached_property
    def samples(self) -> ViewSamples:
        """Some samples in all views of the run."""
        count = self.budget.images(0.3, len(self.views), least=16, most=MAX_SAMPLES)
        return choose_samples(self.record.config, self.data, count)

    @cached_property
    def across(self) -> CrossView:
        """The embeddings of samples in the views that are contrasted with one another."""
        return embed_samples(self.method, self.samples)

    @cached_property
    def method(self) -> Method:
        return run_epochs.method_of(self.record.run)

    @property
    def contrasts(self) -> bool:
        """Whether the method contrasts embeddings; a prediction does not, and has neither negatives nor a coupling."""
        return any(isinstance(term, Contrast) for term in self.method.terms)

    def loss_option(self, name: str, default: float) -> float:
        """Asks the run's terms for an argument of their loss, such as the temperature; the default if none has it."""
        values = (term.option(name) for term in self.method.terms)
        return float(next((value for value in values if value is not None), default))

    def _features(self, source: ModelSource) -> Tensor:
        encoder, view, data = source.encoder.to(resolve_device()), next(iter(source.encoders)), self.images.dataset
        pipeline = self.source.pipeline(data.modalities[0], view=view, of={view: self.source.modality(view, data)})
        return features(encoder, data, pipeline, device=resolve_device(), workers=0)[0]

    def _spread(self, source: ModelSource) -> Spread:
        if self.spread_images is not None:
            train, device = self.data.train, resolve_device()
            return model_spread(source, train, images=self.spread_images, copies=AUGMENTED, device=device, shown=True)
        count = self.budget.images(0.3, 2 * AUGMENTED, least=8, most=128)
        copies = view_embeddings.embed_model(source, self.images.dataset, images=count, copies=AUGMENTED, workers=0)
        return spread(copies.vectors)


@dataclass(frozen=True, eq=False)
class EmbeddedRuns:
    """The embeddings of the runs of a page, and by name the reasons why other runs have none."""

    shown: list[RunEmbeddings] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def which_view(self) -> str:
        """A sentence that says which view is shown of runs that have several."""
        shown = list(dict.fromkeys(each.view for each in self.shown if len(each.views) > 1))
        return f" Of several views it is {' or '.join(shown)}." if shown else ""

    @property
    def data(self) -> dict[int, RunData]:
        """The data of the runs by their colour number."""
        return {each.record.colour: each.data for each in self.shown}

    @property
    def sheets(self) -> dict[int, PageImages]:
        """The images by the number of their sheet of thumbnails."""
        return {each.sheet: each.images for each in self.shown}


def embed_runs(
    records: Sequence[RunRecord],
    images: int,
    seconds: float,
    own: Dataset | None,
    spread_images: int | None = None,
    lacking: Callable[[float], object] = lambda seconds: None,
) -> EmbeddedRuns:
    """Embeds images of the first few runs, one per colour; runs on the same data share images and thumbnails.

    lacking  is called with the seconds that figures would need for which there is too little time
    """
    found = EmbeddedRuns()
    sources: dict[RunRecord, ModelSource] = {}
    for record in [each for each in records if each.first][:MAX_RUNS]:
        try:
            sources[record] = open_model(record.run)
        except Exception as error:  # a page without pictures is better than none, whatever they lack
            found.missing[record.name] = reason(error)
    slowest = max(map(_seconds_per_image, sources.values()), default=1.0)  # so that all are shown the same images
    budget, runs = TimeBudget(seconds, slowest, lacking), max(1, len(sources))
    count = min(images, MAX_IMAGES // runs)
    timely = max(MIN_IMAGES, int(0.2 * seconds / (2 * slowest)))
    sheets: list[tuple[RunData, str, PageImages]] = []
    for record, source in sources.items():
        try:
            data = open_images(record.config, own)
            modality = data.views[shown_view(source, data)].modality
            alike = [shown == modality and _same(other, data) for other, shown, _ in sheets]
            sheet = alike.index(True) if True in alike else len(sheets)
            if sheet == len(sheets):
                most = MAX_BYTES // runs
                scored = record.config.knn_queries if record.knn else None
                chosen = choose_images(
                    data, count, timely=timely, scored=scored, modality=modality, seconds=0.3 * seconds, max_bytes=most
                )
                sheets.append((data, modality, chosen))
            embedded = RunEmbeddings(record, source, sheets[sheet][2], budget, data, sheet, own, spread_images)
            embedded.neighbours  # noqa: B018  here, so that what cannot be embedded is known before anything is drawn
            found.shown.append(embedded)
        except Exception as error:
            found.missing[record.name] = reason(error)
    return found


def shown_view(source: ModelSource, data: RunData) -> str:
    """Returns the first view that has an encoder; one that is only predicted has none."""
    return next((view for view in source.encoders if view in data.views), next(iter(data.views)))


def _same(one: RunData, other: RunData) -> bool:
    """Tells whether two runs have the same images to show."""
    first, second = (source_of(each)[0] for each in (one, other))
    return torch.equal(first.ids, second.ids) and first.classes == second.classes


def _seconds_per_image(source: ModelSource) -> float:
    """Measures the time per image of an otherwise idle machine: processor or clock time, whichever is less."""
    encoder = source.encoder.to(resolve_device())
    x = torch.zeros(16, encoder.options["channels"], source.size, source.size)
    times = []
    for _ in range(PASSES):
        begun, worked = time.perf_counter(), time.process_time()
        forward(encoder, x, read=embedding).cpu()
        times += [time.perf_counter() - begun, time.process_time() - worked]
    return max(1e-5, min(times) / len(x))
