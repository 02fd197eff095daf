"""Measures of one step: formulas in float64 loops, published numbers, and estimates from a part of the negatives."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import memories
from manyview.core.negatives import Negatives, Triple
from manyview.core.sample import Batch
from manyview.data import Scenes
from manyview.diagnose import entropies, flat_share, measure, validation
from manyview.diagnose.measures import (
    KEYS,
    PER_QUERY,
    PREFIX,
    QUERIES,
    batch_measures,
    log_negatives,
    measure_step,
    measure_watched,
    measured_of,
    std_share,
)
from manyview.encoders import heads
from manyview.losses import LOSSES, alignment, info_nce, nce, uniformity
from manyview.memories import Memory
from manyview.methods import METHODS, BatchOutputs, Contrast, Method, cmc
from manyview.methods.embeddings import Embeddings
from manyview.methods.method import VIEW, Objective
from manyview.methods.term import TermOutput, Watched
from manyview.methods.topologies import every_copy, view_pairs
from manyview.views import AUGMENTATIONS
from tests.golden import DOUBLE, assert_value, entries, golden, parameter, unit
from tests.methods.small import (
    DIM,
    INSTANCES,
    ONE_VIEW,
    SMALL_PARTS,
    WITHOUT_NEGATIVES,
    Given,
    images,
    of_queue,
    plain,
    queue_of,
    term_of,
)
from tests.methods.small import batch as given_outputs


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return unit(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def of(triple: Triple, *, temperature: float | None = 0.2, t_neg: float = 2.0) -> dict[str, float]:
    query, positives, negatives = triple.query, triple.positives, triple.negatives
    return measure(query, positives, negatives, temperature=temperature, t_neg=t_neg, present=triple.present)


def two_views(images: int = 6, dim: int = 8) -> Triple:
    first = drawn(images, dim)
    return every_copy(Embeddings([first, unit(first + 0.5 * drawn(images, dim, seed=1))]), Memory())[0]


@pytest.mark.parametrize("entry", [entry for entry in entries("cacr_eq/") if "none" not in entry])
def test_the_conditional_entropy_is_the_published_one(entry: str) -> None:
    views = unit(DOUBLE.given("views_raw"))
    ids = torch.arange(views.shape[1])
    negatives = Negatives(views[0], ids, ids)
    t_neg = parameter(entry, "t_neg")
    measured = measure(views[0], views[1:].transpose(0, 1), negatives, temperature=None, t_neg=t_neg)
    assert_value(entry, torch.tensor(measured["entropy"]).double(), DOUBLE._replace(loss=1e-6), "cond_entropy")
    assert measured["entropy_limit"] == pytest.approx(math.log(5))
    assert measured["entropy_share"] == pytest.approx(measured["entropy"] / math.log(5))


def test_weights_that_are_all_the_same_have_the_largest_entropy() -> None:
    entry = "cacr_eq/K4_tpos1.0_tneg0.9_euclidean_none"
    measured = of(two_views(), t_neg=1e-6)
    assert measured["entropy_share"] == pytest.approx(1, abs=1e-4)
    assert float(golden(f"{entry}/cond_entropy")) == pytest.approx(math.log(5))


def test_alignment_and_uniformity_are_those_of_the_losses() -> None:
    query, keys = drawn(20, 8), drawn(20, 8, seed=1)
    measured = measure(query, keys[:, None], Negatives(drawn(30, 8, seed=2)), temperature=None, t_neg=1.0)
    assert measured["alignment"] == pytest.approx(float(alignment(query, keys)), abs=1e-5)
    assert measured["uniformity"] == pytest.approx(float(uniformity(query)), abs=1e-5)


def test_two_views_of_one_image_are_no_pair_of_different_images() -> None:
    triple = two_views()
    query, ids = triple.query, torch.arange(6).repeat(2)
    pairs = [(i, j) for i in range(12) for j in range(12) if ids[i] != ids[j]]
    alike = torch.tensor([float(query[i] @ query[j]) for i, j in pairs])
    measured = of(triple)
    assert measured["query_similarity"] == pytest.approx(float(alike.mean()), abs=1e-5)
    assert measured["uniformity"] == pytest.approx(float((4 * alike - 4).exp().mean().log()), abs=1e-5)
    assert measured["negative_similarity"] == pytest.approx(float(alike.mean()), abs=1e-5)
    assert measured["gap"] == measured["positive_similarity"] - measured["negative_similarity"]
    assert measured["negatives"] == 10


def test_the_coupling_is_the_factor_of_the_gradient_of_info_nce() -> None:
    """DCL's appendix: the positive key's gradient is q_B times that of a loss without the positive below the line."""
    query, keys, queue = drawn(4, 8), drawn(4, 1, 8, seed=1).requires_grad_(), Negatives(drawn(30, 8, seed=2))
    info_nce(query, keys, queue, temperature=0.2).backward()
    assert keys.grad is not None
    factors = keys.grad.norm(dim=-1) * 4 * 0.2  # |q| = 1, a mean over 4, and 1 / temperature
    assert measure(query, keys, queue, temperature=0.2, t_neg=1.0)["coupling"] == pytest.approx(float(factors.mean()))


def test_the_coupling_is_left_out_without_a_temperature() -> None:
    assert "coupling" not in of(two_views(), temperature=None)


def test_positives_that_are_not_there_do_not_count() -> None:
    query, keys, queue = drawn(4, 8), drawn(4, 2, 8, seed=1), Negatives(drawn(30, 8, seed=2))
    present = torch.tensor([[True, True], [True, False], [False, False], [True, True]])
    broken = keys.masked_fill(~present[:, :, None], torch.nan)
    measured = measure(query, broken, queue, temperature=0.2, t_neg=1.0, present=present)
    similar = (query[:, None] * keys).sum(-1)
    expected = (similar[0].mean() + similar[1, 0] + similar[3].mean()) / 3
    assert measured["positive_similarity"] == pytest.approx(float(expected), abs=1e-6)
    assert all(math.isfinite(value) for value in measured.values())


def test_negatives_by_ids_index_rows_and_split_are_all_read() -> None:
    first, second = drawn(6, 8), drawn(6, 8, seed=1)
    split = of(view_pairs(Embeddings([first, second]), Memory())[0])
    cross = (first @ second.T)[~torch.eye(6, dtype=torch.bool)]
    assert split["negative_similarity"] == pytest.approx(float(cross.mean()), abs=1e-6)
    bank, index = drawn(40, 8, seed=3), torch.randint(40, (6, 9))
    indexed = measure(first, second[:, None], Negatives(bank, index=index), temperature=0.2, t_neg=1.0)
    gathered = measure(first, second[:, None], Negatives(bank[index]), temperature=0.2, t_neg=1.0)
    assert indexed == pytest.approx(gathered, abs=1e-5)


def layouts(images: int) -> dict[str, Triple]:
    """More queries and keys than are read, in every shape that negatives have."""
    first, queue = drawn(images, 16), drawn(5 * KEYS + 7, 16, seed=2)
    second, ids = unit(first + 0.3 * drawn(images, 16, seed=1)), torch.arange(images)
    named = Negatives(queue, torch.arange(len(queue)) + images, ids)
    index = torch.randint(len(queue), (images, 4 * PER_QUERY + 1), generator=torch.Generator().manual_seed(3))
    return {
        "queue": Triple(first, second[:, None], named),
        "batch and queue": Triple(first, second[:, None], Negatives(first, ids, ids) + named),
        "bank": Triple(first, second[:, None], Negatives(queue, index=index)),
        "own": Triple(first, second[:, None], Negatives(queue[index])),
        "all views": every_copy(Embeddings([first, second]), Memory())[0],
        "both directions": view_pairs(Embeddings([first, second]), Memory())[0],
    }


@pytest.mark.parametrize("layout", list(layouts(2)))
def test_a_part_of_queries_and_negatives_stands_for_all(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    triple = layouts(QUERIES + 300)[layout]
    part = of(triple)
    for limit in ("QUERIES", "KEYS", "PER_QUERY"):
        monkeypatch.setattr(f"manyview.diagnose.measures.{limit}", 10**9)
    whole = of(triple)
    assert part["negatives"] == pytest.approx(whole["negatives"], rel=0.01)
    for name in ("entropy", "negative_similarity", "positive_similarity", "coupling", "uniformity", "alignment"):
        assert part[name] == pytest.approx(whole[name], abs=0.03), name


def test_vectors_that_are_no_numbers_are_measured_as_such() -> None:
    query = drawn(4, 8).fill_(torch.nan)
    measured = measure(query, query[:, None], Negatives(drawn(30, 8)), temperature=0.2, t_neg=1.0)
    assert all(math.isnan(measured[name]) for name in ("rank", "alignment", "coupling", "query_similarity"))


def test_no_gradient_is_kept_and_none_is_changed() -> None:
    triple = two_views()
    query = triple.query.clone().requires_grad_()
    of(triple._replace(query=query))
    assert query.grad is None


def test_pictures_of_one_colour_are_found_also_in_augmented_views() -> None:
    raw = Scenes(20, size=16).batch(torch.arange(20))["image"]
    raw[:5] = torch.tensor([200, 30, 90], dtype=torch.uint8)[:, None, None]
    copies = AUGMENTATIONS["simclr-cifar"](16)({"image": raw}, torch.arange(20), seed=0, epoch=0)["image"]
    assert flat_share(copies[0]) == 0.25
    assert flat_share(raw.float()) == 0.25


QUEUED = {"jcl", "multikey", "moco_v1", "moco_v2", "cacr_moco", "align_uniform_moco"}
IDS = torch.arange(100, 106)


def made(name: str, **options: Any) -> Method:
    """With batch norm and dropout, whose statistics and draws could move."""
    if name in QUEUED:
        options["memory"] = of_queue("last" if name == "cacr_moco" else "each", within_batch=1.0)
    head = options.pop("head", partial(heads.mlp, dim_out=DIM))
    method: Method = METHODS[name](plain(norm=True, dropout=0.5), head=head, **SMALL_PARTS.get(name, {}), **options)
    return method.start(INSTANCES).train()


def copies(method: Method) -> dict[str, list[Tensor]]:
    return {VIEW: [each.float() for each in images(method.views[VIEW])]}


def batch(count: int = len(IDS)) -> Batch:
    ids = IDS[:count]
    return Batch(ids, ids - 100, torch.full_like(ids, -1), {}, lambda _: {})


def embedded(method: Method) -> BatchOutputs:
    """In eval mode, which is left on."""
    with torch.no_grad():
        return BatchOutputs(method.eval()(copies(method)), IDS, IDS - 100)


@pytest.mark.parametrize("name", ONE_VIEW)
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


@pytest.mark.parametrize("name", [name for name in ONE_VIEW if name != "npid"])  # whose bank knows no held-out image
def test_it_is_the_loss_and_the_measures_of_the_batch_in_eval_mode(name: str) -> None:
    method = made(name)
    found = validation(method, copies(method), batch())
    assert all(key.startswith(PREFIX) and math.isfinite(value) for key, value in found.items())
    outputs, term = embedded(method), term_of(method)
    with torch.no_grad():
        objective = method.objective(outputs)
    assert found["validation_loss"] == pytest.approx(float(objective.loss), rel=1e-5)
    measured = measured_of(term, objective.terms[term.name])
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
    output = TermOutput(triple.query, [triple])
    assert measured_of(term, output) == measure(*given, temperature=None, t_neg=0.7)
    coupled = made("simclr", loss=partial(LOSSES["info_nce"], temperature=0.4))
    assert measured_of(term_of(coupled), output) == measure(*given, temperature=0.4, t_neg=2.0)


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
    found = batch_measures(method, given_outputs(method, Given(queries)))
    assert (found["rank_limit"], found["dim"]) == (DIM, DIM)


def test_a_contrast_without_queries_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process all of whose images lack a view, while others have theirs."""
    method, given = made("simclr"), embedded(made("simclr"))
    loss, terms = method.objective(given)
    (triple,) = terms["contrast"].triples
    empty = TermOutput(loss, [triple._replace(query=triple.query[:0], positives=triple.positives[:0])])
    monkeypatch.setattr(method, "objective", lambda batch: Objective(loss, {"contrast": empty}))
    assert list(batch_measures(method, given)) == ["loss"]


def many_views(**options: Any) -> tuple[Method, BatchOutputs]:
    """CMC of two views, one of which says the same of all images, with what its towers answered."""
    encoders = {view: plain(seed=number) for number, view in enumerate(("rgb", "thermal"))}
    method = cmc(encoders, head=partial(heads.linear, dim_out=DIM), **options).start(INSTANCES)
    first, same = drawn(6, DIM), drawn(1, DIM).expand(6, DIM) + 1e-3 * drawn(6, DIM, seed=2)
    outputs = {slot: first if slot.view == "rgb" else unit(same) for slot in method.slots}
    return method, BatchOutputs(outputs, torch.arange(6), torch.arange(6))


def test_each_view_is_measured_by_its_own_queries() -> None:
    method, given = many_views()
    found = measure_step(method, objective := method.objective(given))
    (rgb, thermal) = (measured_of(term, objective.terms[term.name]) for term in contrasts(method))
    assert {name: found[name] for name in rgb} == rgb  # the plain names are the first contrast's
    for name in ("query_similarity", "positive_similarity", "rank", "rank_limit", "dim", "negatives", "coupling"):
        assert (found[f"{name}/rgb"], found[f"{name}/thermal"]) == (rgb[name], thermal[name])
    assert found["query_similarity/thermal"] > 0.99 > 0.5 > found["query_similarity/rgb"]


def test_one_view_is_measured_as_it_always_was() -> None:
    method = cmc({"image": plain()}, copies=3, head=partial(heads.linear, dim_out=DIM))
    outputs = {slot: drawn(6, DIM, seed=number) for number, slot in enumerate(method.slots)}
    objective = method.objective(BatchOutputs(outputs, torch.arange(6), torch.arange(6)))
    first = contrasts(method)[0]
    assert measure_step(method, objective) == measured_of(first, objective.terms[first.name])


@pytest.mark.parametrize(
    ("options", "negatives"),
    [
        ({}, 5),  # the batch's other images
        ({"memory": partial(memories.bank, m=7)}, 7),
        ({"memory": partial(memories.bank, m=7), "loss": nce}, None),
        ({"loss": partial(LOSSES["dcl"], temperature=0.1)}, None),
    ],
    ids=["batch", "bank", "nce", "dcl"],
)
def test_the_bound_counts_the_negatives_of_each_edge_where_it_holds(options: Any, negatives: int | None) -> None:
    """CMC Eq. 6: k is the number of negatives, the positive not among them."""
    method, given = many_views(**options)
    found = {name: each.item() for name, each in log_negatives(method, method.objective(given)).items()}
    edges = ("rgb to thermal", "thermal to rgb")
    assert found == ({} if negatives is None else {edge: pytest.approx(math.log(negatives)) for edge in edges})


def test_images_without_a_view_are_no_negatives_of_the_bound() -> None:
    method, given = many_views()
    present = {"rgb": torch.ones(6) > 0, "thermal": torch.arange(6) > 1}
    found = log_negatives(method, method.objective(replace(given, present=present)))
    assert found["rgb to thermal"].item() == pytest.approx(math.log(3))  # four have thermal, one is the positive
    nobody = {"rgb": torch.ones(6) > 0, "thermal": torch.zeros(6) > 0}
    nothing = method.objective(replace(given, present=nobody))
    assert (measure_step(method, nothing), log_negatives(method, nothing)) == ({}, {})
    assert all(each.skipped for each in nothing.terms.values())


def contrasts(method: Method) -> list[Contrast]:
    return [term for term in method.terms if isinstance(term, Contrast)]


def test_what_has_no_negatives_is_measured_at_unit_length_against_the_other_images() -> None:
    generator = torch.Generator().manual_seed(0)
    query, positive = torch.randn(2, 6, 4, generator=generator)
    ids = torch.arange(6)
    found = measure_watched(Watched(5 * query, positive, ids))
    unit_query, unit_positive = F.normalize(query, dim=1), F.normalize(positive, dim=1)
    apart = [float(unit_query[i] @ unit_query[j]) for i in range(6) for j in range(6) if i != j]
    assert found["query_similarity"] == found["negative_similarity"] == pytest.approx(sum(apart) / 30, rel=1e-5)
    near = float((unit_query * unit_positive).sum(1).mean())
    assert found["positive_similarity"] == pytest.approx(near, rel=1e-5)
    assert found["alignment"] == pytest.approx(2 - 2 * near, rel=1e-5)
    assert found["gap"] == pytest.approx(near - sum(apart) / 30, rel=1e-5)
    assert {"entropy", "negatives", "coupling", "prototypes"}.isdisjoint(found)


def test_the_std_of_dimensions_is_none_of_one_point_and_one_of_the_sphere() -> None:
    point, ball = torch.ones(400, 8), torch.randn(4000, 8, generator=torch.Generator().manual_seed(1))
    assert std_share(F.normalize(point, dim=1)) == pytest.approx(0, abs=1e-6)
    assert std_share(F.normalize(ball, dim=1)) == pytest.approx(1, abs=0.02)


def test_assignments_tell_whether_one_prototype_has_all_images_or_all_have_each() -> None:
    x, ids = torch.eye(4), torch.arange(4)
    one = torch.tensor([[1.0, 0, 0, 0]]).repeat(4, 1)
    for assigned, used, entropy in ((one, 1, 0.0), (torch.eye(4), 4, 0.0), (torch.full((4, 4), 0.25), 4, math.log(4))):
        found = measure_watched(Watched(x, x, ids, assigned))
        assert found["prototypes_in_use"] == pytest.approx(used)
        assert found["assignment_entropy"] == pytest.approx(entropy)
        assert (found["prototypes"], found["assignment_entropy_limit"]) == (4.0, math.log(4))


@pytest.mark.parametrize("name", WITHOUT_NEGATIVES)
def test_a_method_without_negatives_is_validated_and_measured_without_being_known_by_name(name: str) -> None:
    method = made(name)
    found = validation(method, copies(method), batch())
    assert found.keys() >= {PREFIX + key for key in ("loss", "rank", "query_similarity", "std", "batch_entropy")}
    assert (f"{PREFIX}prototypes_in_use" in found) == (name in ("swav", "dino"))
    with torch.no_grad():
        objective = method.objective(embedded(method))
    assert measure_step(method, objective).keys() >= {"rank", "query_similarity", "alignment"}
