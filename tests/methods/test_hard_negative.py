from __future__ import annotations

import pytest

from manyview.methods import hard_negative
from tests.golden import DOUBLE, assert_golden, two_views, unit
from tests.losses import oracle
from tests.methods.small import (
    Given,
    doubled,
    golden_views,
    met,
    objective,
    same_gradient,
    triples,
)


def test_with_its_defaults_it_is_the_authors_loss() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = objective(doubled(hard_negative), Given([unit(v1), unit(v2)]))
    assert_golden("hcl/tau0.5_tauplus0.1_beta1.0", loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("copies", [3, 5])
def test_with_more_copies_it_is_the_equation(copies: int) -> None:
    method, (raw, given) = doubled(hard_negative, copies=copies), golden_views(copies)
    embedded = Given(given)
    (triple,) = triples(method, embedded)
    expected = oracle.hard_negative(
        triple.query, triple.positives, met(triple), temperature=0.5, beta=1.0, tau_plus=0.1
    )
    same_gradient(objective(method, embedded), oracle.mean(expected), [raw])
