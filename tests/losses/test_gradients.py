"""What holds for the gradient of every loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from manyview.core.negatives import Negatives
from manyview.losses import attraction
from tests.losses.every_loss import EVERY_LOSS, Loss, for_every_loss
from tests.losses.layouts import Layout, for_some_layouts, gradients, make, many_tiles, normal, queue

# Detached weights make the gradient another one than the slope; the oracle checks these.
ATTACHED = {name: loss for name, loss in EVERY_LOSS.items() if "detached" not in name}
for_every_attached_loss = pytest.mark.parametrize("loss", ATTACHED.values(), ids=ATTACHED.keys())

IDS = torch.tensor([0, 1, 0])

# From query (3, 2) and keys to negatives; keys (4, 2) unless they are drawn or per query
SMALL: dict[str, tuple[tuple[int, ...], Callable[[Tensor, Tensor], Negatives]]] = {
    "shared": ((4, 2), lambda query, keys: Negatives(keys, torch.arange(4), IDS)),
    "batch": ((1, 2), lambda query, keys: Negatives(query, IDS, IDS, weight=0.6) + Negatives(keys)),
    "halves": ((1, 2), lambda query, keys: Negatives(query, split=(1, 1)) + Negatives(keys)),
    "own": ((3, 2, 2), lambda query, keys: Negatives(keys)),
    "small bank": ((4, 2), lambda query, keys: Negatives(keys, index=torch.tensor([[0, 1], [1, 1], [3, 2]]))),
    "large bank": ((70, 2), lambda query, keys: Negatives(keys, index=torch.tensor([[0, 1], [1, 1], [3, 2]]))),
}


@for_every_attached_loss
@pytest.mark.parametrize("kind", SMALL)
def test_the_gradient_is_the_slope(loss: Loss, kind: str) -> None:
    shape, build = SMALL[kind]
    g = torch.Generator().manual_seed(3)
    inputs = normal(g, 3, 2, grad=True), normal(g, 3, 2, 2, grad=True), normal(g, *shape, grad=True)
    with many_tiles():
        assert gradcheck(
            lambda query, positives, keys: loss(query, positives, build(query, keys)), inputs, fast_mode=True
        )


@for_every_attached_loss
def test_the_gradient_by_the_query_alone_is_the_slope(loss: Loss) -> None:
    """Where keys carry no gradient, the query's is gathered on the way forward."""
    g = torch.Generator().manual_seed(3)
    positives, keys = normal(g, 3, 2, 2), normal(g, 5, 2)
    assert gradcheck(lambda query: loss(query, positives, Negatives(keys)), (normal(g, 3, 2, grad=True),))


def test_the_gradient_of_attraction_is_the_slope() -> None:
    g = torch.Generator().manual_seed(3)
    inputs = normal(g, 3, 2, grad=True), normal(g, 3, 2, 2, grad=True)
    for options in ({}, {"cost": "inner"}, {"attract": "near"}, {"attract": "uniform"}):
        assert gradcheck(lambda query, positives, options=options: attraction(query, positives, **options), inputs)


@for_every_loss
@for_some_layouts
def test_a_second_derivative_is_refused(loss: Loss, layout: Layout) -> None:
    batch = make(layout)
    value = loss(batch.query, batch.positives, batch.negatives)
    with pytest.raises(RuntimeError, match=r"no second derivative.*create_graph"):
        torch.autograd.grad(value, batch.query, create_graph=True)


@for_every_loss
def test_a_second_derivative_is_refused_with_a_queue(loss: Loss) -> None:
    batch = make(queue)
    value = loss(batch.query, batch.positives, batch.negatives)
    with pytest.raises(RuntimeError, match=r"no second derivative.*create_graph"):
        torch.autograd.grad(value, batch.query, create_graph=True)


@for_every_loss
@for_some_layouts
def test_going_backward_twice_gives_the_same_gradient_twice(loss: Loss, layout: Layout) -> None:
    batch = make(layout)
    value = loss(batch.query, batch.positives, batch.negatives)
    first, second = gradients(value, batch.leaves), gradients(value, batch.leaves)
    for name in batch.leaves:
        assert torch.equal(first[name], second[name])
    assert bool(first["query"].any())


@for_every_loss
def test_two_losses_on_one_batch_do_not_disturb_one_another(loss: Loss) -> None:
    batch = make(queue)
    alone = gradients(loss(batch.query, batch.positives, batch.negatives), batch.leaves)
    value = loss(batch.query, batch.positives, batch.negatives)
    for other in EVERY_LOSS.values():
        torch.autograd.backward(other(batch.query, batch.positives, batch.negatives))
    for name, gradient in gradients(value, batch.leaves).items():
        assert torch.equal(gradient, alone[name])


@for_every_loss
def test_without_gradient_the_value_is_the_same(loss: Loss) -> None:
    batch = make(queue)
    with torch.no_grad():
        value = loss(batch.query, batch.positives, batch.negatives)
    assert not value.requires_grad
    torch.testing.assert_close(value, loss(batch.query, batch.positives, batch.negatives).detach(), rtol=1e-12, atol=0)


@for_every_loss
def test_a_queue_may_change_between_forward_and_backward(loss: Loss) -> None:
    batch = make(queue)
    before = gradients(loss(batch.query, batch.positives, batch.negatives), batch.leaves)
    value = loss(batch.query, batch.positives, batch.negatives)
    batch.negatives.sources[0].keys.zero_()
    for name, gradient in gradients(value, batch.leaves).items():
        assert torch.equal(gradient, before[name])
