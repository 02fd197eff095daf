"""A step in micro-batches has the gradient of the whole batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyview import losses
from manyview.core.distributed import world_size
from manyview.core.sample import Views
from manyview.encoders import HEADS, Encoder, create
from manyview.encoders.present import use_running_statistics
from manyview.memories import bank
from manyview.methods import BatchOutputs, Method, cacr, cacr_moco, cmc, dcl, dclw, jcl, moco_v2, multikey, pirl, simclr
from manyview.training.step import Engine, MakeViews, NotFinite, StepOutput, micro_batches, whole_batch
from tests.methods import test_terms as terms
from tests.methods.small import doubled, images, of_queue, plain
from tests.methods.test_pirl import patches
from tests.two_processes import Found, in_two_processes

COUNT = 7  # images: no multiple of a micro-batch
IDS = torch.tensor([0, 1, 2, 3, 4, 5, 1])  # one of them twice
KINDS: dict[str, Callable[..., Method]] = {
    "simclr": partial(doubled, simclr),
    "simclr of 3 copies": partial(doubled, simclr, copies=3),
    "dcl": partial(doubled, dcl),
    "dclw": partial(doubled, dclw),
    "simclr with a queue": partial(doubled, simclr, memory=of_queue("each")),
    "moco_v2": partial(doubled, moco_v2, memory=of_queue("each")),
    "symmetric": partial(doubled, moco_v2, symmetric=True, memory=of_queue("each")),
    "jcl": partial(doubled, jcl, keys=3, memory=of_queue("mean")),
    "cacr": partial(doubled, cacr, positives=2),
    "cacr_moco": partial(doubled, cacr_moco, positives=2, memory=of_queue("last", within_batch=1.0)),
    "pirl": lambda **given: doubled(pirl, memory=partial(bank, m=5), **given).start(10).double(),
    "keys with gradient": partial(doubled, multikey, keys=2, momentum=None, memory=of_queue("mean")),
    "keys that are not read": partial(
        doubled, multikey, keys=2, momentum=None, memory=of_queue("mean"), loss=partial(losses.repulsion, t_neg=1.0)
    ),
}


def made(kind: str, encoder: Encoder | None = None) -> Method:
    torch.manual_seed(3)
    return KINDS[kind](encoder=encoder)


def given(method: Method) -> MakeViews:
    whole = {view: images(copies, COUNT, seed=ord(view[-1])) for view, copies in method.views.items()}
    if method.jigsaw:
        whole = {view: [*copies, patches(COUNT)] for view, copies in whole.items()}
    return lambda rows: {view: [copy[rows] for copy in copies] for view, copies in whole.items()}


def unembedded(step: int = 2, **options: Any) -> BatchOutputs:
    return BatchOutputs({}, IDS, torch.tensor([5, 1, 2, 9, 4, 7, 0]), step=step, **options)


def gradients(method: Method, unused: str = "nothing") -> list[Tensor]:
    named = [(name, each) for name, each in method.towers.named_parameters() if each.requires_grad]
    found = [each.grad for name, each in named if not name.startswith(unused)]
    assert all(each is not None for each in found)
    return [each for each in found if each is not None]


def engine(method: Method, **options: Any) -> Engine:
    return Engine(method, method, **options)


def in_parts(method: Method, size: int, **options: Any) -> StepOutput:
    return micro_batches(engine(method), given(method), unembedded(**options), size=size)


def at_once(method: Method, **options: Any) -> StepOutput:
    return whole_batch(engine(method), given(method), unembedded(**options))


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert max(float(each.abs().max()) for each in expected) > 1e-4


@pytest.mark.parametrize("size", [3, 6, 7, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_have_the_gradient_of_the_whole_batch(kind: str, size: int) -> None:
    one, other = made(kind), made(kind)
    whole, parts = at_once(one), in_parts(other, size)
    torch.testing.assert_close(parts.loss, whole.loss, rtol=1e-12, atol=0)
    assert_same(gradients(other), gradients(one))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_embedded_and_so_the_update_is_the_same(kind: str) -> None:
    one, other = made(kind), made(kind)
    for method, stepped in ((one, at_once(one)), (other, in_parts(other, 3))):
        method.update(stepped.batch, 2, 5)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-12, atol=1e-14)


def test_the_whole_batch_is_embedding_objective_and_backward() -> None:
    method, other = made("jcl"), made("jcl")
    batch = replace(unembedded(progress=0.5), outputs=other(given(other)(slice(None)), 2))
    loss = other.objective(batch).loss
    loss.backward()
    stepped = at_once(method, progress=0.5)
    assert torch.equal(stepped.loss, loss)
    assert_same(gradients(method), gradients(other))
    assert torch.equal(stepped.batch.ids, IDS)
    assert (stepped.batch.step, stepped.batch.progress) == (2, 0.5)


def test_progress_reaches_the_ramp_in_both_ways() -> None:
    values = {}
    for progress in (0.25, 1.0):
        ramped = [doubled(jcl, keys=3, ramp=True, memory=of_queue("mean")) for _ in range(2)]
        whole, parts = at_once(ramped[0], progress=progress), in_parts(ramped[1], 3, progress=progress)
        torch.testing.assert_close(whole.loss, parts.loss, rtol=1e-12, atol=0)
        values[progress] = float(whole.loss.detach())
    assert values[0.25] < values[1.0] - 1e-6


@pytest.mark.parametrize("kind", ["simclr", "moco_v2", "jcl", "cacr", "keys with gradient"])
def test_dropout_draws_the_same_in_both_passes(kind: str) -> None:
    """Embedding the parts one after the other, all with a graph, says what the gradient is."""
    method, other = (made(kind, plain(dropout=0.4)) for _ in range(2))
    views, parts = given(method), [slice(0, 3), slice(3, 6), slice(6, 9)]
    torch.manual_seed(8)
    embedded = [other(views(part), 2) for part in parts]
    after = torch.get_rng_state()
    outputs = {slot: torch.cat([each[slot] for each in embedded]) for slot in other.slots}
    loss = other.objective(replace(unembedded(), outputs=outputs)).loss
    loss.backward()
    torch.manual_seed(8)
    stepped = in_parts(method, 3)
    torch.testing.assert_close(stepped.loss, loss, rtol=1e-12, atol=0)
    assert_same(gradients(method), gradients(other))
    assert torch.equal(torch.get_rng_state(), after)  # the second pass draws nothing that a later step would miss


def test_dropout_differs_between_parts_and_steps() -> None:
    method = made("simclr", plain(dropout=0.4))
    torch.manual_seed(8)
    first, second = in_parts(method, 3), in_parts(method, 3)
    assert not torch.equal(first.loss, second.loss)


@pytest.mark.parametrize("kind", ["simclr", "moco_v2", "keys with gradient"])
def test_running_statistics_move_once(kind: str) -> None:
    method, other = (made(kind, plain(norm=True)) for _ in range(2))
    for part in (slice(0, 4), slice(4, 8)):
        other(given(method)(part), 2)
    before = {name: value.clone() for name, value in method.towers.named_buffers()}
    in_parts(method, 4)
    found = dict(method.towers.named_buffers())
    assert before
    for name, value in other.towers.named_buffers():
        assert torch.equal(found[name], value), name
        assert not torch.equal(found[name], before[name]), name


def test_statistics_are_kept_even_if_the_second_pass_fails() -> None:
    method = made("simclr", plain(norm=True))

    def fail(loss: Tensor) -> None:
        raise RuntimeError("out of memory")

    other = made("simclr", plain(norm=True))
    for part in (slice(0, 4), slice(4, 8)):
        other(given(other)(part), 2)
    with pytest.raises(RuntimeError, match="out of memory"):
        micro_batches(engine(method, backward=fail), given(method), unembedded(), size=4)
    for name, value in other.towers.named_buffers():
        assert torch.equal(dict(method.towers.named_buffers())[name], value)


def test_processes_synchronise_on_the_last_part_alone() -> None:
    method, happened = made("simclr"), []

    @contextmanager
    def unsynced() -> Any:
        happened.append("apart")
        yield

    def backward(loss: Tensor) -> None:
        happened.append("backward")
        loss.backward()

    micro_batches(engine(method, backward=backward, unsynced=unsynced), given(method), unembedded(), size=3)
    assert happened == ["apart", "backward", "apart", "backward", "backward"]


def test_only_a_part_is_embedded_at_a_time_and_never_with_more_graph() -> None:
    method, passes = made("simclr"), []

    def note(_: nn.Module, rows: tuple[Tensor, ...], out: dict[str, Tensor]) -> None:
        passes.append((len(rows[0]), out["projection"].requires_grad))

    method.towers.query["shared"].register_forward_hook(note)
    in_parts(method, 3)
    assert passes == [(6, False), (6, False), (2, False), (6, True), (6, True), (2, True)]


def test_momentum_keys_are_embedded_once() -> None:
    method, calls = made("jcl"), []
    assert method.towers.key is not None
    method.towers.key["shared"].register_forward_hook(lambda *_: calls.append(1))
    in_parts(method, 3)
    assert len(calls) == 3


@pytest.mark.parametrize("step", [at_once, partial(in_parts, size=3)], ids=["whole", "parts"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_told_and_changes_nothing(step: Callable[[Method], StepOutput], bad: float) -> None:
    method = doubled(moco_v2, loss=partial(_broken, value=bad), memory=of_queue("each"))
    for each in method.towers.trained():
        each.grad = torch.ones_like(each)
    before = copy.deepcopy(method.state_dict())
    with pytest.raises(NotFinite, match=f"the loss is {bad}"):
        step(method)
    assert all(torch.equal(each, torch.ones_like(each)) for each in gradients(method))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def _broken(query: Tensor, positives: Tensor, negatives: object, *, value: float, gather: object) -> Tensor:
    return query.sum() * value


def test_gradients_add_to_those_that_are_there() -> None:
    one, other = made("simclr"), made("simclr")
    at_once(one)
    at_once(one)
    in_parts(other, 3)
    in_parts(other, 3)
    assert_same(gradients(other), gradients(one))


MANY_VIEWS = (
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
PRESENT = {view: torch.cat([mask, mask[:1]]) for view, mask in terms.PRESENT.items()}


@pytest.mark.parametrize("missing", [False, True], ids=["all there", "missing views"])
@pytest.mark.parametrize("kind", MANY_VIEWS)
def test_micro_batches_of_several_views_have_the_gradient_of_the_whole_batch(kind: str, missing: bool) -> None:
    one, other = (terms.CASES[kind]() for _ in range(2))
    other.load_state_dict(one.state_dict())
    options: dict[str, Any] = {"present": {view: PRESENT[view] for view in one.views}} if missing else {}
    whole, parts = at_once(one, **options), in_parts(other, 3, **options)
    assert whole.objective.terms.keys() == parts.objective.terms.keys() == {term.name for term in one.terms}
    torch.testing.assert_close(parts.loss, whole.loss, rtol=1e-12, atol=0)
    unused = "query.b.head" if kind == "features" else "nothing"  # whose features alone are read
    assert_same(gradients(other, unused), gradients(one, unused))
    for method, stepped in ((one, whole), (other, parts)):
        method.update(stepped.batch, 2, 5)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-12, atol=1e-14)


def test_a_batch_in_which_nothing_can_be_contrasted_has_a_gradient_of_zero() -> None:
    method = terms.CASES["view pairs"]()
    nobody = {"a": PRESENT["b"], "b": ~PRESENT["b"], "c": torch.zeros_like(PRESENT["b"])}
    for step in (at_once, partial(in_parts, size=3)):
        method.zero_grad(set_to_none=True)
        assert float(step(method, present=nobody).loss.detach()) == 0
        assert all(each.abs().max() == 0 for each in gradients(method))


class Recorded(nn.Module):
    """A method that keeps what it has embedded."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method, self.outputs = method, []  # type: ignore[var-annotated]

    def forward(self, *given: Any) -> Any:
        self.outputs.append(self.method(*given))
        return self.outputs[-1]


def test_missing_views_stay_out_of_batch_norm_in_micro_batches_and_the_second_pass_sees_what_the_first_saw() -> None:
    torch.manual_seed(0)
    encoders = {view: create("patchnet", size=8, widths=(32,), blocks=(1,)) for view in ("rgb", "depth")}
    method = cmc(encoders, head=partial(HEADS["simclr"], dim_out=5)).double()
    present = {"rgb": torch.ones(COUNT, dtype=torch.bool), "depth": torch.tensor([1, 0, 0, 0, 0, 1, 1]).bool()}
    views = {
        view: [each[:, :, :8, :8] * present[view][:, None, None, None] for each in images(1, COUNT)] for view in present
    }
    recorded = Recorded(method)

    def some(rows: slice) -> dict[str, list[Tensor]]:
        return {view: [each[rows] for each in copies] for view, copies in views.items()}

    micro_batches(Engine(method, recorded), some, unembedded(present=present), size=4)  # one row of depth, then two
    first, second = recorded.outputs[:2], recorded.outputs[2:]
    for one, other, rows in zip(first, second, (slice(0, 4), slice(4, 7)), strict=True):
        for slot, value in one.items():
            torch.testing.assert_close(other[slot], value, rtol=1e-12, atol=1e-12)
            assert torch.equal(value.ne(0).any(1), present[slot.view][rows])
    assert all(bool(torch.isfinite(each).all()) for each in gradients(method))


NORMED: dict[str, Callable[..., Method]] = {
    "simclr": partial(doubled, simclr),
    "cacr": partial(doubled, cacr, positives=2),
    "moco_v2": partial(doubled, moco_v2, memory=of_queue("each")),
}


@pytest.mark.parametrize("kind", NORMED)
def test_a_part_of_one_image_is_normalised_by_the_running_statistics_in_both_passes(kind: str) -> None:
    """Seven images in parts of three: the last part has one, of which batch norm knows no deviation."""
    method, other = (NORMED[kind](encoder=plain(norm=True)) for _ in range(2))
    views = given(other)
    embedded = [other(views(part), 2) for part in (slice(0, 3), slice(3, 6))]
    with use_running_statistics(other.towers):
        embedded.append(other(views(slice(6, 7)), 2))
    outputs = {slot: torch.cat([each[slot] for each in embedded]) for slot in other.slots}
    loss = other.objective(replace(unembedded(), outputs=outputs)).loss
    loss.backward()
    stepped = micro_batches(engine(method), views, unembedded(), size=3)
    torch.testing.assert_close(stepped.loss, loss, rtol=1e-12, atol=0)
    assert_same(gradients(method), gradients(other))
    for one, two in zip(method.towers.buffers(), other.towers.buffers(), strict=True):
        assert torch.equal(one, two)


def test_of_no_image_nothing_is_embedded_and_every_parameter_has_a_gradient_of_zero() -> None:
    method = NORMED["cacr"](encoder=plain(norm=True))
    before = [each.clone() for each in method.towers.buffers()]
    outputs = method(given(method)(slice(0, 0)), 2)
    assert {each.shape for each in outputs.values()} == {(0, 8)}
    torch.stack([each.sum() for each in outputs.values()]).sum().backward()
    assert not any(each.any() for each in gradients(method))
    for buffer, value in zip(method.towers.buffers(), before, strict=True):
        assert torch.equal(buffer, value)


def step_of_three(rank: int, size: int | None) -> tuple[list[Tensor], Tensor]:
    """A step on three images, of which the second of two processes has none; the only one has all."""
    method = NORMED["simclr"]()  # without batch norm, which would see other images
    here = slice(0, 3) if rank == 0 else slice(0, 0)
    whole = given(method)(here)
    world = world_size()
    batch = BatchOutputs({}, IDS[here], IDS[here], counts=[3, 0] if world > 1 else ())
    module = DistributedDataParallel(method) if world > 1 else method
    unsynced = module.no_sync if isinstance(module, DistributedDataParallel) else nullcontext
    it = Engine(method, module, unsynced=unsynced)

    def views(rows: slice) -> Views:
        return {view: [copy[rows] for copy in copies] for view, copies in whole.items()}

    stepped = whole_batch(it, views, batch) if size is None else micro_batches(it, views, batch, size=size)
    return gradients(method), stepped.loss.detach()


def both_ways(rank: int) -> Found:
    return {name: step_of_three(rank, size) for name, size in (("whole", None), ("in parts", 2))}


def test_a_process_without_any_image_of_the_last_batch_takes_part_in_the_step(tmp_path: Path) -> None:
    found = in_two_processes(both_ways, tmp_path)
    for name, (expected, loss) in both_ways(0).items():
        for each in found:
            assert_same(each[name][0], expected)
        torch.testing.assert_close(sum(each[name][1] for each in found) / 2, loss, rtol=1e-12, atol=0)
