"""Evaluators, which score the encoders during training, by name. `EVALUATORS` is a plain table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from manyview.config.config import Config
from manyview.core.errors import UserError, hint
from manyview.data import Loader
from manyview.data.factory import some
from manyview.encoders import Encoder, Towers
from manyview.encoders.towers import SHARED
from manyview.features.embedding_pass import embedding, forward
from manyview.features.gain import Share
from manyview.features.knn import knn
from manyview.features.logistic import Scaling, fit_chosen, logits
from manyview.methods import Method
from manyview.training import pipelines, run_data
from manyview.training.instance import INSTANCE, make_instance
from manyview.training.retrieval import Scores, make_retrieval

NEIGHBOURS = 20

Evaluator = Callable[[Towers], Scores]
"""The towers as they stand to named scores."""


class KnnEvaluator:
    """kNN accuracy of `knn_queries` held-out images among `knn_bank` training images.

    The training images include those that an imbalance leaves out of pre-training. Images are decoded once for all
    scores. With one encoder per view, each view has a score, "knn/VIEW", of the images that have it, and "knn" is that
    of all views' embeddings side by side, of the images that have them all.
    """

    name = "knn"

    def __init__(self, data: run_data.RunData, config: Config, device: torch.device) -> None:
        assert data.test is not None
        self.views, pipeline = tuple(data.views), pipelines.evaluation(config, data.views)
        self.loaders = [
            Loader(
                some(images, most), pipeline, min(256, len(images), most), shuffle=False, drop_last=False,
                device=device, workers=config.workers, max_unreadable=1.0, examples=data.met,
            )
            for images, most in ((data.bank, config.knn_bank), (data.test, config.knn_queries))
        ]  # fmt: skip

    def __call__(self, towers: Towers) -> Scores:
        encoders, shared = towers.encoders, towers.encoders.get(SHARED)
        found = {view: each for view in self.views if (each := encoders.get(view, shared)) is not None}
        bank, queries = (_embedded(found, loader) for loader in self.loaders)
        scored = {self.name: tuple(found)}
        scored |= {f"{self.name}/{view}": (view,) for view in found} if len(found) > 1 else {}
        given = {name: (*bank.beside(views), *queries.beside(views)) for name, views in scored.items()}
        return {
            name: self.share(vectors, labels, asked, right)
            for name, (vectors, labels, asked, right) in given.items()
            if len(vectors) and len(asked)
        }

    def share(self, vectors: Tensor, labels: Tensor, asked: Tensor, right: Tensor) -> Share:
        """Computes the accuracy on queries (n, d) by the bank's vectors (m, d) and labels."""
        return knn(vectors, labels, asked, right, k=min(NEIGHBOURS, len(vectors)))


class LinearEvaluator(KnnEvaluator):
    """Accuracy of a linear classifier on the frozen embeddings of the same images: "linear", and "linear/VIEW".

    The logistic regression of `manyview evaluate --protocols linear-fast`: on standardised features, with the penalty
    that a fifth of the training images chooses.
    """

    name = "linear"

    def share(self, vectors: Tensor, labels: Tensor, asked: Tensor, right: Tensor) -> Share:
        scaling, classes = Scaling.of(vectors), int(labels.max()) + 1
        weights, _ = fit_chosen(scaling(vectors), labels, classes)
        return Share.of(logits(weights, scaling(asked)).argmax(1) == right)


class _Embedded(NamedTuple):
    """The embeddings of n images, (n, dim) by view, which images have each view, and their labels (n,)."""

    vectors: dict[str, Tensor]
    present: dict[str, Tensor]
    labels: Tensor

    def beside(self, views: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Returns the embeddings of some views side by side, and labels, of the images that have them all."""
        rows = torch.stack([self.present[view] for view in views]).all(0)
        return torch.cat([self.vectors[view][rows] for view in views], 1), self.labels[rows]


def _embedded(encoders: Mapping[str, Encoder], loader: Loader) -> _Embedded:
    vectors: dict[str, list[Tensor]] = {view: [] for view in encoders}
    present: dict[str, list[Tensor]] = {view: [] for view in encoders}
    labels = []
    for batch in loader.epoch(0):
        views = batch.views()
        for view, encoder in encoders.items():
            vectors[view].append(forward(encoder, views[view][0], read=embedding).cpu())
            present[view].append(batch.present.get(view, torch.ones(len(batch), dtype=torch.bool)).cpu())
        labels.append(batch.labels.cpu())
    joined, masks = ({view: torch.cat(each) for view, each in parts.items()} for parts in (vectors, present))
    return _Embedded(joined, masks, torch.cat(labels))


def make_knn(method: Method, data: run_data.RunData, config: Config, device: torch.device) -> KnnEvaluator | None:
    """Makes the evaluator for data with classes; None for other data."""
    return KnnEvaluator(data, config, device) if data.labelled else None


def make_probe(data: run_data.RunData, config: Config, device: torch.device) -> LinearEvaluator | None:
    """Makes the linear probe for a run that asks for one, every `probe_every` epochs."""
    if not config.probe_every:
        return None
    if not config.evaluate_every or config.probe_every % config.evaluate_every:
        raise UserError(
            "probe_every",
            f"{config.probe_every} epochs are no multiple of evaluate_every, {config.evaluate_every}; the probe is one "
            "of the scores",
        )
    if KnnEvaluator.name not in config.evaluators:
        raise UserError("probe_every", "is for a run that kNN scores, and --evaluators does not name it; leave it out")
    if not data.labelled:
        raise UserError("probe_every", "a linear probe needs labels, and held-out images that have some; leave it out")
    return LinearEvaluator(data, config, device)


EVALUATORS: dict[str, Callable[[Method, run_data.RunData, Config, torch.device], Evaluator | None]] = {
    "knn": make_knn,
    "retrieval": make_retrieval,
    INSTANCE: make_instance,
}


def evaluators(method: Method, data: run_data.RunData, config: Config, device: torch.device) -> list[Evaluator]:
    """Makes the evaluators that the settings name and that apply; none without held-out images or scoring."""
    unknown = [name for name in config.evaluators if name not in EVALUATORS]
    if unknown:
        raise UserError("evaluators", f"there is none named {unknown[0]!r}; {hint(unknown[0], EVALUATORS)}")
    if data.test is None or not config.evaluate_every:
        return []
    made = [EVALUATORS[name](method, data, config, device) for name in config.evaluators]
    return [each for each in made if each is not None]
