from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.memories import Memory
from manyview.methods import BatchOutputs, simclr, supcon
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy_of_a_class
from tests.golden import unit
from tests.losses.oracle import dot, mean, total
from tests.methods.small import IDS, doubled, golden_views, same_gradient, term_of

LABELS = torch.tensor([3, 1, 3, 3, -1, 1])


def l_out(rows: list[Tensor], classes: list[int], temperature: float) -> Tensor:
    """Eq. 2, anchor by anchor; the mean over anchors."""
    losses = []
    for i in range(len(rows)):
        others = [a for a in range(len(rows)) if a != i]
        whole = total([(dot(rows[i], rows[a]) / temperature).exp() for a in others])
        positives = [p for p in others if classes[p] == classes[i]]
        losses.append(mean([-((dot(rows[i], rows[p]) / temperature).exp() / whole).log() for p in positives]))
    return mean(losses)


def batch(views: list[Tensor], labels: Tensor) -> BatchOutputs:
    term = term_of(doubled(supcon, copies=len(views)))
    return BatchOutputs(dict(zip(term.queries, views, strict=True)), IDS, IDS, labels=labels)


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_it_is_the_equation_and_positives_are_as_many_as_there_are(copies: int, temperature: float) -> None:
    raw, views = golden_views(copies)
    method = doubled(supcon, copies=copies, temperature=temperature)
    classes = [label if label >= 0 else -2 - i for i, label in enumerate(LABELS.tolist())]  # without a label: its own
    rows = [unit(raw[v, i]) for v in range(copies) for i in range(6)]
    same_gradient(method.objective(batch(views, LABELS)).loss, l_out(rows, classes * copies, temperature), [raw])


def test_without_any_label_it_is_simclr() -> None:
    raw, views = golden_views(2)
    term = term_of(doubled(simclr))
    expected = doubled(simclr).objective(BatchOutputs(dict(zip(term.queries, views, strict=True)), IDS, IDS)).loss
    same_gradient(doubled(supcon).objective(batch(views, torch.full((6,), -1))).loss, expected, [raw])


def test_a_class_may_have_any_number() -> None:
    _, views = golden_views(2)
    many, few = (doubled(supcon).objective(batch(views, label)).loss for label in (LABELS * 0, LABELS + 10**12))
    assert many.isfinite()
    assert few.isfinite()


def test_it_says_that_it_takes_labels_and_refuses_to_go_without() -> None:
    assert [term.takes_labels for term in doubled(supcon).terms] == [True]
    assert [term.takes_labels for term in doubled(simclr).terms] == [False]
    with pytest.raises(ValueError, match="labels: expected those of the images"):
        every_copy_of_a_class(Embeddings(golden_views(2)[1]), Memory())


def test_many_alike_lose_no_digits() -> None:
    """Positives in float32 are those of float64, however many other images stand before them in the batch."""
    rows = torch.nn.functional.normalize(torch.ones(2048, 4) + 0.01 * torch.randn(2048, 4), dim=1)
    labels = torch.arange(2048) // 2
    single, double = (
        every_copy_of_a_class(Embeddings([each, each], torch.arange(2048), labels=labels), Memory())[0].positives
        for each in (rows, rows.double())
    )
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-6)


def test_small_crops_are_anchors_like_all_copies() -> None:
    _, views = golden_views(3)
    few, many = doubled(supcon, copies=1, small=2), doubled(supcon, copies=3)
    assert (few.views, few.small) == (many.views, 2)
    torch.testing.assert_close(few.objective(batch(views, LABELS)).loss, many.objective(batch(views, LABELS)).loss)
