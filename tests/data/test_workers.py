from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Event
from typing import NamedTuple

import pytest
import torch

from manyview.core.bounds import MOST_WORKERS
from manyview.core.errors import UserError
from manyview.core.parallel import available
from manyview.core.sample import Sample
from manyview.data.loader import Loader
from manyview.data.reader import Batches, Collated, counter
from manyview.data.slots import Job
from manyview.data.workers import fitting_workers, lost_worker, patiently, usual_workers
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
    iter(loader._stream.loader)  # its first task is given out
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
    (collated,) = loader._stream.loader
    assert {name: len(copies) for name, copies in collated.views.items()} == {"image": 1}


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


class Room(NamedTuple):
    """What `shutil.disk_usage` says of a disk."""

    free: int


def with_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr("manyview.data.workers.shutil.disk_usage", lambda path: Room(free))


def test_workers_for_which_shared_memory_has_no_room_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 64_000_000)
    batch = 512 * 2 * 3 * 128 * 128  # bytes of uint8
    with pytest.warns(UserWarning, match="has 64 MB free, and a batch takes 50 MB: 0 of 2 workers are started"):
        assert fitting_workers(2, batch) == 0
    with pytest.warns(UserWarning, match="1 of 2 workers are started"):
        assert fitting_workers(2, 64_000_000 // 5) == 1
    assert fitting_workers(2, 1000) == 2


def test_a_system_without_that_folder_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.data.workers.SHARED_MEMORY", "/nowhere/at/all")
    assert fitting_workers(3, 1 << 40) == 3


def test_a_loader_goes_on_without_workers_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Loader(Pictures(20), PIPELINE, 10, workers=0, memory=0)
    with_room(monkeypatch, 1000)
    with pytest.warns(UserWarning, match="0 of 2 workers are started"):
        loader = Loader(Pictures(20), PIPELINE, 10, workers=2, memory=0)
    for ours, theirs in zip(loader.epoch(0), whole.epoch(0), strict=True):
        assert torch.equal(ours.views()["image"][0], theirs.views()["image"][0])


def test_more_workers_than_a_machine_needs_are_not_started() -> None:
    """A run of a large machine goes on where there are few cores."""
    most = max(16, 4 * available())
    with pytest.warns(UserWarning, match=f"{most + 1} workers are many for .* cores: {most} are started"):
        assert fitting_workers(most + 1, 1) == most
    for wrong in (MOST_WORKERS + 1, -1):
        with pytest.raises(UserError, match=f"workers: .*, got {wrong}"):
            Loader(Pictures(20), PIPELINE, 10, workers=wrong, memory=0)


def test_a_worker_that_finds_shared_memory_full_ends_the_epoch_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    loader = Loader(Pictures(20), PIPELINE, 10, workers=1, memory=0)
    with pytest.raises(UserError, match=r"workers: /dev/shm is full, .*; give --workers 0, or docker run --shm-size"):
        list(loader.epoch(0))


class Lost(str):
    """What a worker's queue cannot send: its thread drops the batch."""

    def __reduce__(self) -> str:
        raise OSError("lost on the way")


class Losing(Batches):
    def __getitems__(self, job: Job) -> Collated:
        return super().__getitems__(job)._replace(unreadable={0: Lost()})


@pytest.mark.slow
def test_a_batch_that_never_comes_is_an_error_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # seconds until torch terminates one
    monkeypatch.setattr("manyview.data.workers.PATIENCE", 2)
    monkeypatch.setattr("manyview.data.workers.Batches", Losing)
    loader = Loader(Pictures(20), PIPELINE, 10, workers=1, memory=0)
    with pytest.raises(UserError, match=r"workers: no image came in 2 s: does the disk answer\? --workers 0"):
        list(loader.epoch(0))


def test_slow_images_are_waited_for_as_long_as_they_come() -> None:
    read = counter()

    class Slow:
        timeout = 600
        waited = 0

        def __iter__(self) -> Slow:
            return self

        def __next__(self) -> str:
            self.waited += 1
            if self.waited == 4:
                return "batch"
            read.value += self.waited < 6
            raise RuntimeError("DataLoader timed out after 600 seconds")

    slow = patiently(Slow(), read)  # type: ignore[arg-type]
    assert next(slow) == "batch"
    with pytest.raises(UserError, match="no image came in 600 s"):
        next(slow)
