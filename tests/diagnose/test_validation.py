from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Batch
from manyview.diagnose import entropies, measure, validation
from manyview.diagnose.validation import PREFIX, batch_measures, measured_of
from manyview.encoders import heads
from manyview.losses import LOSSES
from manyview.methods import METHODS, BatchOutputs, Method
from manyview.methods.method import VIEW, Objective
from manyview.methods.terms import TermOutput
from tests.methods.small import DIM, Given, images, of_queue, plain, queue_of, term_of
from tests.methods.small import batch as given_outputs

QUEUED = {"jcl", "multikey", "moco_v1", "moco_v2", "cacr_moco", "align_uniform_moco"}
IDS = torch.arange(100, 106)


def made(name: str, **options: Any) -> Method:
    """With batch norm and dropout, whose statistics and draws could move."""
    if name in QUEUED:
        options["memory"] = of_queue("last" if name == "cacr_moco" else "each", within_batch=1.0)
    head = options.pop("head", partial(heads.mlp, dim_out=DIM))
    method: Method = METHODS[name](plain(norm=True, dropout=0.5), head=head, **options)
    return method.train()


def copies(method: Method) -> dict[str, list[Tensor]]:
    return {VIEW: [each.float() for each in images(method.views[VIEW])]}


def batch(count: int = len(IDS)) -> Batch:
    ids = IDS[:count]
    return Batch(ids, ids - 100, torch.full_like(ids, -1), {}, lambda _: {})


def embedded(method: Method) -> BatchOutputs:
    """In eval mode, which is left on."""
    with torch.no_grad():
        return BatchOutputs(method.eval()(copies(method)), IDS, IDS - 100)


@pytest.mark.parametrize("name", list(METHODS))
def test_nothing_of_a_method_moves_by_being_validated(name: str) -> None:
    method = made(name)
    method.towers.encoder().eval()  # a part that was in eval mode alone
    modes = [part.training for part in method.modules()]
    state, random = copy.deepcopy(method.state_dict()), torch.get_rng_state()
    given = copies(method)
    before = [copy.clone() for copy in given[VIEW]]
    validation(method, given, batch())
    assert all(torch.equal(value, state[key]) for key, value in method.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert [part.training for part in method.modules()] == modes
    assert all(parameter.grad is None for parameter in method.parameters())
    assert all(torch.equal(now, then) for now, then in zip(given[VIEW], before, strict=True))


@pytest.mark.parametrize("name", list(METHODS))
def test_it_is_the_loss_and_the_measures_of_the_batch_in_eval_mode(name: str) -> None:
    method = made(name)
    found = validation(method, copies(method), batch())
    assert all(key.startswith(PREFIX) and math.isfinite(value) for key, value in found.items())
    outputs, term = embedded(method), term_of(method)
    with torch.no_grad():
        objective = method.objective(outputs)
    assert found["validation_loss"] == pytest.approx(float(objective.loss), rel=1e-5)
    measured = measured_of(term, objective.terms[term.name].triples[0])
    assert found.items() >= {PREFIX + key: value for key, value in measured.items()}.items()
    within = entropies(outputs.outputs[term.queries[0]], IDS, batch=6)
    assert found["validation_batch_entropy"] == within.mean
    assert found["validation_batch_entropy_limit"] == pytest.approx(math.log(5))


def test_asked_twice_it_says_the_same() -> None:
    method = made("simclr")
    assert validation(method, copies(method), batch()) == validation(method, copies(method), batch())


def test_a_queue_is_met_as_the_loss_meets_it_and_the_batch_beside_it() -> None:
    method = made("jcl")
    found = validation(method, copies(method), batch())
    assert found["validation_negatives"] == len(queue_of(method).keys) + 5 * len(term_of(method).keys)
    assert found["validation_entropy_limit"] == pytest.approx(math.log(found["validation_negatives"]))


def test_measures_are_at_the_loss_own_temperatures() -> None:
    method = made("cacr", loss=partial(LOSSES["cacr"], t_neg=0.7))
    outputs, term = embedded(method), term_of(method)
    with torch.no_grad():
        triple = term(outputs).triples[0]
    given = triple.query, triple.positives, triple.negatives
    assert measured_of(term, triple) == measure(*given, temperature=None, t_neg=0.7)
    coupled = made("simclr", loss=partial(LOSSES["info_nce"], temperature=0.4))
    assert measured_of(term_of(coupled), triple) == measure(*given, temperature=0.4, t_neg=2.0)


def test_a_strength_that_grows_is_at_what_it_has_grown_to() -> None:
    method = made("jcl", ramp=True)
    half, whole = (validation(method, copies(method), batch(), progress=share) for share in (0.5, 1.0))
    assert half["validation_loss"] != whole["validation_loss"]
    assert half["validation_entropy"] == whole["validation_entropy"]


def test_a_method_in_double_precision_takes_pictures_as_they_come() -> None:
    method = made("dcl")
    single, double = (validation(each, copies(method), batch()) for each in (method, copy.deepcopy(method).double()))
    assert double == pytest.approx(single, rel=1e-3, abs=1e-4)


def test_of_one_image_nothing_can_be_said() -> None:
    method = made("simclr")
    assert validation(method, {VIEW: [copy[:1] for copy in copies(method)[VIEW]]}, batch(1)) == {}


def test_the_mode_comes_back_also_after_an_error() -> None:
    method = made("simclr")
    with pytest.raises(IndexError):
        validation(method, {VIEW: copies(method)[VIEW][:1]}, batch())
    assert method.training


def test_vectors_that_are_already_there_need_no_network() -> None:
    method = made("simclr")
    queries = [torch.nn.functional.normalize(torch.randn(6, DIM), dim=1) for _ in range(2)]
    assert batch_measures(method, given_outputs(method, Given(queries)))["rank_limit"] == DIM


def test_a_contrast_without_queries_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process all of whose images lack a view, while others have theirs."""
    method, given = made("simclr"), embedded(made("simclr"))
    loss, terms = method.objective(given)
    (triple,) = terms["contrast"].triples
    empty = TermOutput(loss, [triple._replace(query=triple.query[:0], positives=triple.positives[:0])])
    monkeypatch.setattr(method, "objective", lambda batch: Objective(loss, {"contrast": empty}))
    assert list(batch_measures(method, given)) == ["loss"]
