"""kNN during training: how good the encoder is, now and then."""

from __future__ import annotations

import torch

from manyview.data import Dataset, Loader
from manyview.data.holdout import some
from manyview.data.workers import Pipeline
from manyview.encoders import Encoder
from manyview.evaluate.knn import knn
from manyview.features.embedding_pass import embed

NEIGHBOURS = 20


class Scorer:
    """kNN of an encoder as it stands: which class do `bank` training images say that `queries` images kept aside have?

    Images are decoded once for all scores.
    """

    def __init__(
        self,
        train: Dataset,
        test: Dataset,
        views: Pipeline,
        *,
        bank: int = 5000,
        queries: int = 1000,
        device: torch.device,
        workers: int | None = None,
    ) -> None:
        self.loaders = [
            Loader(
                some(data, most),
                views,
                min(256, len(data), most),
                shuffle=False,
                drop_last=False,
                device=device,
                workers=workers,
                max_broken=1.0,
            )
            for data, most in ((train, bank), (test, queries))
        ]

    def __call__(self, encoder: Encoder) -> float:
        bank, queries = (embed(encoder, loader) for loader in self.loaders)
        return knn(*bank, *queries, k=min(NEIGHBOURS, len(bank[0])))
