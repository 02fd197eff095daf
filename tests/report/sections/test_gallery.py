from __future__ import annotations

from dataclasses import replace

import torch

from manyview.report.run_embeddings import NEIGHBOURS, EmbeddedRuns
from manyview.report.sections.gallery import QUERIES, choose_queries, gallery


def test_each_query_stands_before_its_neighbours(embedded: EmbeddedRuns) -> None:
    text = gallery(embedded)
    assert text is not None
    assert text.count(" query") == QUERIES
    assert text.count(' same"') + text.count(' differs"') == QUERIES * NEIGHBOURS
    assert "<script" not in text


def test_runs_on_the_same_images_share_the_queries(both_embedded: EmbeddedRuns) -> None:
    text = gallery(both_embedded)
    assert text is not None
    assert text.count(" query") == QUERIES
    assert text.count('class="name c0">dcl<') == text.count('class="name c1">simclr<') == QUERIES


def test_every_class_has_a_query_before_any_has_two(embedded: EmbeddedRuns) -> None:
    images = embedded.shown[0].images
    labels = torch.tensor([1, 1, 1, 0, -1, 2] + [1] * (len(images.names) - 6))
    assert choose_queries(replace(images, labels=labels))[:5] == [3, 0, 5, 1, 2]
    assert choose_queries(replace(images, labels=None)) == list(range(QUERIES))


def test_without_embeddings_there_is_no_gallery() -> None:
    assert gallery(EmbeddedRuns([], {"run": "gone"})) is None
