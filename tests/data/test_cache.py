"""What is held is to the bit what would be read, for any number of processes, and stays within its limit."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data.cache import Cache, SharedMemory, make_cache
from manyview.data.dataset import Shrink
from manyview.data.decoded import default_limit
from manyview.data.folder import Folder
from manyview.data.loader import Loader
from manyview.views import Augmentation, TransformPipeline, ViewPipeline
from tests.data.random_pictures import Paired, Pictures
from tests.patience import PATIENCE

PIPELINE = ViewPipeline([Augmentation(16, scale=(0.05, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), blur=0.5)] * 2)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of several sizes and kinds: JPEG of three, one progressive, one CMYK; PNG, and one that is damaged."""
    drawn = np.random.default_rng(0)
    for number in range(24):
        height, width = ((300, 200), (150, 400), (180, 180))[number % 3]
        smooth = Image.fromarray(drawn.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8))
        image = smooth.resize((width, height))
        folder = tmp_path / "photos" / f"folder{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        if number == 5:
            image.convert("CMYK").save(folder / f"{number}.jpg")
        elif number % 5 == 4:
            image.save(folder / f"{number}.png")
        else:
            image.save(folder / f"{number}.jpg", progressive=number % 2 == 0)
    (tmp_path / "photos" / "folder0" / "damaged.jpg").write_bytes(b"\xff\xd8\xff damaged")
    return tmp_path / "photos"


def loader(folder: Path, memory: int | None, workers: int = 0) -> Loader:
    return Loader(Folder(folder), PIPELINE, 6, workers=workers, memory=memory, max_unreadable=0.1)


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


def seen(loader: Loader, epoch: int, start: int = 0) -> list[Tensor]:
    """All views of an epoch; they are copied, since workers use their memory again."""
    return [copy.clone() for batch in loader.epoch(epoch, start) for copy in batch.views()["image"]]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_views_are_to_the_bit_those_of_a_loader_that_holds_nothing(photos: Path, workers: int) -> None:
    holding, streaming = loader(photos, None, workers), loader(photos, 0)
    some = loader(photos, 400_000, workers)
    for epoch in range(4):
        expected = seen(streaming, epoch)
        assert same(seen(holding, epoch), expected)
        assert same(seen(some, epoch), expected)
    assert holding.held[0] == 24
    assert 0 < some.held[0] < 24
    assert some.held[1] <= 400_000
    assert streaming.held == (0, 0)
    assert set(holding.unreadable) == set(streaming.unreadable)
    assert len(streaming.unreadable) == 1


def test_an_epoch_entered_in_its_middle_is_the_same_with_what_is_held_and_without(photos: Path) -> None:
    begun, resumed = loader(photos, None), loader(photos, None, workers=2)
    seen(begun, 0)
    assert same(seen(begun, 1)[4:], seen(resumed, 1, start=2))
    assert resumed.held[0] < begun.held[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_read_once_for_all_epochs(workers: int, tmp_path: Path) -> None:
    data = Pictures(30, sizes=(140, 150), unreadable=(7,))
    several = Loader(data, PIPELINE, 10, workers=workers, max_unreadable=0.1)
    data.log = tmp_path / "log"  # a few were looked at beforehand
    if workers:
        several = Loader(data, PIPELINE, 10, workers=workers, max_unreadable=0.1)
        data.log.unlink()
    for epoch in range(3):
        seen(several, epoch)
    counts = Counter(data.log.read_text().split())
    assert counts.pop("7") == 3
    assert counts.pop("8") <= 2  # two workers may stand in for it at once
    assert set(counts.values()) == {1}


def test_a_photo_is_held_at_each_scale_that_was_asked_for(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 48, 3), dtype=np.uint8)).save(tmp_path / "a.jpg")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 48, 3), dtype=np.uint8)).save(tmp_path / "b.png")
    folder, cache = Folder(tmp_path), Cache(2)

    def scale(factor: int) -> Shrink:
        return lambda height, width: factor if (height, width) == (64, 48) else 0

    for factor in (4, 1, 4):
        found = cache.read(folder, 0, ("image",), scale(factor))
        assert isinstance(found, Sample)
        assert found.size == (64, 48)
        assert tuple(found.modalities["image"].shape[1:]) == (64 // factor, 48 // factor)
        assert torch.equal(found.modalities["image"], folder.smaller(0, scale(factor)).modalities["image"])
    assert [cache.get(0, scale(factor)) is None for factor in (1, 2, 4, 8)] == [False, True, False, True]
    cache.read(folder, 1, ("image",), scale(4))
    assert all(cache.get(1, scale(factor)) is not None for factor in (1, 2, 4, 8))
    assert len(cache) == 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int64, torch.bfloat16])
def test_a_sample_comes_back_as_it_lay_in_memory(dtype: torch.dtype) -> None:
    picture = torch.randint(256, (5, 7, 3)).to(dtype).permute(2, 0, 1)
    depth = torch.randint(256, (1, 9, 4)).to(dtype)
    cache = Cache(3)
    assert cache.put(2, Sample(77, 2, {"image": picture, "depth": depth, "half": depth[:, ::2]}))
    found = cache.get(2)
    assert found is not None
    assert (found.id, found.index, found.size) == (77, 2, None)
    assert torch.equal(found.modalities["image"], picture)
    assert torch.equal(found.modalities["depth"], depth)
    assert torch.equal(found.modalities["half"], depth[:, ::2])
    assert found.modalities["image"].stride() == picture.stride()
    assert cache.get(0) is cache.get(1) is None


def test_only_modalities_that_views_are_made_of_are_held_and_one_that_is_missing_stays_missing() -> None:
    data, cache = Paired(12), Cache(12)
    for row in range(2):
        assert isinstance(cache.read(data, row, ("depth",), None), Sample)
    held = [cache.get(row) for row in range(2)]
    assert [list(each.modalities) for each in held if each is not None] == [[], ["depth"]]


class GreyAmongColours(Pictures):
    """Is asked how much smaller a picture may be, and then gives it whole."""

    def smaller(self, index: int, shrink: Shrink) -> Sample:
        shrink(200, 200)
        return self[index]


def test_what_is_given_whole_in_spite_of_the_question_is_held_for_every_scale() -> None:
    data, cache = GreyAmongColours(2), Cache(2)
    cache.read(data, 1, ("image",), lambda height, width: 4)
    used = cache.bytes
    cache.read(data, 1, ("image",), lambda height, width: 2)
    assert cache.bytes == used


def write_until_killed(cache: Cache, then: Any) -> None:
    """Dies after the pixels were written, and before it is said where they are."""
    write = SharedMemory.write

    def die(memory: SharedMemory, pieces: Any) -> bool:
        write(memory, pieces[:-1])
        then.set()
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    SharedMemory.write = die  # type: ignore[method-assign, assignment]
    cache.put(0, Sample(1, 0, {"image": torch.ones(3, 50, 50, dtype=torch.uint8)}))


def test_what_a_killed_worker_left_half_written_is_not_believed() -> None:
    fork, cache = multiprocessing.get_context("fork"), Cache(2)
    then = fork.Event()
    worker = fork.Process(target=write_until_killed, args=(cache, then))
    worker.start()
    worker.join(PATIENCE)
    assert then.is_set()
    assert worker.exitcode == -signal.SIGKILL
    assert cache.bytes > 7500
    assert len(cache) == 0
    assert cache.get(0) is None
    picture = torch.full((3, 50, 50), 7, dtype=torch.uint8)
    assert cache.put(0, Sample(1, 0, {"image": picture}))
    found = cache.get(0)
    assert found is not None
    assert torch.equal(found.modalities["image"], picture)


def hold_the_lock(cache: Cache, then: Any) -> None:
    with cache._all.locked():
        then.set()
        signal.pause()


def test_a_worker_that_is_killed_while_it_takes_room_keeps_nobody_waiting() -> None:
    fork, cache = multiprocessing.get_context("fork"), Cache(2)
    then = fork.Event()
    worker = fork.Process(target=hold_the_lock, args=(cache, then))
    worker.start()
    assert then.wait(PATIENCE)
    worker.kill()
    worker.join(PATIENCE)
    assert cache.put(1, Sample(1, 1, {"image": torch.ones(3, 5, 5)}))


def fill(cache: Cache, rows: range) -> None:
    for row in rows:
        cache.put(row, Sample(row, row, {"image": torch.full((3, 20 + row, 30), row, dtype=torch.uint8)}))


@pytest.mark.parametrize(("method", "count"), [("fork", 2), ("spawn", 1)])
def test_processes_that_fill_it_together_overwrite_nothing(method: str, count: int) -> None:
    context, cache = multiprocessing.get_context(method), Cache(100)
    shares = [range(first, 100, count + 1) for first in range(count + 1)]
    workers = [context.Process(target=fill, args=(cache, share)) for share in shares[1:]]  # type: ignore[attr-defined]
    for worker in workers:
        worker.start()
    fill(cache, shares[0])
    for worker in workers:
        worker.join(PATIENCE)
    assert len(cache) == 100
    for row in range(100):
        found = cache.get(row)
        assert found is not None
        assert found.modalities["image"].shape == (3, 20 + row, 30)
        assert (found.modalities["image"] == row).all()


def test_it_holds_no_more_than_its_limit_and_smaller_samples_still_find_room() -> None:
    cache = Cache(3, limit=10_000)
    large, small = (Sample(1, 0, {"image": torch.ones(3, side, side, dtype=torch.uint8)}) for side in (100, 30))
    assert not cache.put(0, large)
    assert cache.put(1, small)
    assert cache.put(0, small)
    assert cache.put(2, small)
    assert not cache.put(2, small)
    assert (len(cache), cache.bytes <= 10_000) == (3, True)


def test_caches_without_limits_of_their_own_share_a_quarter_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Sample(1, 0, {"image": torch.ones(3, 40, 40, dtype=torch.uint8)})
    gc.collect()
    first = Cache(1)
    used = int(first._all.numbers(1))
    monkeypatch.setattr("manyview.data.cache.default_limit", lambda: used + 6_000)
    one, other = Cache(1), Cache(1)
    assert one.put(0, image)
    assert not other.put(0, image)
    del one
    gc.collect()
    assert int(first._all.numbers(1)) == used
    assert other.put(0, image)


def open_files() -> Counter[str]:
    found = Counter[str]()
    for name in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{name}").split(" ")[0]] += 1
        except OSError:
            continue
    return found


def test_nothing_stays_of_a_cache_that_nobody_needs(photos: Path) -> None:
    seen(loader(photos, None), 0)
    gc.collect()
    before = open_files()["/memfd:manyview"]
    for workers in (0, 2):
        held = loader(photos, None, workers)
        seen(held, 0)
        assert open_files()["/memfd:manyview"] > before
        del held
        gc.collect()
        assert open_files()["/memfd:manyview"] == before


def test_where_nothing_may_be_held_or_the_system_cannot_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_cache(5, 0) is None
    assert make_cache(5) is not None

    def refused(name: str) -> int:
        raise OSError("not permitted")

    monkeypatch.setattr(os, "memfd_create", refused)
    assert make_cache(5) is None
    monkeypatch.delattr(os, "memfd_create")
    assert make_cache(5) is None


def test_if_the_system_gives_no_pages_the_sample_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError("no space left")

    cache = Cache(1)
    monkeypatch.setattr(os, "pwrite", full)
    assert not cache.put(0, Sample(1, 0, {"image": torch.ones(3, 5, 5)}))
    assert cache.get(0) is None


def test_a_loader_of_the_same_data_takes_what_another_holds(tmp_path: Path) -> None:
    data = Pictures(20, sizes=(140, 150))
    first = Loader(data, PIPELINE, 5, workers=0)
    seen(first, 0)
    second = Loader(data, ViewPipeline([Augmentation(24)] * 3), 5, workers=0)
    data.log = tmp_path / "log"
    data.log.write_text("")
    assert seen(second, 0)
    assert data.log.read_text() == ""
    other = Loader(Pictures(20, sizes=(140, 150)), PIPELINE, 5, workers=0)
    assert other.held == (0, 0)


def test_a_persons_own_transform_sees_what_is_held() -> None:
    pipeline = TransformPipeline(lambda x: x[:, :20, :20].float() * torch.rand(1), pillow=False)
    data = Pictures(20, sizes=(20, 24))
    holding, streaming = (Loader(data, pipeline, 5, workers=0, memory=memory) for memory in (None, 0))
    for epoch in range(2):
        assert same(seen(holding, epoch), seen(streaming, epoch))
    assert holding.held[0] == 20


def test_its_limit_is_a_quarter_of_the_memory_unless_it_is_given() -> None:
    assert Cache(1).limit == default_limit()
    assert Cache(1, 1000).limit == 1000
