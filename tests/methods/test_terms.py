"""Terms: their equations, what is missing, and the same gradient in one process and in two."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from manyview import losses
from manyview.core.distributed import world_size
from manyview.encoders import Slot, Towers, heads
from manyview.losses import is_pooled
from manyview.losses.prediction import l2
from manyview.memories import BankMemory, Memory
from manyview.methods import METHODS, Alignment, BatchOutputs, Contrast, Method, Prediction, Term, cmc_patch
from manyview.methods.contrast import total
from manyview.methods.term import TermOutput
from manyview.methods.terms import keys, queries, try_loss
from manyview.methods.topologies import every_copy, query_against_keys, view_pairs
from tests.core.test_distributed import Counted
from tests.losses import oracle
from tests.methods.small import (
    DIM,
    EVERY,
    IDS,
    doubled,
    golden_keys,
    golden_views,
    images,
    mapped,
    met,
    of_queue,
    plain,
    same_gradient,
)
from tests.two_processes import Found, in_two_processes

COUNT = 6
INDEX = torch.tensor([5, 1, 2, 9, 4, 7])
TWICE = torch.tensor([10, 11, 12, 13, 14, 11])  # image 11 is there twice
LABELS = torch.tensor([2, 0, 2, -1, 0, -1])
PRESENT = {
    "a": torch.tensor([1, 1, 1, 0, 1, 1]).bool(),
    "b": torch.tensor([1, 1, 0, 1, 1, 1]).bool(),
    "c": torch.tensor([0, 1, 0, 1, 1, 0]).bool(),
}


def batch(outputs: dict[Slot, Tensor], **options: Any) -> BatchOutputs:
    return BatchOutputs(outputs, IDS, options.pop("index", INDEX), **options)


def of_bank(**options: Any) -> BankMemory:
    given: dict[str, Any] = {"m": 5, "generator": torch.Generator().manual_seed(4)}
    memory = BankMemory(DIM, **given | options)
    memory.start(10)
    return memory.double()


QUERY, KEY = Slot("query", "a", 0), Slot("key", "b", 0)


def of_two(raw: Tensor) -> dict[Slot, Tensor]:
    return {QUERY: F.normalize(raw[0], dim=1), KEY: golden_keys(1)[0]}


# --- one process: equations


def test_the_queries_are_each_others_keys_or_keys_have_slots_of_their_own() -> None:
    raw, views = golden_views(2)
    term = Contrast(every_copy, losses.info_nce, queries("image", range(2)))
    found = term(batch(dict(zip(term.queries, views, strict=True))))
    (triple,) = found.triples
    expected = oracle.info_nce(triple.query, triple.positives, met(triple), temperature=0.2)
    same_gradient(found.loss, oracle.mean(expected), [raw])
    assert (term.asks, term.gathers) == (term.queries, term.queries)
    both = Contrast(query_against_keys, losses.info_nce, [QUERY], [KEY])
    assert (both.asks, both.gathers, both.keys) == ((QUERY, KEY), (QUERY, KEY), (KEY,))


def test_a_term_knows_what_its_loss_will_use() -> None:
    term = Contrast(every_copy, partial(losses.jcl, temperature=0.7), queries("image", range(2)), ramp=("strength",))
    assert (term.option("temperature"), term.option("strength"), term.option("sigma")) == (0.7, 4.0, None)
    assert term.loss_at(0.5).keywords == {"temperature": 0.7, "strength": 2.0}  # type: ignore[attr-defined]


def test_missing_positives_are_passed_on_to_the_loss() -> None:
    given: list[Tensor | None] = []

    def loss(
        query: Tensor, positives: Tensor, negatives: object, *, gather: object, present: Tensor | None = None
    ) -> Tensor:
        given.append(present)
        return query.sum()

    _, views = golden_views(3)
    slots = [QUERY, KEY, Slot("key", "c", 0)]
    term = Contrast(query_against_keys, loss, slots[:1], slots[1:])
    outputs = dict(zip(slots, views, strict=True))
    term(batch(outputs))
    term(batch(outputs, present=PRESENT))
    assert given[0] is None
    assert given[1] is not None
    assert given[1].tolist() == [[True, False], [True, True], [True, True], [True, False]]  # images 0, 1, 4, 5


def test_where_nothing_is_left_the_loss_is_zero_and_reaches_every_parameter() -> None:
    """Processes average gradients: one that had none at all would be waited for."""
    raw, views = golden_views(2)
    nobody = {"a": ~PRESENT["b"], "b": PRESENT["b"]}
    slots = [Slot("query", "a", 0), Slot("query", "b", 0)]
    found = Contrast(view_pairs, losses.info_nce, slots)(batch(dict(zip(slots, views, strict=True)), present=nobody))
    assert (found.triples, float(found.loss.detach()), found.loss.dtype) == ([], 0.0, torch.float64)
    (gradient,) = torch.autograd.grad(found.loss, raw)
    assert torch.equal(gradient, torch.zeros_like(raw))


@pytest.mark.parametrize("decay", [None, 0.5])
@pytest.mark.parametrize("stored", [True, False])
def test_nce_keeps_the_partition_of_the_first_batch_or_follows_it(stored: bool, decay: float | None) -> None:
    memory = of_bank(stored=stored, decay=decay)
    term = Contrast(query_against_keys, partial(losses.nce, temperature=0.5), [QUERY], [KEY], memory=memory)
    kept: list[Tensor] = []
    for step in range(3):
        raw, _ = golden_views(1)
        raw = (raw.detach() * (1 + step) + step).requires_grad_()
        outputs = of_two(raw)
        found = term(batch(outputs, step=step))
        drawn = memory.negatives(IDS, INDEX, step=step).sources[0].index
        assert drawn is not None
        negatives: oracle.Met = [[(memory.bank.vectors[j], 1.0) for j in row] for row in drawn]
        positives = memory.bank.vectors[INDEX][:, None] if stored else outputs[KEY][:, None]
        known: dict[str, Any] = {"population": 10, "temperature": 0.5}
        estimate = oracle.nce_partition(outputs[QUERY], positives, negatives, **known).detach()
        if not kept:
            kept.append(estimate)
        elif decay is not None:
            kept.append(decay * kept[-1] + (1 - decay) * estimate)
        expected = oracle.nce(outputs[QUERY], positives, negatives, partition=float(kept[-1]), **known)
        same_gradient(found.loss, oracle.mean(expected), [raw])
        literal = losses.nce(
            outputs[QUERY], positives, memory.negatives(IDS, INDEX, step=step), partition=memory.bank.partition, **known
        )
        torch.testing.assert_close(found.loss, literal, rtol=1e-12, atol=0)
        memory.update([outputs[KEY]], IDS, INDEX)
    torch.testing.assert_close(memory.bank.partition, kept[-1], rtol=1e-10, atol=0)


def test_nce_in_evaluation_keeps_nothing() -> None:
    memory = of_bank().eval()
    term = Contrast(query_against_keys, losses.nce, [QUERY], [KEY], memory=memory)
    before = {name: value.clone() for name, value in memory.state_dict().items()}
    raw, _ = golden_views(1)
    assert term(batch(of_two(raw))).loss.isfinite()
    assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())
    memory.train()
    term(batch(of_two(raw)))
    memory.eval()
    after = memory.bank.partition.clone()
    term(batch(of_two(raw + 1), step=1))
    assert torch.equal(memory.bank.partition, after)


def test_a_missing_query_counts_nothing_in_the_partition() -> None:
    memory, other = of_bank(), of_bank()
    raw, _ = golden_views(1)
    term = Contrast(query_against_keys, losses.nce, [QUERY], [KEY], memory=memory)
    found = term(batch(of_two(raw), present=PRESENT))
    rows = PRESENT["a"] & PRESENT["b"]
    fewer = BatchOutputs({slot: each[rows] for slot, each in of_two(raw).items()}, IDS[rows], INDEX[rows])
    same_gradient(found.loss, Contrast(query_against_keys, losses.nce, [QUERY], [KEY], memory=other)(fewer).loss, [raw])
    torch.testing.assert_close(memory.bank.partition, other.bank.partition, rtol=1e-12, atol=0)


def test_nce_without_a_bank_is_refused() -> None:
    with pytest.raises(ValueError, match="memory: nce contrasts with images drawn from a memory bank; give --memory"):
        Contrast(query_against_keys, losses.nce, [QUERY], [KEY], memory=of_queue("each")(DIM).double())


def test_a_loss_is_tried_before_anyone_waits() -> None:
    for loss in (losses.info_nce, losses.nce):
        try_loss(loss)
        with pytest.raises(ValueError, match="temperature: expected a positive number"):
            try_loss(partial(loss, temperature=-1.0))


DECODED, PICTURE = Slot("query", "a", 0, "decoded"), Slot("input", "b", 0, "view")


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("distance", "power"), [(F.mse_loss, 2), (F.l1_loss, 1)])
def test_a_prediction_is_the_mean_distance_to_the_other_view(distance: Any, power: int, missing: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    raw, picture = (torch.randn(COUNT, 2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    raw.requires_grad_(), picture.requires_grad_()
    term = Prediction(DECODED, PICTURE, distance)
    found = term(batch({DECODED: raw, PICTURE: picture}, present=PRESENT if missing else {}))
    there = [i for i in range(COUNT) if not missing or (PRESENT["a"][i] and PRESENT["b"][i])]
    values = [
        (raw[i, j, k] - picture[i, j, k].detach()).abs() ** power for i in there for j in range(2) for k in range(3)
    ]
    assert len(there) == (4 if missing else 6)
    same_gradient(found.loss, oracle.mean(values), [raw])
    assert found.triples == []
    (by_picture,) = torch.autograd.grad(found.loss, picture, allow_unused=True)
    assert by_picture is None
    assert (term.asks, term.gathers) == ((DECODED, PICTURE), ())


@pytest.mark.parametrize("missing", [False, True])
def test_alignment_is_the_mean_squared_distance_of_queries_and_keys(missing: bool) -> None:
    raw, (first, second) = golden_views(2)
    one, other = golden_keys(2)
    slots = [Slot("query", "a", 0), Slot("query", "b", 0), Slot("key", "b", 0), Slot("key", "c", 0)]
    term = Alignment(slots[:2], slots[2:])
    outputs = dict(zip(slots, (first, second, one, other), strict=True))
    found = term(batch(outputs, present=PRESENT if missing else {}))
    parts = []
    for query, key, views in ((first, one, "ab"), (second, other, "bc")):
        there = [i for i in range(COUNT) if not missing or all(PRESENT[view][i] for view in views)]
        parts.append(oracle.mean([2 - 2 * oracle.dot(query[i], key[i]) for i in there]))
    same_gradient(found.loss, oracle.mean(parts), [raw])
    assert (found.triples, term.gathers) == ([], ())


def test_where_no_image_has_both_views_a_prediction_is_zero() -> None:
    raw = torch.randn(COUNT, 2, requires_grad=True)
    nobody = {"a": PRESENT["b"], "b": ~PRESENT["b"]}
    found = Prediction(DECODED, PICTURE)(batch({DECODED: raw, PICTURE: torch.randn(COUNT, 2)}, present=nobody))
    (gradient,) = torch.autograd.grad(found.loss, raw)
    assert (float(found.loss.detach()), float(gradient.abs().max())) == (0.0, 0.0)


def test_a_prediction_is_the_mean_over_the_places_of_an_image_that_are_known() -> None:
    raw, picture = torch.randn(3, 1, 2, 2, requires_grad=True, dtype=torch.float64), torch.randn(3, 1, 2, 2).double()
    picture[0, 0, 0, 0], picture[1] = torch.nan, torch.nan
    of_three = BatchOutputs({DECODED: raw, PICTURE: picture}, IDS[:3], IDS[:3])
    found = Prediction(DECODED, PICTURE, l2)(of_three)
    apart = (raw - picture.nan_to_num()).square().flatten(1)
    same_gradient(found.loss, (apart[0, 1:].mean() + apart[2].mean()) / 3, [raw])
    of_three.outputs[DECODED] = raw.where(torch.tensor([[[[False]]], [[[True]]], [[[True]]]]), torch.nan)
    assert Prediction(DECODED, PICTURE, l2)(of_three).loss.isnan()  # what has diverged is not taken for unknown


def test_slots_of_several_copies() -> None:
    assert queries("image", 2) == (Slot("query", "image", 2),)
    assert keys("depth", range(2), "projection") == tuple(Slot("key", "depth", copy, "projection") for copy in range(2))


# --- two processes


class FeatureContrast(Term):
    """The embedding of one view against another's features, written as a user would."""

    def __init__(self, query: Slot, key: Slot) -> None:
        super().__init__("features", [query, key], [query, key], weight=0.5)
        self.query, self.key = query, key

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        embedded = batch.embeddings([self.query], [self.key])
        triples = query_against_keys(embedded, Memory())
        return TermOutput(total(triples, losses.info_nce, gather=batch.gather), triples)


def towers(views: Iterable[str], **options: Any) -> Towers:
    return Towers({view: plain(seed=ord(view)) for view in views}, partial(heads.mlp, dim_out=DIM), **options).double()


def edges(loss: Any, **options: Any) -> Method:
    """Two views with a tower and a bank each, both directions: CMC."""
    kept = {view: of_bank(**options) for view in "ab"}
    terms = [
        Contrast(query_against_keys, loss, queries(i, 0), keys(j, 0), memory=kept[j], name=f"{i} to {j}")
        for i, j in ("ab", "ba")
    ]
    return Method(views={"a": 1, "b": 1}, towers=towers("ab"), terms=terms, memories=kept)


def one_term(term: Term, views: str, **options: Any) -> Method:
    return Method(views=dict.fromkeys(views, 1), towers=towers(views, **options), terms=[term])


def in_batch(**options: Any) -> Method:
    slots = [*keys("b", 0), *keys("c", 0)]
    return one_term(Contrast(query_against_keys, losses.info_nce, queries("a", 0), slots), "abc", **options)


def all_pairs(loss: Any = losses.info_nce) -> Method:
    return one_term(Contrast(view_pairs, loss, [Slot("query", view, 0) for view in "abc"]), "abc")


def tower_pairs() -> Method:
    terms = [Contrast(query_against_keys, losses.dcl, queries(i, 0), keys(j, 0), name=i) for i, j in ("ab", "ba")]
    return Method(views={"a": 1, "b": 1}, towers=towers("ab", momentum=0.9), terms=terms)


def predicted() -> Method:
    decoder = partial(nn.Linear, out_features=3 * 16)
    decode = {"decoded": lambda dim: nn.Sequential(decoder(dim), nn.Unflatten(1, (3, 4, 4)))}
    made = Towers({"a": plain()}, None, heads=decode).double()
    return Method(views={"a": 1, "b": 1}, towers=made, terms=[Prediction(DECODED, PICTURE)])


def aligned() -> Method:
    made = towers("ab", momentum=0.9, predictor=partial(heads.mlp, dim_out=DIM))
    terms = [Alignment([*queries("a", 0), *queries("b", 0)], [*keys("b", 0), *keys("a", 0)])]
    return Method(views={"a": 1, "b": 1}, towers=made, terms=terms)


def patches() -> Method:
    head = partial(heads.linear, dim_out=DIM)
    return cmc_patch({view: mapped(seed=ord(view)) for view in "ab"}, head=head).double()


def features() -> Method:
    made = Towers({view: plain(seed=ord(view)) for view in "ab"}, partial(heads.mlp, dim_out=9)).double()
    term = FeatureContrast(*queries("a", 0), *keys("b", 0, "features"))
    return Method(views={"a": 1, "b": 1}, towers=made, terms=[term])


MEMORY_OF = {"moco_v1": "each", "moco_v2": "each", "multikey": "mean", "jcl": "mean"}


def published(name: str) -> Method:
    torch.manual_seed(0)
    options: dict[str, Any] = {"memory": of_queue(MEMORY_OF[name])} if name in MEMORY_OF else {}  # type: ignore[arg-type]
    options = {"memory": of_queue("last", within_batch=1.0)} if name == "cacr_moco" else options
    options = {"memory": of_queue("each", within_batch=0.5)} if name == "align_uniform_moco" else options
    return doubled(METHODS[name], **options)


CASES: dict[str, Callable[[], Method]] = {
    **{name: partial(published, name) for name in EVERY},
    "symmetric": partial(doubled, METHODS["moco_v2"], symmetric=True, memory=of_queue("each")),
    "keys with gradient": partial(doubled, METHODS["multikey"], keys=2, momentum=None, memory=of_queue("mean")),
    "rbf cost": partial(doubled, METHODS["cacr"], positives=2, loss=partial(losses.cacr, cost="rbf")),
    "a bank": partial(edges, losses.info_nce, stored=False),
    "nce": partial(edges, losses.nce),
    "keys in the batch": in_batch,
    "view pairs": all_pairs,
    "tower pairs": tower_pairs,
    "prediction": predicted,
    "alignment": aligned,
    "features": features,
    "patches": patches,
}
WITH_MISSING = (
    "a bank",
    "nce",
    "keys in the batch",
    "view pairs",
    "tower pairs",
    "prediction",
    "alignment",
    "features",
    "patches",
)
SHARES = {"uneven": (4, 2), "one empty": (6, 0)}


def run(name: str, rows: slice, shares: tuple[int, ...], missing: bool) -> Found:
    """Two steps of a case: the loss and the gradient, averaged over the processes, and the memories afterwards."""
    torch.manual_seed(1)
    method, found = CASES[name](), Found()
    present = {view: PRESENT[view][rows] for view in method.views} if missing else {}
    for step in range(2):
        views = {
            view: [copy[rows] for copy in images(copies, COUNT, seed=3 * step + ord(view[0]))]
            for view, copies in method.views.items()
        }
        outputs = method(views, step)
        given = BatchOutputs(outputs, TWICE[rows], INDEX[rows], present, shares, step=step, labels=LABELS[rows])
        method.zero_grad()
        with Counted() as forward:
            objective = method.objective(given)
        with Counted() as backward:
            objective.loss.backward()
        with Counted() as after:
            method.update(given, step, 2)
        gradient = torch.cat(
            [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in _of(method)]
        )
        both = torch.cat([objective.loss.detach()[None], gradient])
        if world_size() > 1:
            dist.all_reduce(both)
        found[f"step {step}"] = both / world_size()
        found[f"collectives {step}"] = [forward.calls, backward.calls, after.calls]
    found |= {f"memory {key}": value for key, value in method.memories.state_dict().items()}
    return found


def _of(method: Method) -> list[nn.Parameter]:
    return list(method.towers.trained())


def everything(rows: slice, shares: tuple[int, ...]) -> Found:
    whole = {name: run(name, rows, shares, missing=False) for name in CASES}
    return whole | {f"{name}, missing views": run(name, rows, shares, missing=True) for name in WITH_MISSING}


def work(rank: int) -> Found:
    torch.manual_seed(0)
    found: Found = {}
    for name, shares in SHARES.items():
        start = sum(shares[:rank])
        found[name] = everything(slice(start, start + shares[rank]), shares)
    return found


@cache
def one() -> Found:
    return everything(slice(0, COUNT), ())


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return in_two_processes(work, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("case", [*CASES, *(f"{name}, missing views" for name in WITH_MISSING)])
def test_two_processes_have_the_loss_gradient_and_memories_of_one(case: str, share: str, two: list[Found]) -> None:
    expected = one()[case]
    assert expected["step 0"][1:].abs().max() > 1e-6
    for found in two:
        assert found[share][case].keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, Tensor):
                torch.testing.assert_close(found[share][case][name], value, rtol=1e-9, atol=1e-9, msg=f"{case}: {name}")


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("case", CASES)
def test_a_step_gathers_once(case: str, share: str, two: list[Found]) -> None:
    """All outputs go forward in one collective and their gradients back in one; updating memories costs none."""
    pooled = [isinstance(term, Contrast) and is_pooled(term.loss) for term in CASES[case]().terms]
    for found in two:
        for step in range(2):
            forward, backward, after = found[share][case][f"collectives {step}"]
            assert after == (["all_gather"] * 2 if case == "dino" else [])  # the centre: counts of rows, and sums
            if any(pooled):
                assert forward[0] == "all_gather"
            elif case == "nce" and step == 0:
                assert forward[0] == "all_gather"  # the first batch's Z
            elif case == "features":
                assert backward.count("all_reduce") >= 1  # `total` gathers the losses themselves
            else:
                assert forward == ["all_gather"]
                assert backward in ([], ["all_reduce"])


def test_only_three_methods_pool() -> None:
    declared = {name: [term for term in CASES[name]().terms if isinstance(term, Contrast)] for name in EVERY}
    pooled = {name for name, terms in declared.items() if any(is_pooled(term.loss) for term in terms)}
    assert pooled == {"dclw", "align_uniform", "align_uniform_moco"}
