"""Cross-view retrieval: does the embedding of one view find its own sample among those of another view?

Held-out samples alone are asked about, and no labels are needed. The metrics are "recall@1/rgb to thermal" (queries of
rgb, searched among thermal; also @5 and @10), "recall@1", which is their mean, and "pairs/rgb to thermal", how many
samples have both views, so that chance is k / pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.config.config import Config
from manyview.core.sample import Views
from manyview.data import Loader
from manyview.data.factory import some
from manyview.encoders import Slot, Towers
from manyview.features.embedding_pass import forward
from manyview.features.retrieval import KS, recalls
from manyview.methods import Method
from manyview.training import pipelines, run_data

Scores = dict[str, float]
MEAN = "recall@1"  # over all ordered pairs


class RetrievalEvaluator:
    """Recall of every ordered pair of views, on at most `knn_queries` held-out samples.

    Embeddings are the outputs of the towers' heads, which the loss compares, and not the encoders' features. A sample
    that lacks one of two views is left out of their pairs; one that cannot be read is left out of all.
    """

    def __init__(self, views: Sequence[str], data: run_data.RunData, config: Config, device: torch.device) -> None:
        assert data.test is not None
        samples = some(data.test, config.knn_queries, labelled=False)
        self.views = tuple(views)
        self.loader = Loader(
            samples, pipelines.evaluation(config, data.views), min(256, len(samples)), shuffle=False, drop_last=False,
            device=device, workers=config.workers, max_unreadable=1.0, examples=data.met,
        )  # fmt: skip

    def __call__(self, towers: Towers) -> Scores:
        return named_recalls(*project(towers, self.loader, self.views))


def project(towers: Towers, loader: Loader, views: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the heads' outputs (n, d) of unit length by view, in the loader's order, and who has which view (n,)."""
    slots = {view: Slot("query", view, 0, "projection") for view in views}

    def read(network: Towers, seen: Views) -> dict[str, Tensor]:
        outputs = network(seen, slots.values())
        return {view: outputs[slot] for view, slot in slots.items()}

    vectors: dict[str, list[Tensor]] = {view: [] for view in views}
    present: dict[str, list[Tensor]] = {view: [] for view in views}
    start = 0
    for batch in loader.epoch(0):
        itself = batch.index.cpu() == torch.arange(start, start + len(batch))  # else another stands in for it
        start += len(batch)
        for view, embedded in forward(towers, batch.views(), read=read).items():
            vectors[view].append(F.normalize(embedded.float().cpu(), dim=1))
            present[view].append(itself & batch.present[view].cpu() if batch.present else itself)
    joined = [{view: torch.cat(parts) for view, parts in each.items()} for each in (vectors, present)]
    return joined[0], joined[1]


def make_retrieval(
    method: Method, data: run_data.RunData, config: Config, device: torch.device
) -> RetrievalEvaluator | None:
    """Makes the evaluator for a method that contrasts embeddings of several views; None for others."""
    return RetrievalEvaluator(method.contrasted, data, config, device) if method.contrasted else None


def named_recalls(projections: Mapping[str, Tensor], present: Mapping[str, Tensor]) -> Scores:
    """Returns `recalls` under the names of the metrics, with how many samples each pair was measured on."""
    scores: Scores = {}
    for (query, searched), found in recalls(projections, present).items():
        name = f"{query} to {searched}"
        scores |= {f"recall@{k}/{name}": value for k, value in found.items()}
        scores[f"pairs/{name}"] = float((present[query] & present[searched]).sum())
    first = [value for name, value in scores.items() if name.startswith("recall@1/")]
    return {MEAN: sum(first) / len(first), **scores} if first else {}


def untrained_recall(scores: Scores) -> list[str]:
    """Reports the recall of untrained towers, where they were scored."""
    counts = sorted(_pairs(scores).values())
    if not counts:
        return []
    samples = " to ".join(f"{count:,.0f}" for count in dict.fromkeys([counts[0], counts[-1]]))
    said = f"recall@1 across views of the untrained towers {scores[MEAN]:.1%}, by chance {_chance(counts):.1%}"
    return [f"{said}, on {samples} held-out samples that have both"]


def recall_doubts(scores: Scores, untrained: Scores) -> list[str]:
    """Says that the mean recall at the end is not above chance, or no better than before training, where it is so."""
    if MEAN not in scores:
        return []
    least = "not above chance" if scores[MEAN] <= _chance(_pairs(scores).values()) else ""
    if not least and scores[MEAN] <= untrained.get(MEAN, -1.0):
        least = "no better than before training"
    return [f"{MEAN} across views is {least}: train longer, or with milder augmentation"] if least else []


def live_recall(scores: Scores, untrained: Scores, *, new: bool = True) -> str:
    """Writes the mean recall over all pairs, beside the untrained value and chance; empty where there is none.

    new  whether it was measured after the first step
    """
    if MEAN not in scores:
        return ""
    if not new:
        return f"{MEAN} {scores[MEAN]:.1%} (before training, chance {_chance(_pairs(scores).values()):.1%})"
    before = f"untrained {untrained[MEAN]:.1%}, " if MEAN in untrained else ""
    return f"{MEAN} {scores[MEAN]:.1%} ({before}chance {_chance(_pairs(scores).values()):.1%})"


def recall_table(scores: Scores, untrained: Scores) -> list[str]:
    """Tabulates for each ordered pair of views the recalls after and (in brackets) before training, and chance."""
    pairs = _pairs(scores)
    if not pairs:
        return []
    rows = [["from", "to", *(f"recall@{k}" for k in KS), "chance", "samples"]]
    for name, count in pairs.items():
        query, _, searched = name.partition(" to ")
        after, before = ([each.get(f"recall@{k}/{name}") for k in KS] for each in (scores, untrained))
        cells = [_cell(one, other) for one, other in zip(after, before, strict=True)]
        chance = " / ".join(f"{100 * min(1.0, k / count):.1f}" for k in KS)
        rows.append([query, searched, *cells, chance, f"{count:,.0f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return ["retrieval across views on held-out samples, in % (untrained in brackets):", *lines]


def _pairs(scores: Scores) -> dict[str, float]:
    return {name.removeprefix("pairs/"): value for name, value in scores.items() if name.startswith("pairs/")}


def _chance(counts: Collection[float]) -> float:
    """Computes the mean recall@1 of a random order."""
    return sum(1 / count for count in counts) / len(counts)


def _cell(after: float | None, before: float | None) -> str:
    assert after is not None
    return f"{100 * after:.1f}" + ("" if before is None else f" ({100 * before:.1f})")
