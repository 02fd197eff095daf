from __future__ import annotations

import pytest
import torch

from manyview.methods import align_uniform, align_uniform_moco
from tests.golden import DOUBLE, assert_golden, two_views, unit
from tests.losses import oracle
from tests.methods.small import (
    Given,
    doubled,
    golden_keys,
    golden_views,
    objective,
    of_queue,
    queue_of,
    same_gradient,
    update,
    with_golden_queue,
)


def test_with_its_defaults_it_is_the_authors_loss_in_a_batch() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = objective(doubled(align_uniform), Given([unit(v1), unit(v2)]))
    assert_golden("align_uniform/stl10_default", loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("copies", [3, 4])
def test_uniformity_is_taken_within_each_copy_and_then_averaged(copies: int) -> None:
    method, (raw, given) = doubled(align_uniform, copies=copies), golden_views(copies)
    parts = []
    for v in range(copies):
        pairs = [(-2 * oracle.distance(unit(raw[v, i]), unit(raw[v, j]))).exp() for i in range(6) for j in range(i)]
        own = [oracle.distance(unit(raw[v, i]), unit(raw[w, i])) for i in range(6) for w in range(copies) if w != v]
        parts.append(oracle.mean(own) + oracle.mean(pairs).log())
    same_gradient(objective(method, Given(given)), oracle.mean(parts), [raw])


def test_with_a_queue_and_its_defaults_it_is_the_authors_moco_version() -> None:
    method = with_golden_queue(doubled(align_uniform_moco, memory=of_queue("each", within_batch=0.5)))
    q = DOUBLE.leaf("q_raw")
    embedded = Given([unit(q)], golden_keys(1))
    assert_golden("align_uniform_queue/alpha2_t3_intra", objective(method, embedded), {"q_raw": q}, DOUBLE)
    update(method, embedded)
    torch.testing.assert_close(queue_of(method).keys[:6], golden_keys(1)[0], rtol=0, atol=0)


def test_its_own_weight_of_the_batch_is_one_half() -> None:
    from inspect import signature

    default = signature(align_uniform_moco).parameters["memory"].default
    assert default.keywords["within_batch"] == 0.5
