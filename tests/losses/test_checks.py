from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import (
    LOSSES,
    align_uniform,
    alignment,
    attraction,
    bfloat16_matmul,
    cacr,
    dcl,
    hard_negative,
    info_nce,
    jcl,
    nce,
    nce_partition,
    repulsion,
    uniformity,
)

NEEDED: dict[str, dict[str, Any]] = {"nce": {"population": 10, "partition": 20.0}}
CALLS = {name: partial(loss, **NEEDED.get(name, {})) for name, loss in LOSSES.items()}
CALLS["nce_partition"] = partial(nce_partition, population=10)
WITH_REDUCTION = {name: call for name, call in CALLS.items() if name != "nce_partition"}
WITH_NEGATIVES = {name: call for name, call in CALLS.items() if name != "attraction"}
WITH_TEMPERATURE = {name: CALLS[name] for name in ("info_nce", "dcl", "jcl", "hard_negative", "nce", "nce_partition")}

QUERY, POSITIVES, QUEUE = torch.eye(4)[:3], torch.eye(4)[:3, None].repeat(1, 2, 1), Negatives(torch.ones(5, 4))

for_every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
for_every_call_with_reduction = pytest.mark.parametrize("call", WITH_REDUCTION.values(), ids=WITH_REDUCTION.keys())
for_every_call_with_negatives = pytest.mark.parametrize("call", WITH_NEGATIVES.values(), ids=WITH_NEGATIVES.keys())
for_every_call_with_temperature = pytest.mark.parametrize(
    "call", WITH_TEMPERATURE.values(), ids=WITH_TEMPERATURE.keys()
)

Call = partial[Tensor]


@for_every_call
def test_good_inputs_are_accepted(call: Call) -> None:
    assert call(QUERY, POSITIVES, QUEUE).isfinite()


@for_every_call
@pytest.mark.parametrize(
    ("query", "says"),
    [
        (torch.ones(3), r"query: expected floats \(N, d\), got torch.float32 \(3,\)"),
        (torch.ones(3, 2, 4), r"query: expected floats \(N, d\), got torch.float32 \(3, 2, 4\)"),
        (torch.ones(3, 4, dtype=torch.long), r"query: expected floats \(N, d\), got torch.int64 \(3, 4\)"),
    ],
)
def test_a_query_of_another_kind_is_refused(call: Call, query: Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(query, POSITIVES, QUEUE)


@for_every_call
@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 4), (3, 2, 5), (3, 2, 4, 1)])
def test_positives_of_another_shape_are_refused(call: Call, shape: tuple[int, ...]) -> None:
    got = ", ".join(map(str, shape))
    says = rf"positives: expected floats \(3, K, 4\) for query \(3, 4\), got torch.float32 \({got}\)"
    with pytest.raises(ValueError, match=says):
        call(QUERY, torch.ones(shape), QUEUE)


@for_every_call
def test_positives_that_are_no_floats_are_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=r"positives: expected floats .*torch.int64 \(3, 2, 4\)"):
        call(QUERY, torch.ones(3, 2, 4, dtype=torch.long), QUEUE)


@for_every_call
def test_no_positives_are_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=r"positives: a query needs at least one, got K = 0 in \(3, 0, 4\)"):
        call(QUERY, torch.ones(3, 0, 4), QUEUE)


@for_every_call
@pytest.mark.parametrize(
    "present", [torch.ones(3, 2), torch.ones(3, 1, dtype=torch.bool), torch.ones(3, dtype=torch.bool)]
)
def test_present_of_another_shape_or_type_is_refused(call: Call, present: Tensor) -> None:
    with pytest.raises(ValueError, match=r"present: expected bool \(3, 2\) for positives \(3, 2, 4\), got"):
        call(QUERY, POSITIVES, QUEUE, present=present)


@for_every_call_with_reduction
def test_an_unknown_reduction_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match="reduction: expected 'mean' or 'none', got 'sum'"):
        call(QUERY, POSITIVES, QUEUE, reduction="sum")


@for_every_call_with_reduction
def test_present_goes_with_a_mean_only(call: Call) -> None:
    with pytest.raises(ValueError, match="reduction: 'none'"):
        call(QUERY, POSITIVES, QUEUE, present=torch.ones(3, 2, dtype=torch.bool), reduction="none")


@for_every_call_with_reduction
def test_a_batch_without_any_positive_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match="query: expected at least one with a positive, got 3 queries"):
        call(QUERY, POSITIVES, QUEUE, present=torch.zeros(3, 2, dtype=torch.bool))


@for_every_call_with_reduction
def test_an_empty_batch_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match="query: expected at least one with a positive, got 0 queries"):
        call(torch.ones(0, 4), torch.ones(0, 2, 4), QUEUE)


@for_every_call_with_negatives
@pytest.mark.parametrize(
    ("negatives", "says"),
    [
        (torch.ones(5, 4), r"negatives: expected Negatives\(keys, ...\), got Tensor"),
        (Negatives(torch.ones(5, 3)), r"negatives: keys \(5, 3\) do not have the query's d = 4"),
        (Negatives(torch.ones(2, 5, 4)), r"negatives: keys \(2, 5, 4\) are for another number of queries than 3"),
        (
            Negatives(torch.ones(5, 4), index=torch.zeros(2, 6, dtype=torch.long)),
            r"negatives: index \(2, 6\) is for another number of queries than 3",
        ),
        (
            Negatives(torch.ones(5, 4), torch.arange(5), torch.arange(2)),
            r"negatives: query_ids \(2,\) is for another number of queries than 3",
        ),
        (Negatives(torch.ones(5, 4), split=(4, 2)), "negatives: split: 4 is beyond the 3 queries"),
        (QUEUE + Negatives(torch.ones(5, 3)), r"negatives: keys \(5, 3\) do not have the query's d = 4"),
    ],
    ids=["a tensor", "width", "keys per query", "index", "query_ids", "split", "the second source"],
)
def test_negatives_for_another_query_are_refused(call: Call, negatives: Negatives, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(QUERY, POSITIVES, negatives)


@for_every_call_with_negatives
def test_a_query_with_no_negative_left_is_refused(call: Call) -> None:
    says = r"negatives: none is left for query 0 of query \(3, 4\) against Negatives\(\(3, 4\)\)"
    ids = torch.zeros(3, dtype=torch.long)
    with pytest.raises(ValueError, match=says):
        call(QUERY, POSITIVES, Negatives(QUERY, ids, ids))
    with pytest.raises(ValueError, match="negatives: none is left for query 1"):
        call(QUERY, POSITIVES, Negatives(torch.ones(2, 4), torch.tensor([7, 7]), torch.tensor([6, 7, 8])))


@for_every_call_with_negatives
def test_a_batch_of_one_image_is_refused(call: Call) -> None:
    one = torch.ones(1, 4)
    with pytest.raises(ValueError, match="Give two images or more, and ids that differ between images"):
        call(one, one[:, None], Negatives(one, torch.tensor([3]), torch.tensor([3])))


@for_every_call_with_negatives
def test_an_empty_queue_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=r"negatives: none is left for query 0 .* Negatives\(\(0, 4\)\)"):
        call(QUERY, POSITIVES, Negatives(torch.ones(0, 4)))


@pytest.mark.parametrize("ids", [(torch.arange(5), None), (None, torch.arange(3))])
def test_ids_are_given_together_or_not_at_all(ids: tuple[Tensor | None, Tensor | None]) -> None:
    with pytest.raises(ValueError, match="key_ids and query_ids: give both or neither"):
        Negatives(torch.ones(5, 4), *ids)


@for_every_call_with_temperature
@pytest.mark.parametrize("temperature", [0, -0.1, float("nan"), torch.tensor(0.0), torch.tensor(float("nan"))])
def test_a_temperature_that_is_not_positive_is_refused(call: Call, temperature: float | Tensor) -> None:
    with pytest.raises(ValueError, match="temperature: expected a positive number, got"):
        call(QUERY, POSITIVES, QUEUE, temperature=temperature)


@for_every_call_with_temperature
def test_two_temperatures_are_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=r"temperature: expected one number, got shape \(2,\)"):
        call(QUERY, POSITIVES, QUEUE, temperature=torch.tensor([0.1, 0.2]))


@for_every_call_with_temperature
def test_a_temperature_in_a_tensor_of_any_shape_gives_the_same(call: Call) -> None:
    wanted = call(QUERY, POSITIVES, QUEUE, temperature=0.25)
    for temperature in (torch.tensor(0.25), torch.tensor([0.25]), torch.tensor([[0.25]])):
        found = call(QUERY, POSITIVES, QUEUE, temperature=temperature)
        assert found.shape == ()
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (partial(attraction, t_pos=0.0), "t_pos"),
        (partial(repulsion, t_neg=-1.0), "t_neg"),
        (partial(repulsion, cost="rbf", t_neg=float("nan")), "t_neg"),
        (partial(repulsion, cost="rbf", t_rbf=0.0), "t_rbf"),
        (partial(cacr, t_pos=0.0), "t_pos"),
        (partial(cacr, t_neg=0.0), "t_neg"),
        (partial(cacr, cost="rbf", t_rbf=-2.0), "t_rbf"),
        (partial(dcl, sigma=0.0), "sigma"),
        (partial(align_uniform, alpha=0.0), "alpha"),
        (partial(align_uniform, t=-1.0), "t"),
        (partial(nce, population=0, partition=1.0), "population"),
        (partial(nce, population=10, partition=0.0), "partition"),
        (partial(nce_partition, population=-1), "population"),
    ],
)
def test_a_number_that_must_be_positive_is_checked(call: Call, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected a positive number, got"):
        call(QUERY, POSITIVES, QUEUE)


@pytest.mark.parametrize(
    ("name", "options", "argument"),
    [
        ("attraction", {}, "t_pos"),
        ("repulsion", {}, "t_neg"),
        ("repulsion", {"cost": "rbf"}, "t_rbf"),
        ("cacr", {}, "t_neg"),
        ("dcl", {}, "sigma"),
        ("align_uniform", {}, "alpha"),
        ("align_uniform", {}, "t"),
    ],
)
def test_only_a_temperature_can_learn(name: str, options: dict[str, str], argument: str) -> None:
    learnt = {argument: torch.tensor(1.0, requires_grad=True)}
    with pytest.raises(ValueError, match=rf"^{argument}: expected a number, got a tensor that requires gradient"):
        CALLS[name](QUERY, POSITIVES, QUEUE, **options, **learnt)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (partial(jcl, strength=-0.1), "strength: expected a number of at least 0, got -0.1"),
        (partial(jcl, strength=float("nan")), "strength: expected a number of at least 0, got nan"),
        (partial(hard_negative, beta=-1.0), "beta: expected a number of at least 0, got -1.0"),
        (partial(hard_negative, tau_plus=1.0), "tau_plus: expected a share from 0 up to below 1, got 1.0"),
        (partial(hard_negative, tau_plus=-0.1), "tau_plus: expected a share from 0 up to below 1, got -0.1"),
    ],
)
def test_a_number_out_of_its_range_is_refused(call: Call, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(QUERY, POSITIVES, QUEUE)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("attraction", {"cost": "cosine"}, "cost: expected one of 'euclidean', 'rbf', 'inner', got 'cosine'"),
        ("repulsion", {"cost": "cosine"}, "cost: expected one of 'euclidean', 'rbf', 'inner', got 'cosine'"),
        ("cacr", {"cost": "cosine"}, "cost: expected one of 'euclidean', 'rbf', 'inner', got 'cosine'"),
        ("cacr", {"attract": "closest"}, "attract: expected one of 'far', 'near', 'uniform', got 'closest'"),
        ("cacr", {"repel": "closest"}, "repel: expected one of 'far', 'near', 'uniform', got 'closest'"),
        ("cacr", {"repel": "closest", "cost": "rbf"}, "repel: expected one of 'far', 'near', 'uniform', got 'closest'"),
        ("cacr", {"detach_weights": "negatives"}, "detach_weights: expected one of False, True, 'positives'"),
        ("attraction", {"detach_weights": "negatives"}, "detach_weights: expected one of False, True, 'positives'"),
        ("repulsion", {"detach_weights": "negatives"}, "detach_weights: expected one of False, True, 'positives'"),
        ("nce", {"noise": "max"}, "noise: expected one of 'sum', 'mean', got 'max'"),
    ],
)
def test_an_unknown_choice_is_refused(name: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CALLS[name](QUERY, POSITIVES, QUEUE, **options)


@pytest.mark.parametrize(
    "call",
    [align_uniform, partial(repulsion, cost="rbf"), partial(cacr, cost="rbf"), partial(dcl, sigma=0.5)],
    ids=["align_uniform", "repulsion, rbf", "cacr, rbf", "dclw"],
)
def test_a_loss_that_pools_over_queries_has_no_value_per_query(call: Call) -> None:
    with pytest.raises(ValueError, match=r"reduction: 'none' is not possible, .*; use 'mean'"):
        call(QUERY, POSITIVES, QUEUE, reduction="none")


def test_the_rbf_cost_has_no_margin() -> None:
    with pytest.raises(ValueError, match="margin: is per query, but the RBF cost pools"):
        cacr(QUERY, POSITIVES, QUEUE, cost="rbf", margin=1.0)


@pytest.mark.parametrize(("x", "y"), [((3, 4), (4, 4)), ((3,), (3,)), ((0, 4), (0, 4)), ((3, 1, 4), (3, 1, 4))])
def test_alignment_wants_two_views_of_the_same_images(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x and y: expected equal shapes \(N, d\) with N >= 1, got"):
        alignment(torch.ones(x), torch.ones(y))


@pytest.mark.parametrize("shape", [(1, 4), (0, 4), (4,), (2, 3, 4)])
def test_uniformity_wants_two_vectors_or_more(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x: expected \(N, d\) with N >= 2, got"):
        uniformity(torch.ones(shape))


def test_alignment_and_uniformity_check_their_numbers() -> None:
    with pytest.raises(ValueError, match=r"^alpha: expected a positive number, got 0"):
        alignment(QUERY, QUERY, alpha=0)
    with pytest.raises(ValueError, match=r"^t: expected a positive number, got -2"):
        uniformity(QUERY, t=-2)


@for_every_call
def test_positives_that_are_all_there_need_no_word(call: Call) -> None:
    present = torch.ones(3, 2, dtype=torch.bool)
    torch.testing.assert_close(call(QUERY, POSITIVES, QUEUE, present=present), call(QUERY, POSITIVES, QUEUE))


def test_attraction_ignores_its_negatives_but_not_their_mistakes() -> None:
    with pytest.raises(ValueError, match=r"negatives: keys \(5, 3\)"):
        attraction(QUERY, POSITIVES, Negatives(torch.ones(5, 3)))


@contextmanager
def every_warning_is_an_error() -> Iterator[None]:
    """PyTorch gives some of its warnings only once per process otherwise."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        torch.set_warn_always(before)


@for_every_call_with_temperature
def test_a_learnt_temperature_gives_no_warning(call: Call) -> None:
    temperature = torch.tensor(0.25, requires_grad=True)
    with every_warning_is_an_error():
        call(QUERY, POSITIVES, QUEUE, temperature=temperature)
        call(QUERY, POSITIVES, Negatives(QUERY, split=(1, 1)), temperature=temperature)


def test_a_learnt_temperature_gives_no_warning_in_bfloat16() -> None:
    temperature = torch.tensor(0.25, requires_grad=True)
    with every_warning_is_an_error(), bfloat16_matmul():
        info_nce(QUERY, POSITIVES, QUEUE, temperature=temperature)


@pytest.mark.parametrize("alpha", [0.5, 0.999])
def test_an_alpha_without_a_bounded_gradient_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"^alpha: expected a number of at least 1, .*got {alpha}"):
        alignment(QUERY, QUERY, alpha=alpha)


def test_a_partition_needs_a_query() -> None:
    with pytest.raises(ValueError, match=r"^query: expected at least one, got \(0, 4\)"):
        nce_partition(QUERY[:0], torch.ones(0, 1, 4), QUEUE, population=5)


def test_infinite_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^temperature: expected a positive number, got inf"):
        info_nce(QUERY, QUERY[:, None], QUEUE, temperature=float("inf"))
    with pytest.raises(ValueError, match=r"^weight: expected a positive number, got inf"):
        Negatives(QUERY, weight=float("inf"))
