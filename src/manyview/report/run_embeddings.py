"""What the encoder of a run makes of some of its images. Where that cannot be had, the reason in words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.data import Dataset
from manyview.diagnose import Nearest, Spread, flat_map, nearest, spread
from manyview.embeddings import view_embeddings as looks
from manyview.embeddings.model_source import ModelSource, subject
from manyview.embeddings.view_embeddings import Snapshot
from manyview.features.embedding_pass import features
from manyview.report.images import LARGEST, Pictures, opened, pictures
from manyview.report.run_record import Told
from manyview.training.build import Images

NEAR = 8  # neighbours that are shown of an image
LEAST = 48  # images, however slow the encoder
AUGMENTED = 32  # looks at an image, as in JCL's Fig. 3
CONTRASTED = 5  # looks at an image: a query and four positives, as in CACR's Fig. 6
MOST = 5000  # images of all maps of a page
PASSES = 4
MOMENTS = 4  # of a run that are shown: the untrained, the last, and two between
SHOWN = 4  # runs whose images are shown; more would be neither seen nor loaded


@dataclass(frozen=True)
class Cost:
    """seconds: that looking at the images of one run may take, about; look: what one pass of one image takes."""

    seconds: float
    look: float

    def images(self, share: float, looks: int, *, least: int, most: int) -> int:
        """How many images a share of the time is enough for; a power of two, so that reports are alike."""
        allowed = share * self.seconds / (looks * self.look)
        if allowed < least:
            raise UserError(
                None,
                f"one look takes {1000 * self.look:.0f} ms here: {least * looks} looks would take more than their "
                f"share of {self.seconds:g} s; `manyview report` takes more time, and a GPU less",
            )
        count = least
        while count * 2 <= min(allowed, most):
            count *= 2
        return count


@dataclass(frozen=True, eq=False)
class Seen:
    """Some images as a run's encoder sees them; each part is computed when it is first asked for.

    sheet  the number of the thumbnails' sheet on the page
    """

    told: Told
    subject: ModelSource
    pictures: Pictures
    cost: Cost
    sheet: int = 0
    own: Dataset | None = None

    @cached_property
    def features(self) -> Tensor:
        """(n, d) of the whole pictures."""
        return self._features(self.subject)

    @cached_property
    def before(self) -> Tensor:
        """The same of the untrained encoder."""
        return self._features(self.untrained)

    @cached_property
    def untrained(self) -> ModelSource:
        return self.subject.untrained()

    @cached_property
    def near(self) -> Nearest:
        return nearest(self.features, min(NEAR, len(self.features) - 1))

    @cached_property
    def places(self) -> Tensor:
        """(n, 2) between -1 and 1."""
        return flat_map(self.features)

    @cached_property
    def spread(self) -> Spread:
        return self._spread(self.subject)

    @cached_property
    def spread_before(self) -> Spread:
        return self._spread(self.untrained)

    @cached_property
    def moments(self) -> list[Snapshot]:
        """The run at its beginning, at its snapshots and at its end, through encoder and head."""
        run = self.told.run
        epochs = len(looks.epochs(run))
        count = self.cost.images(0.3, epochs * (CONTRASTED + 2), least=16, most=128)
        return list(looks.moments(run, images=count, looks=CONTRASTED, own=self.own, device=device(), workers=0))

    def _features(self, subject: ModelSource) -> Tensor:
        encoder = subject.encoder.to(device())
        return features(encoder, self.pictures.dataset, self.subject.stack(), device=device(), workers=0)[0]

    def _spread(self, subject: ModelSource) -> Spread:
        count = self.cost.images(0.3, 2 * AUGMENTED, least=8, most=128)
        made = looks.of_subject(
            _like(subject, self.subject), self.pictures.dataset, images=count, looks=AUGMENTED, workers=0
        )
        return spread(made.vectors)


def seen(told: Sequence[Told], images: int, seconds: float, own: Dataset | None) -> dict[str, Seen | str]:
    """By the runs' names: what they see of the images they share, or why not. Only of the first few, one a colour."""
    found: dict[str, Seen | str] = {}
    sheets: list[tuple[Images, Pictures]] = []
    leads = [each for each in told if each.lead][:SHOWN]
    judged = {each.name: _judged(each) for each in leads}
    times = [_look(each) for each in judged.values() if isinstance(each, ModelSource)]
    cost = Cost(seconds, max(times, default=1.0))  # of the slowest, so that all are shown the same images
    for each in leads:
        looking = judged[each.name]
        if isinstance(looking, str):
            found[each.name] = looking
            continue
        try:
            found[each.name] = _seen(each, looking, cost, images, own, sheets, len(leads))
        except Exception as error:  # a page without pictures is better than none, whatever they lack
            found[each.name] = reason(error)
    return found


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _judged(told: Told) -> ModelSource | str:
    """The run's encoder, or why there is none."""
    try:
        return subject(told.run)
    except Exception as error:
        return reason(error)


def _seen(
    told: Told,
    judged: ModelSource,
    cost: Cost,
    images: int,
    own: Dataset | None,
    sheets: list[tuple[Images, Pictures]],
    runs: int,
) -> Seen:
    data = opened(told.config, own)
    alike = [number for number, (other, _) in enumerate(sheets) if _same(other, data)]
    if not alike:
        count = min(images, MOST // runs, max(LEAST, int(0.2 * cost.seconds / (2 * cost.look))))
        sheets.append((data, pictures(data, count, seconds=0.3 * cost.seconds, room=LARGEST // runs)))
        alike = [len(sheets) - 1]
    made = Seen(told, judged, sheets[alike[0]][1], cost, alike[0], own)
    made.near  # noqa: B018  here, so that what cannot be embedded is known before anything is drawn
    return made


def _same(one: Images, other: Images) -> bool:
    """Whether two runs look at the same images."""
    first, second = (each.train if each.test is None else each.test for each in (one, other))
    return torch.equal(first.ids, second.ids) and first.classes == second.classes


@torch.no_grad()
def _look(judged: ModelSource) -> float:
    """Seconds that an image takes, when the machine has nothing else to do: of work or of waiting, the less."""
    encoder = judged.encoder.to(device())
    x = torch.zeros(16, encoder.options["channels"], judged.size, judged.size, device=device())
    times = []
    for _ in range(PASSES):
        begun, worked = time.perf_counter(), time.process_time()
        encoder(x).cpu()
        times += [time.perf_counter() - begun, time.process_time() - worked]
    return max(1e-5, min(times) / len(x))


def _like(subject: ModelSource, other: ModelSource) -> ModelSource:
    """A subject that is shown images as another is: an untrained one has no run that says how."""
    return subject if subject.run is not None else replace(subject, run=other.run)


def some(moments: Sequence[Snapshot]) -> list[Snapshot]:
    """The first, the last, and a few between them."""
    if len(moments) <= MOMENTS:
        return list(moments)
    return [moments[round(number * (len(moments) - 1) / (MOMENTS - 1))] for number in range(MOMENTS)]
