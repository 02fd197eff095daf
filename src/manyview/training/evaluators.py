"""Evaluators: what scores the encoders during training, by name. `EVALUATORS` is a plain table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from manyview.config.config import Config
from manyview.core.errors import UserError, hint
from manyview.data import Loader
from manyview.data.factory import some
from manyview.encoders import Encoder
from manyview.encoders.towers import SHARED
from manyview.features.embedding_pass import embed
from manyview.features.knn import knn
from manyview.training import build

NEIGHBOURS = 20

Scores = dict[str, float]
Evaluator = Callable[[Mapping[str, Encoder]], Scores]
"""The encoders by view, as they stand, to named scores."""


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

    def __call__(self, encoders: Mapping[str, Encoder]) -> Scores:
        shared = encoders.get(SHARED)
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


EVALUATORS: dict[str, Callable[[build.RunData, Config, torch.device], Evaluator]] = {"knn": KnnEvaluator}


def evaluators(data: build.RunData, config: Config, device: torch.device) -> list[Evaluator]:
    """Those that the settings name; none where there are no labels to score with, or nobody wants to know."""
    unknown = [name for name in config.evaluators if name not in EVALUATORS]
    if unknown:
        raise UserError("evaluators", f"there is none named {unknown[0]!r}; {hint(unknown[0], EVALUATORS)}")
    if data.test is None or not config.evaluate_every:
        return []
    return [EVALUATORS[name](data, config, device) for name in config.evaluators]
