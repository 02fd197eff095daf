from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from manyview.memories import QueueMemory
from manyview.methods import swav
from manyview.methods.method import VIEW
from tests.losses.oracle import dot, mean, total
from tests.methods.small import doubled, images, outputs_of, same_gradient


def loop_codes(scores: list[list[Tensor]], epsilon: float, iterations: int) -> list[list[Tensor]]:
    """Eq. 3 to 5 and the algorithm of Sinkhorn and Knopp, entry by entry."""
    images, count = len(scores), len(scores[0])
    q = [[(each / epsilon).exp() for each in row] for row in scores]
    for _ in range(iterations):
        columns = [total([q[i][k] for i in range(images)]) for k in range(count)]
        q = [[q[i][k] / columns[k] / count for k in range(count)] for i in range(images)]
        q = [[each / total(row) / images for each in row] for row in q]
    return [[each * images for each in row] for row in q]


@pytest.mark.parametrize("queued", [False, True])
def test_it_is_its_equations_pair_by_pair(queued: bool) -> None:
    """With a queue, what lies in it is spread over the prototypes beside the batch, and has no loss of its own."""
    method = doubled(swav, small=1, queue=9 if queued else 0)
    assert (method.views, method.small) == ({VIEW: 3}, 1)
    for step in range(2 * queued):  # 12 images fill the 9 places of each queue
        method.update(outputs_of(method, images(3, seed=step)), step, 9)
    given = outputs_of(method, images(3, seed=5))
    raw = {slot: each.detach().requires_grad_(slot.name == "scores") for slot, each in given.outputs.items()}
    weight = method.towers.prototypes()[0].weight
    by = {(slot.copy, slot.name): each for slot, each in raw.items()}
    assert (2, "projection") not in by
    pairs = []
    for large in range(2):
        memory = method.memories[f"queue of copy {large}"] if queued else None
        rows = [*(memory.queue.keys if isinstance(memory, QueueMemory) else []), *by[large, "projection"]]
        scores = [[dot(row, prototype).detach() for prototype in weight] for row in rows]
        codes = loop_codes(scores, epsilon=0.05, iterations=3)[-6:]
        for other in (copy for copy in range(3) if copy != large):
            for i in range(6):
                powers = [(score / 0.1).exp() for score in by[other, "scores"][i]]
                told = [(power / total(powers)).log() for power in powers]
                pairs.append(-total([q * p for q, p in zip(codes[i], told, strict=True)]))
    found = method.objective(replace(given, outputs=raw)).loss
    same_gradient(found, mean(pairs), [each for each in raw.values() if each.requires_grad])
    assert all(each is None for each in torch.autograd.grad(found, [weight], allow_unused=True))  # codes have none


def test_prototypes_have_unit_length_again_after_each_step_and_learn_only_after_some() -> None:
    method = doubled(swav, frozen=2)
    (prototypes,) = method.towers.prototypes()
    optimizer = torch.optim.SGD(method.towers.trained(), lr=0.5)
    moved = []
    for step in range(3):
        before = prototypes.weight.detach().clone()
        batch = outputs_of(method, images(4, seed=step), step)
        optimizer.zero_grad()
        method.objective(batch).loss.backward()
        method.towers.hold(step)
        optimizer.step()
        method.update(batch, step, 3)
        moved.append(bool((prototypes.weight - before).abs().max() > 1e-6))
        torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(7, dtype=torch.float64))
    assert moved == [False, False, True]


def test_each_large_crop_has_a_queue_of_its_own() -> None:
    method = doubled(swav)
    assert list(method.memories) == ["queue of copy 0", "queue of copy 1"]
    assert list(doubled(swav, queue=0).memories) == []
