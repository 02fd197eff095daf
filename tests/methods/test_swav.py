from __future__ import annotations

import torch
import torch.nn.functional as F

from manyview.losses.assignment import sinkhorn
from manyview.methods import swav
from manyview.methods.method import VIEW
from tests.losses.oracle import mean
from tests.methods.small import doubled, images, outputs_of


def test_crops_predict_the_codes_of_the_large_ones_and_small_ones_have_none() -> None:
    method = doubled(swav, small=1, queue=0)
    assert (method.views, method.small) == ({VIEW: 3}, 1)
    batch = outputs_of(method, images(3))
    by = {(slot.copy, slot.name): each for slot, each in batch.outputs.items()}
    weight = method.towers.prototypes()[0].weight
    pairs = []
    for large in range(2):
        codes = sinkhorn(by[large, "projection"] @ weight.T)
        for other in (copy for copy in range(3) if copy != large):
            scores = by[other, "projection"] @ weight.T if (other, "projection") in by else by[other, "scores"]
            pairs.append(-(codes * F.log_softmax(scores / 0.1, 1)).sum(1).mean())
    torch.testing.assert_close(method.objective(batch).loss, mean(pairs))
    assert (2, "projection") not in by


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
