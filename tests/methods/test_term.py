"""What all terms share: the mean over images that are there, and what is watched of a term without negatives."""

from __future__ import annotations

import torch

from manyview.encoders import Slot
from manyview.methods import BatchOutputs, Term
from manyview.methods.term import TermOutput, mean_of_present, nothing, watched

A, B = Slot("query", "a", 0), Slot("query", "b", 0)
PRESENT = {"a": torch.tensor([True, True, False]), "b": torch.tensor([True, False, True])}


def batch(present: dict[str, torch.Tensor] | None = None) -> BatchOutputs:
    outputs = {A: torch.arange(6.0).reshape(3, 2).requires_grad_(), B: torch.ones(3, 2)}
    return BatchOutputs(outputs, torch.arange(3), torch.arange(3), present or {})


def test_the_mean_is_over_the_images_that_have_all_views() -> None:
    values = torch.tensor([1.0, 10.0, 100.0])
    assert float(mean_of_present(batch(), values, (A, B))) == 37.0
    assert float(mean_of_present(batch(PRESENT), values, (A,))) == 5.5
    assert float(mean_of_present(batch(PRESENT), values, (A, B))) == 1.0


def test_nothing_is_a_zero_that_reaches_what_was_embedded() -> None:
    given = batch()
    loss = nothing(given, (A, B))
    assert float(loss) == 0.0
    loss.backward()
    gradient = given.outputs[A].grad
    assert gradient is not None
    assert not gradient.any()


def test_only_images_that_have_both_embeddings_are_watched() -> None:
    found = watched(batch(PRESENT), A, B).rows()
    assert found.ids.tolist() == [0]
    assert (found.query.tolist(), found.positive.tolist()) == ([[0.0, 1.0]], [[1.0, 1.0]])
    assert not found.query.requires_grad
    assert watched(batch(), A, B).rows().ids.tolist() == [0, 1, 2]


def test_a_term_that_knows_no_more_compares_all_outputs_and_keeps_nothing() -> None:
    class Constant(Term):
        def __call__(self, batch: BatchOutputs) -> TermOutput:
            return TermOutput(nothing(batch, self.asks), [])

    term = Constant("constant", (A, B))
    assert term.positives == [(A, B), (B, A)]
    assert (term.memories, term.kept, term.option("temperature"), term.coupled) == ((), (), None, False)
