from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview import losses
from manyview.methods import cacr_moco_v3, cacr_moco_v3_code, moco_v3
from manyview.methods.method import VIEW
from tests.golden import DOUBLE, assert_golden, unit
from tests.methods.small import Given, doubled, golden_views, objective, same_gradient


def momentum_keys(count: int) -> list[Tensor]:
    return list(unit(DOUBLE.given("kviews_raw"))[:count])


def squared(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([(a - b) ** 2 for a, b in zip(x, y, strict=True)]).sum()


def weighed(precision: float, distances: list[Tensor], costs: list[Tensor], *, detach: bool) -> Tensor:
    """The mean of costs under a softmax of precision * distance, entry by entry."""
    exponentials = [(precision * (each.detach() if detach else each)).exp() for each in distances]
    below = torch.stack(exponentials).sum()
    return torch.stack([e / below * cost for e, cost in zip(exponentials, costs, strict=True)]).sum()


def section_3_2(queries: list[Tensor], keys: list[Tensor], t_pos: float, t_neg: float) -> Tensor:
    """One loop over the queries, the images, their positives and their negatives."""
    values = []
    for v, query in enumerate(queries):
        others = [key for u, key in enumerate(keys) if u != v]
        for i in range(len(query)):
            near = [squared(query[i], key[i]) for key in others]
            far = [squared(query[i], key[j]) for key in others for j in range(len(query)) if j != i]
            values.append(weighed(t_pos, near, near, detach=True) - weighed(-t_neg, far, far, detach=False))
    return torch.stack(values).mean()


@pytest.mark.parametrize(("positives", "small"), [(1, 0), (2, 0), (2, 2), (1, 3)])
def test_it_is_section_3_2_with_momentum_keys(positives: int, small: int) -> None:
    method = doubled(cacr_moco_v3, positives=positives, small=small)
    raw, queries = golden_views(1 + positives + small)
    keys = momentum_keys(1 + positives)
    same_gradient(objective(method, Given(queries, keys)), section_3_2(queries, keys, 1.0, 2.0), [raw])
    assert (method.views, method.small) == ({VIEW: 1 + positives + small}, small)


def released(queries: list[Tensor], keys: list[Tensor], t: float) -> Tensor:
    """The released code's RBF loss: a key, the weights of its queries, and InfoNCE of each of them."""
    values = []
    for u, key in enumerate(keys):
        others = [query for v, query in enumerate(queries) if v != u]
        for i in range(len(key)):
            each = []
            for query in others:
                scores = [(query[i] @ key[j]) / t for j in range(len(key))]
                each.append(torch.stack(scores).logsumexp(0) - scores[i])
            distances = [squared(query[i], key[i]) for query in others]
            values.append(2 * t * weighed(1 / t, distances, each, detach=True))
    return torch.stack(values).mean()


@pytest.mark.parametrize("small", [0, 3])
@pytest.mark.parametrize("t", [1.0, 0.2])
def test_the_codes_variant_weighs_the_queries_of_a_key(small: int, t: float) -> None:
    method = doubled(cacr_moco_v3_code, small=small, loss=partial(losses.info_nce, temperature=t))
    (raw, queries), keys = golden_views(2 + small), momentum_keys(2)
    same_gradient(objective(method, Given(queries, keys)), released(queries, keys, t), [raw])


def test_without_small_crops_the_codes_variant_is_half_of_moco_v3() -> None:
    loss = partial(losses.info_nce, temperature=0.2)
    views = DOUBLE.given("views_raw")[:2].clone().requires_grad_()
    given = Given(list(unit(views)), momentum_keys(2))
    half = objective(doubled(cacr_moco_v3_code, small=0, loss=loss), given)
    assert_golden("mocov3/T0.2", 2 * half, {"views_raw": views}, DOUBLE)
    torch.testing.assert_close(2 * half, objective(doubled(moco_v3, loss=loss), given))


@pytest.mark.parametrize("t", [1.0, 0.2])
def test_its_euclidean_loss_is_a_loss_of_ours_up_to_its_factor(t: float) -> None:
    loss = partial(losses.cacr, t_pos=1 / t, t_neg=1 / (2 * t), detach_weights=True)
    (raw, queries), keys = golden_views(4), momentum_keys(2)
    values = []
    for u, key in enumerate(keys):
        others = [query for v, query in enumerate(queries) if v != u]
        for i in range(len(key)):
            each = []
            for query in others:
                costs = [1 - query[i] @ key[j] for j in range(len(key)) if j != i]
                each.append((1 - query[i] @ key[i]) - weighed(-1 / t, costs, costs, detach=True))
            distances = [squared(query[i], key[i]) for query in others]
            values.append(weighed(1 / t, distances, each, detach=True))
    code = torch.stack(values).mean()  # over images and keys, where the code sums over images
    found = objective(doubled(cacr_moco_v3_code, small=2, loss=loss), Given(queries, keys))
    same_gradient(found, 2 * code, [raw])


def test_distant_queries_count_more() -> None:
    method = doubled(cacr_moco_v3_code, small=2)
    (term,) = method.terms
    _, queries = golden_views(4)
    far = [*queries[:3], -momentum_keys(2)[0]]  # the last is as far from the first key as can be
    given, moved = (objective(method, Given(each, momentum_keys(2))) for each in (queries, far))
    assert float(moved.detach()) > float(given.detach())
    assert term.weight == 1.0


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (partial(losses.cacr, cost="rbf"), "loss: pools all queries before a logarithm"),
        (losses.align_uniform, "loss: pools all queries before a logarithm"),
        (lambda query, positives, negatives, **more: query.sum(), "loss: has no t_pos and no temperature"),
    ],
)
def test_what_cannot_weigh_queries_is_refused(loss: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        doubled(cacr_moco_v3_code, loss=loss)
