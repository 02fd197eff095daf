"""Which classes keep together, and which are taken for which."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.diagnose import confusion, nearest, purity
from manyview.report.bars import Bar, bars, heat
from manyview.report.frame import Axis
from manyview.report.html import Child, Html, tag
from manyview.report.map import class_name
from manyview.report.parts import attempted, figure, section
from manyview.report.run_embeddings import Seen

NEIGHBOURS = 10
ROWS = 20  # classes that fit on a page: the commonest


def classes(seen: dict[str, Seen | str]) -> Html | None:
    shown = [each for each in seen.values() if isinstance(each, Seen) and each.pictures.labels is not None]
    if not shown:
        return None
    lead = f"Measured among the images of the map: each has its {NEIGHBOURS} nearest others as neighbours."
    made = [attempted(f"Classes of {each.told.name}", lambda each=each: _of(each, len(shown) > 1)) for each in shown]  # type: ignore[misc]
    return section("classes", "Classes", lead, tag("div", made, class_="grid pairs"))


def _of(seen: Seen, many: bool) -> Child:
    labels = seen.pictures.labels
    assert labels is not None
    here = labels >= 0
    name = f": {seen.told.name}" if many else ""
    kept = _commonest(labels[here])
    return [_purity(seen, here, kept, name), _confusion(seen, here, kept, name)]


def _commonest(labels: Tensor) -> list[int]:
    counts = labels.bincount()
    common = counts.argsort(descending=True, stable=True)[:ROWS].tolist()
    return sorted(label for label in common if counts[label])


def _purity(seen: Seen, here: Tensor, kept: list[int], name: str) -> Html:
    labels = seen.pictures.labels
    assert labels is not None
    found = purity(seen.features[here], labels[here], k=NEIGHBOURS)
    before = purity(seen.before[here], labels[here], k=NEIGHBOURS)
    rows = [
        Bar(class_name(seen, label), float(found.classes[label]), float(before.classes[label]), seen.told.colour)
        for label in kept
    ]
    rows.sort(key=lambda row: -row.value)
    caption = (
        f"Share of an image's neighbours that are of its own class; {found.mean:.0%} on average, {before.mean:.0%} "
        f"before training (the marks), and about {float(found.chance[kept].mean()):.0%} by lot."
    )
    drawn = bars("Purity of neighbours", rows, Axis("same class", low=0.0, percent=True), mark="before training")
    return figure(f"Purity of neighbours{name}", drawn, caption)


def _confusion(seen: Seen, here: Tensor, kept: list[int], name: str) -> Html:
    labels = seen.pictures.labels
    assert labels is not None
    truth = labels[here]
    near = nearest(seen.features[here], min(NEIGHBOURS, len(truth) - 1)).rows
    votes = torch.nn.functional.one_hot(truth[near], int(truth.max()) + 1).sum(1)
    counts = confusion(truth, votes.argmax(1), int(truth.max()) + 1)[kept][:, kept].double()
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
    names = [class_name(seen, label) for label in kept]
    head = "true class \N{RIGHTWARDS ARROW} what its neighbours say"
    drawn = heat("Classes taken for one another", shares.tolist(), names, head)
    caption = "Of each class's images, in percent, what most of their neighbours are. Good is dark on the diagonal."
    return figure(f"Taken for one another{name}", drawn, caption)
