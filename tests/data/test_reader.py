from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Event
from typing import Any

from manyview.data.reader import Batches, Reader, end_when
from manyview.data.slots import Job
from manyview.views import Augmentation, ViewPipeline
from tests.data.random_pictures import Paired, Pictures

PIPELINE = ViewPipeline([Augmentation(16)] * 2)


def read_two(over: Any, then: Event) -> None:
    end_when(over)
    reader = Reader(Pictures(sizes=(20, 22)), PIPELINE, 0, colour=True)
    reader[0, 0]
    then.set()
    over.value = 1
    reader[0, 1]
    os._exit(3)


def test_a_worker_whose_loader_goes_ends_between_two_samples() -> None:
    fork = multiprocessing.get_context("fork")
    over, then = fork.RawValue("b", 0), fork.Event()
    worker = fork.Process(target=read_two, args=(over, then))
    worker.start()
    worker.join()
    assert then.is_set()
    assert worker.exitcode == 0


def test_what_a_sample_lacks_is_zero_in_every_batch() -> None:
    batches = Batches(Reader(Paired(), PIPELINE, seed=0, colour=True))
    batch = batches.__getitems__(Job([(0, 0), (0, 1)]))
    assert {name: mask.tolist() for name, mask in batch.present.items()} == {
        "image": [True, True],
        "depth": [False, True],
    }
    assert (batch.views["depth"][0][0] == 0).all()
    assert batch.views["depth"][0][1].unique().tolist() == [1]
    alone = batches.__getitems__(Job([(0, 0)]))
    assert alone.views["depth"][1].shape == (1, 1, 16, 16)


def test_a_reader_goes_on_with_the_next_sample_and_says_what_it_passed_over() -> None:
    reader = Reader(Pictures(10, unreadable=(8, 9)), PIPELINE, seed=0, colour=True)
    found = reader[0, 8]
    assert (found.row, found.id) == (0, 1000)
    assert found.unreadable == {8: "cut short", 9: "cut short"}
    none = Reader(Pictures(3, unreadable=(0, 1, 2)), PIPELINE, seed=0, colour=True)[0, 1]
    assert (none.row, len(none.unreadable)) == (-1, 3)
