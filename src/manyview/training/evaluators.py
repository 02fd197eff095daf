"""Evaluators: what scores the encoders during training, by name. `EVALUATORS` is a plain table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from manyview.config.config import Config
from manyview.core.errors import UserError, hint
from manyview.data import Loader
from manyview.data.factory import some
from manyview.encoders import Towers
from manyview.encoders.towers import SHARED
from manyview.features.embedding_pass import embed
from manyview.features.knn import knn
from manyview.methods import Method
from manyview.training import build
from manyview.training.retrieval import Scores, make_retrieval

NEIGHBOURS = 20

Evaluator = Callable[[Towers], Scores]
"""The towers as they stand to named scores."""


class KnnEvaluator:
    """kNN accuracy: which class do `knn_bank` training images say that `knn_queries` held-out images have?

    Images are decoded once for all scores. With an encoder a view, each view has a score, "knn/VIEW", and "knn" is that
    of their embeddings side by side.
    """

    def __init__(self, data: build.RunData, config: Config, device: torch.device) -> None:
        assert data.test is not None
        self.views, pipeline = tuple(data.views), build.test_pipeline(config, data.views)
        self.loaders = [
            Loader(
                some(images, most), pipeline, min(256, len(images), most), shuffle=False, drop_last=False,
                device=device, workers=config.workers, max_unreadable=1.0,
            )
            for images, most in ((data.train, config.knn_bank), (data.test, config.knn_queries))
        ]  # fmt: skip

    def __call__(self, towers: Towers) -> Scores:
        encoders, shared = towers.encoders, towers.encoders.get(SHARED)
        found = {view: each for view in self.views if (each := encoders.get(view, shared)) is not None}
        bank, queries = ({view: embed(each, loader, view) for view, each in found.items()} for loader in self.loaders)
        scores = {f"knn/{view}": _accuracy([bank[view]], [queries[view]]) for view in found if len(found) > 1}
        return {"knn": _accuracy(list(bank.values()), list(queries.values())), **scores}


def _accuracy(bank: list[Any], queries: list[Any]) -> float:
    """kNN with the embeddings of several views side by side."""
    (vectors, labels), (asked, right) = (
        (torch.cat([each for each, _ in parts], 1), parts[0][1]) for parts in (bank, queries)
    )
    return knn(vectors, labels, asked, right, k=min(NEIGHBOURS, len(vectors)))


def make_knn(method: Method, data: build.RunData, config: Config, device: torch.device) -> KnnEvaluator | None:
    """The evaluator of data with classes; None for other data."""
    return KnnEvaluator(data, config, device) if data.labelled else None


EVALUATORS: dict[str, Callable[[Method, build.RunData, Config, torch.device], Evaluator | None]] = {
    "knn": make_knn,
    "retrieval": make_retrieval,
}


def evaluators(method: Method, data: build.RunData, config: Config, device: torch.device) -> list[Evaluator]:
    """Those that the settings name and that apply; none where nothing is held out, or nobody wants to know."""
    unknown = [name for name in config.evaluators if name not in EVALUATORS]
    if unknown:
        raise UserError("evaluators", f"there is none named {unknown[0]!r}; {hint(unknown[0], EVALUATORS)}")
    if data.test is None or not config.evaluate_every:
        return []
    made = [EVALUATORS[name](method, data, config, device) for name in config.evaluators]
    return [each for each in made if each is not None]
