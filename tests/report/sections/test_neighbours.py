from __future__ import annotations

import html
from dataclasses import replace

import torch

from manyview.report.run_embeddings import NEIGHBOURS, EmbeddedRuns
from manyview.report.sections.neighbours import MAX_CLASSES, QUERIES, choose_queries, classes, gallery
from tests.report.conftest import NAMES


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


def test_purity_and_confusion_of_every_class(embedded: EmbeddedRuns) -> None:
    text = classes(embedded)
    assert text is not None
    assert "<h3>Purity of neighbours</h3>" in text
    assert "<h3>Confusion of classes</h3>" in text
    for name in NAMES:
        assert html.escape(name) in text
        assert name not in text


def test_several_runs_are_told_apart_by_their_names(both_embedded: EmbeddedRuns) -> None:
    text = classes(both_embedded)
    assert text is not None
    assert "<h3>Purity of neighbours: dcl</h3>" in text
    assert "<h3>Confusion of classes: simclr</h3>" in text


def test_without_labels_there_is_no_such_section(embedded: EmbeddedRuns) -> None:
    (one,) = embedded.shown
    assert classes(EmbeddedRuns([replace(one, images=replace(one.images, labels=None))])) is None
    assert classes(EmbeddedRuns()) is None


def test_of_many_classes_the_commonest_are_shown(embedded: EmbeddedRuns) -> None:
    (one,) = embedded.shown
    labels = torch.arange(len(one.images.names)) % (MAX_CLASSES + 5)  # the first five are there twice
    text = classes(EmbeddedRuns([replace(one, images=replace(one.images, labels=labels, classes=()))]))
    assert text is not None
    assert text.count("<rect") == MAX_CLASSES + MAX_CLASSES**2
