from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Event

import pytest
import torch

from manyview.core.sample import Sample
from manyview.data.loader import Loader
from manyview.data.workers import Collate, Reader, lost_worker, usual_workers
from manyview.views import Augmentation, ViewPipeline
from tests.data.random_pictures import Paired, Pictures
from tests.patience import PATIENCE

PIPELINE = ViewPipeline([Augmentation(16)] * 2)


class Endless(Pictures):
    """What a worker never comes back from."""

    begun: Event

    def __getitem__(self, index: int) -> Sample:
        if torch.utils.data.get_worker_info() is not None:
            self.begun.set()
            time.sleep(PATIENCE)
        return super().__getitem__(index)


def test_workers_outlive_a_signal_and_end_with_their_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # seconds until torch terminates one
    data = Endless(sizes=(20, 22))
    data.begun = multiprocessing.Event()
    loader = Loader(data, PIPELINE, 10, workers=1, memory=0)
    before = multiprocessing.active_children()
    assert loader._stream is not None
    loader._rows[:] = [[(0, 0)]]
    iter(loader._stream)  # its first task is given out
    (worker,) = set(multiprocessing.active_children()) - set(before)
    assert data.begun.wait(PATIENCE)
    worker.terminate()
    worker.join(0.5)
    assert worker.is_alive()
    del loader
    worker.join(PATIENCE)
    assert worker.exitcode == 0


def test_workers_hand_on_only_what_a_view_is_made_of() -> None:
    loader = Loader(Paired(), PIPELINE.of({"L": 1, "ab": 1}), 10, workers=0, memory=0)
    loader._rows[:] = [[(0, row) for row in range(10)]]
    assert loader._stream is not None
    (collated,) = loader._stream
    assert {name: len(copies) for name, copies in collated.views.items()} == {"image": 1}


def test_what_a_sample_lacks_is_zero_in_every_batch() -> None:
    reader = Reader(Paired(), PIPELINE, seed=0, colour=True)
    collate = Collate(reader)
    batch = collate([reader[0, row] for row in (0, 1)])
    assert {name: mask.tolist() for name, mask in batch.present.items()} == {
        "image": [True, True],
        "depth": [False, True],
    }
    assert (batch.views["depth"][0][0] == 0).all()
    assert batch.views["depth"][0][1].unique().tolist() == [1]
    alone = collate([reader[0, 0]])
    assert alone.views["depth"][1].shape == (1, 1, 16, 16)


def test_a_reader_goes_on_with_the_next_sample_and_says_what_it_passed_over() -> None:
    reader = Reader(Pictures(10, unreadable=(8, 9)), PIPELINE, seed=0, colour=True)
    found = reader[0, 8]
    assert (found.row, found.id) == (0, 1000)
    assert found.unreadable == {8: "cut short", 9: "cut short"}
    none = Reader(Pictures(3, unreadable=(0, 1, 2)), PIPELINE, seed=0, colour=True)[0, 1]
    assert (none.row, len(none.unreadable)) == (-1, 3)


def test_a_lost_worker_is_told_from_other_errors() -> None:
    assert lost_worker(RuntimeError("DataLoader worker (pid 3) is killed by signal: Killed."))
    assert not lost_worker(RuntimeError("out of memory"))
    assert not lost_worker(EOFError("somewhere else"))


def test_cores_are_shared_among_the_processes_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.data.workers.available", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert usual_workers() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "16")
    assert usual_workers() == 1
