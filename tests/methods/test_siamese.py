from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from manyview.encoders import create, heads
from manyview.methods import Alignment, BatchOutputs, byol, simsiam
from manyview.methods.method import VIEW
from tests.golden import unit
from tests.losses import oracle
from tests.methods.small import IDS, Rows, doubled, images, outputs_of, plain, same_gradient


def test_simsiam_is_half_the_sum_of_both_negative_cosines_without_gradient_to_what_is_predicted() -> None:
    method = doubled(simsiam)
    outputs = method({VIEW: images(2)})
    raw = {slot: each.detach().clone().requires_grad_() for slot, each in outputs.items()}
    found = method.objective(BatchOutputs({slot: unit(each) for slot, each in raw.items()}, IDS, IDS)).loss
    p1, p2, z2, z1 = (unit(each) for each in raw.values())
    assert [(slot.name, slot.copy) for slot in raw][:2] == [("embedding", 0), ("embedding", 1)]
    assert [(slot.name, slot.copy) for slot in raw][2:] == [("projection", 1), ("projection", 0)]
    expected = [-oracle.dot(p[i], z[i].detach()) / 2 for i in range(6) for p, z in ((p1, z2), (p2, z1))]
    same_gradient(found, oracle.total(expected) / 6, list(raw.values())[:2])
    by_target = torch.autograd.grad(found, list(raw.values())[2:], allow_unused=True)
    assert all(each is None for each in by_target)


def test_byol_is_the_sum_of_both_squared_distances_to_the_momentum_encoder() -> None:
    method = doubled(byol)
    outputs = method({VIEW: images(2)})
    raw = {slot: each.detach().clone().requires_grad_() for slot, each in outputs.items()}
    found = method.objective(BatchOutputs({slot: unit(each) for slot, each in raw.items()}, IDS, IDS)).loss
    q1, q2, z2, z1 = (unit(each) for each in raw.values())
    assert [(slot.branch, slot.copy) for slot in raw] == [("query", 0), ("query", 1), ("key", 1), ("key", 0)]
    expected = [oracle.distance(q[i], z[i]) for i in range(6) for q, z in ((q1, z2), (q2, z1))]
    same_gradient(found, oracle.total(expected) / 6, raw.values())


@pytest.mark.parametrize("make", [simsiam, byol])
def test_small_crops_predict_both_large_copies_and_are_not_predicted(make: object) -> None:
    """The mean over pairs for SimSiam; for BYOL the sum over what is predicted of the mean over who predicts it."""
    method = doubled(make, small=2)
    assert (method.views, method.small, method.positives) == ({VIEW: 4}, 2, 2)
    outputs = method({VIEW: images(4)})
    raw = {slot: each.detach().clone().requires_grad_() for slot, each in outputs.items()}
    found = method.objective(BatchOutputs({slot: unit(each) for slot, each in raw.items()}, IDS, IDS)).loss
    asked = {slot.copy: each for slot, each in raw.items() if slot.branch == "query" and slot.name == "embedding"}
    given = {slot.copy: each for slot, each in raw.items() if slot.branch == "key" or slot.name == "projection"}
    assert (sorted(asked), sorted(given)) == ([0, 1, 2, 3], [0, 1])
    parts = []
    for target in given:
        others = [copy for copy in asked if copy != target]
        each = [(unit(asked[copy])[i], unit(given[target])[i].detach()) for copy in others for i in range(6)]
        values = [oracle.distance(*pair) if make is byol else -oracle.dot(*pair) for pair in each]
        parts.append(oracle.mean(values))
    expected = oracle.total(parts) if make is byol else oracle.mean(parts)
    same_gradient(found, expected, asked.values())


def test_what_byol_predicts_has_no_gradient_and_follows_slowly() -> None:
    method = doubled(byol, momentum=lambda step, total: 0.75)
    batch = outputs_of(method, images(2))
    assert [each.requires_grad for each in batch.outputs.values()] == [True, True, False, False]
    with torch.no_grad():
        for each in method.towers.query.parameters():
            each.add_(4.0)
    method.update(batch, 0, 2)
    assert method.towers.key is not None
    for key, query in zip(method.towers.key.parameters(), method.towers.query.parameters(), strict=True):
        torch.testing.assert_close(query - key, torch.full_like(query, 3.0))


@pytest.mark.parametrize("make", [simsiam, byol])
def test_copies_go_through_the_encoder_one_after_the_other(make: object) -> None:
    encoder = plain()
    method, rows = doubled(make, encoder), Rows(encoder)
    outputs_of(method, images(2))
    assert rows.calls == [6, 6]


@pytest.mark.parametrize("make", [simsiam, byol])
def test_two_embeddings_that_one_network_has_made_are_watched(make: object) -> None:
    method = doubled(make)
    (term,) = method.terms
    assert isinstance(term, Alignment)
    batch = outputs_of(method, images(2))
    seen = term(batch).watched
    assert seen is not None
    assert torch.equal(seen.query, batch.outputs[term.pairs[0][1]])
    assert torch.equal(seen.positive, batch.outputs[term.pairs[1][1]])


def test_published_heads_have_the_layers_of_the_authors_code() -> None:
    encoder = create("patchnet", size=16, widths=(8, 16), blocks=(1, 1))
    method = simsiam(encoder, head=partial(heads.projector, dim_out=32, hidden=32, layers=3))
    assert method.towers.dim == 32
    predictor = method.towers.predictor["shared"]
    assert isinstance(predictor, nn.Sequential)
    assert [type(part).__name__ for part in predictor] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert [name for name, _ in predictor.named_parameters() if name.startswith(("0", "3"))] == [
        "0.weight", "3.weight", "3.bias"
    ]  # fmt: skip
