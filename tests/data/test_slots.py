from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Views
from manyview.data.loader import Loader
from manyview.data.reader import Batches
from manyview.data.slots import NO_SLOT, Dispatcher, Job
from manyview.views import Augmentation, ViewPipeline
from tests.data.random_pictures import Paired, Pictures

PIPELINE = ViewPipeline([Augmentation(16)] * 2)
ROWS = [[(0, row)] for row in range(12)]


def views() -> Views:
    return {"image": [torch.zeros(1)]}


def test_a_slot_is_given_out_again_once_nobody_holds_what_came_in_it() -> None:
    dispatcher = Dispatcher(ROWS, workers=1, slots=2)
    jobs = iter(dispatcher)
    assert [next(jobs).slot for _ in range(3)] == [0, 1, NO_SLOT]
    first, second = views(), views()
    dispatcher.received(0, first)
    dispatcher.received(1, second)
    part: Tensor | None = first["image"][0][:0]  # of the same memory
    del first
    assert next(jobs).slot == NO_SLOT
    del second
    assert next(jobs).slot == 1
    del part
    assert next(jobs).slot == 0


def test_every_worker_has_slots_of_its_own() -> None:
    assert [job.slot for job in Dispatcher(ROWS, workers=3, slots=2)] == [0, 2, 4, 1, 3, 5, *[NO_SLOT] * 6]
    assert {job.slot for job in Dispatcher(ROWS, workers=0, slots=2)} == {NO_SLOT}


def test_what_an_epoch_left_under_way_is_free_for_the_next_but_not_what_is_held() -> None:
    dispatcher = Dispatcher(ROWS, workers=1, slots=3)
    jobs = iter(dispatcher)
    assert [next(jobs).slot for _ in range(3)] == [0, 1, 2]
    held = views()
    dispatcher.received(1, held)
    again = iter(dispatcher)
    assert [next(again).slot for _ in range(3)] == [0, 2, NO_SLOT]
    assert held


def test_batches_that_are_kept_stay_what_they_were() -> None:
    data = Pictures(60, sizes=(20, 24))
    kept, wanted = (list(Loader(data, PIPELINE, 6, workers=n, memory=0).epoch(1)) for n in (2, 0))
    for ours, theirs in zip(kept, wanted, strict=True):
        assert torch.equal(ours.views()["image"][1], theirs.views()["image"][1])


@pytest.mark.parametrize("workers", [1, 2])
def test_there_is_a_slot_for_every_batch_of_who_holds_one_at_a_time(workers: int) -> None:
    loader = Loader(Pictures(60, sizes=(20, 24)), PIPELINE, 6, workers=workers, memory=0)
    stream, given = loader._stream, []
    assert stream is not None
    free = stream.dispatcher._free
    stream.dispatcher._free = lambda worker: given.append(free(worker)) or given[-1]  # type: ignore[method-assign, func-returns-value]
    for batch in loader.epoch(0):
        batch.views()
    assert len(given) == 10
    assert NO_SLOT not in given


def test_epochs_that_are_left_in_the_middle_do_not_disturb_the_next() -> None:
    data = Pictures(60, sizes=(20, 24))
    loader, plain = (Loader(data, PIPELINE, 6, workers=n, memory=0) for n in (2, 0))
    first = next(loader.epoch(0))
    for number in (1, 2):
        for ours, theirs in zip(loader.epoch(number), plain.epoch(number), strict=False):
            assert torch.equal(ours.views()["image"][0], theirs.views()["image"][0])
            if number == 1:
                break
    assert torch.equal(first.views()["image"][0], next(plain.epoch(0)).views()["image"][0])


def test_a_slot_keeps_nothing_of_the_batch_before() -> None:
    reader = Loader(Paired(), PIPELINE, 10, workers=0, memory=0)._stream
    assert reader is not None
    batches = reader.loader.dataset
    assert isinstance(batches, Batches)
    full = batches.__getitems__(Job([(0, 1), (0, 2)], slot=0))
    place = full.views["depth"][0].data_ptr()
    lacking = batches.__getitems__(Job([(0, 3)], slot=0))
    assert lacking.views["depth"][0].data_ptr() == place
    assert not lacking.views["depth"][0].any()
    assert lacking.views["depth"][0].shape == (1, 1, 16, 16)
