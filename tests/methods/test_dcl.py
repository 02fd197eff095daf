from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from manyview import losses
from manyview.methods import dcl, dclw, moco_v2
from tests.golden import DOUBLE, assert_golden, two_views, unit
from tests.losses import oracle
from tests.methods.small import (
    Given,
    doubled,
    golden_keys,
    golden_views,
    met,
    objective,
    of_queue,
    same_gradient,
    triples,
    with_golden_queue,
)


def test_with_its_defaults_it_is_published_dcl() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = objective(doubled(dcl), Given([unit(v1), unit(v2)]))
    assert_golden("dcl/tau0.1", loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("detached", [False, True])
def test_dclw_has_gradient_through_its_weights_unless_told_otherwise(detached: bool) -> None:
    v1, v2 = two_views(DOUBLE)
    told: dict[str, Any] = (
        {"loss": partial(losses.dcl, temperature=0.1, sigma=0.5, detach_weights=True)} if detached else {}
    )
    loss = objective(doubled(dclw, **told), Given([unit(v1), unit(v2)]))
    entry = f"dclw/tau0.1_sigma0.5/{'weight_detached' if detached else 'grad_through_weight'}"
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("sigma", [None, 0.5])
@pytest.mark.parametrize("copies", [3, 4])
def test_with_more_copies_it_is_the_equation(copies: int, sigma: float | None) -> None:
    method = doubled(dcl if sigma is None else dclw, copies=copies)
    raw, given = golden_views(copies)
    embedded = Given(given)
    (triple,) = triples(method, embedded)
    assert triple.positives.shape == (6 * copies, copies - 1, 8)
    assert {len(each) for each in met(triple)} == {5 * copies}
    expected = oracle.dcl(triple.query, triple.positives, met(triple), temperature=0.1, sigma=sigma)
    same_gradient(objective(method, embedded), oracle.mean(expected), [raw])


def test_its_loss_in_moco_is_moco_without_the_positive_in_the_denominator() -> None:
    method = doubled(moco_v2, loss=partial(losses.dcl, temperature=0.2), memory=of_queue("each"))
    q = DOUBLE.leaf("q_raw")
    loss = objective(with_golden_queue(method), Given([unit(q)], golden_keys(1)))
    assert_golden("dcl_queue/tau0.2", loss, {"q_raw": q}, DOUBLE)
