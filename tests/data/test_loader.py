"""The same samples and views for any number of workers and processes, and from the middle of an epoch."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision import transforms

from manyview.core.sample import Batch, Sample
from manyview.data.loader import Loader, TooManyUnreadable
from manyview.views import Augmentation, Modality, TransformPipeline, View, ViewPipeline
from manyview.views.pipeline import Geometry
from tests.data.random_pictures import Paired, Pictures
from tests.patience import PATIENCE

PIPELINE = ViewPipeline([Augmentation(16, jitter=(0.4, 0.4, 0.4, 0.1), grey=0.2)] * 2)


def seen(loader: Loader, epoch: int = 1, start: int = 0) -> list[tuple[Tensor, Mapping[str, list[Tensor]]]]:
    return [(batch.ids, batch.views()) for batch in loader.epoch(epoch, start)]


def same(
    a: list[tuple[Tensor, Mapping[str, list[Tensor]]]], b: list[tuple[Tensor, Mapping[str, list[Tensor]]]]
) -> bool:
    return len(a) == len(b) and all(
        torch.equal(ids, other_ids)
        and all(torch.equal(x, y) for name in views for x, y in zip(views[name], other[name], strict=True))
        for (ids, views), (other_ids, other) in zip(a, b, strict=True)
    )


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("pipeline", [PIPELINE, TransformPipeline(lambda x: x.float() * torch.rand(1), pillow=False)])
def test_any_number_of_workers_gives_the_same_batches(workers: int, pipeline: ViewPipeline | TransformPipeline) -> None:
    sizes = (20, 24) if pipeline is PIPELINE else (20,)
    data = Pictures(sizes=sizes)
    alone = Loader(data, pipeline, 8, workers=0, memory=0)
    many = Loader(data, pipeline, 8, workers=workers, memory=0)
    for epoch in (0, 1):
        assert same(seen(alone, epoch), seen(many, epoch))


@pytest.mark.parametrize("memory", [0, None])
def test_two_processes_together_see_what_one_sees(memory: int | None) -> None:
    data = Pictures()
    whole = Loader(data, PIPELINE, 8, workers=0, memory=memory)
    halves = [Loader(data, PIPELINE, 8, workers=0, memory=memory, rank=rank, world=2) for rank in (0, 1)]
    for one, first, second in zip(seen(whole), *map(seen, halves), strict=True):
        assert torch.equal(one[0], torch.cat([first[0], second[0]]))
        for k in range(2):
            joined = torch.cat([first[1]["image"][k], second[1]["image"][k]])
            assert torch.equal(one[1]["image"][k], joined)


PROCESS = """
import hashlib, sys
from manyview.data import Loader, Scenes
from manyview.views import AUGMENTATIONS
loader = Loader(Scenes(40), AUGMENTATIONS["simclr"](32), 8, seed=3, rank=int(sys.argv[1]), world=int(sys.argv[2]))
for batch in loader.epoch(2):
    for row in range(len(batch)):
        views = [view[row].numpy().tobytes() for view in batch.views()["image"]]
        print(int(batch.ids[row]), hashlib.sha256(b"".join(views)).hexdigest())
"""


def test_two_real_processes_see_to_the_bit_what_one_sees() -> None:
    def lines(rank: int, world: int) -> list[str]:
        command = [sys.executable, "-c", PROCESS, str(rank), str(world)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.splitlines()

    whole, first, second = lines(0, 1), lines(0, 2), lines(1, 2)
    assert len(whole) == 40
    joined = [first[i : i + 4] + second[i : i + 4] for i in range(0, 20, 4)]
    assert whole == [line for batch in joined for line in batch]


@pytest.mark.parametrize(("memory", "workers"), [(0, 0), (0, 2), (None, 0)])
def test_an_epoch_can_be_entered_in_its_middle(memory: int | None, workers: int) -> None:
    loader = Loader(Pictures(), PIPELINE, 8, workers=workers, memory=memory)
    assert same(seen(loader, 3)[4:], seen(loader, 3, start=4))


def test_an_epoch_has_every_sample_at_most_once_and_another_order() -> None:
    loader = Loader(Pictures(), PIPELINE, 8)
    orders = [torch.cat([batch.ids for batch in loader.epoch(epoch)]) for epoch in (0, 1)]
    assert len(loader) == 6
    assert all(len(order.unique()) == 48 for order in orders)
    assert not torch.equal(*orders)


def test_the_order_moves_with_the_ids_not_with_the_rows() -> None:
    """A data set with its samples in other places: the same ids come at the same time."""
    data, turned = Pictures(), Pictures()
    turned.ids = turned.ids.flip(0)
    a, b = (Loader(each, PIPELINE, 10, drop_last=False) for each in (data, turned))
    assert torch.equal(data.ids[a.order(5)], turned.ids[b.order(5)])


def test_without_shuffle_and_with_the_last_batch_everything_comes_in_order() -> None:
    loader = Loader(Pictures(), PIPELINE, 8, shuffle=False, drop_last=False)
    batches = list(loader.epoch(0))
    assert torch.equal(torch.cat([batch.index for batch in batches]), torch.arange(50))
    assert torch.equal(torch.cat([batch.labels for batch in batches]), torch.arange(50) % 4)
    assert len(batches[-1]) == 2


def test_each_file_is_decoded_once_for_all_its_views(tmp_path: Path) -> None:
    data = Pictures(sizes=(20, 24))
    loader = Loader(data, ViewPipeline([Augmentation(16)] * 5), 10, workers=2)  # sizes differ: it streams
    data.log = tmp_path / "streamed"  # a few were looked at beforehand
    for batch in loader.epoch(0):
        assert len(batch.views()["image"]) == 5
    assert Counter(data.log.read_text().split()) == Counter(str(i) for i in range(50))


def test_what_fits_is_decoded_once_for_all_epochs(tmp_path: Path) -> None:
    data = Pictures()
    data.log = tmp_path / "log"
    loader = Loader(data, PIPELINE, 10)
    decoded = data.log.read_text()
    for epoch in range(3):
        seen(loader, epoch)
    assert data.log.read_text() == decoded
    counts = Counter(decoded.split())
    assert set(counts) == {str(i) for i in range(50)}
    assert max(counts.values()) <= 2  # a few are looked at beforehand


def test_large_pictures_of_one_size_stream_with_the_same_bits_and_are_held_meanwhile(tmp_path: Path) -> None:
    data = Pictures(12, sizes=(150,))
    loader = Loader(data, PIPELINE, 4, workers=0)
    data.log = tmp_path / "log"
    assert loader.held == (0, 0)
    fresh = Loader(Pictures(12, sizes=(150,)), PIPELINE, 4, workers=0, memory=0)
    for epoch in range(3):
        assert same(seen(loader, epoch), seen(fresh, epoch))
    assert Counter(data.log.read_text().split()) == Counter(map(str, range(12)))
    assert loader.held[0] == 12


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_sample_is_replaced_by_the_next_and_listed(workers: int) -> None:
    data = Pictures(sizes=(20, 24), unreadable=(7, 8))
    loader = Loader(data, PIPELINE, 10, workers=workers, shuffle=False)
    index = torch.cat([batch.index for batch in loader.epoch(0)])
    assert index.tolist() == [*range(7), 9, 9, *range(9, 50)]
    assert loader.unreadable == {7: "cut short", 8: "cut short"}


@pytest.mark.parametrize("unreadable", [(7, 8), (48, 49), (0, 49)])
def test_decoded_before_or_not_the_same_sample_stands_in_for_an_unreadable_one(unreadable: tuple[int, ...]) -> None:
    before, streamed = (
        Loader(Pictures(unreadable=unreadable), PIPELINE, 10, workers=0, memory=memory) for memory in (None, 0)
    )
    for a, b in zip(before.epoch(0), streamed.epoch(0), strict=True):
        assert torch.equal(a.ids, b.ids)
        assert torch.equal(a.index, b.index)
    assert set(before.unreadable) == set(streamed.unreadable) == set(unreadable)


@pytest.mark.parametrize("sizes", [(20,), (20, 24)])
def test_too_many_unreadable_samples_end_it_with_one_line(sizes: tuple[int, ...]) -> None:
    data = Pictures(sizes=sizes, unreadable=(3, 4, 5))
    with pytest.raises(TooManyUnreadable, match=r"3 of 50 .*picture 3: cut short.*mend") as raised:
        seen(Loader(data, PIPELINE, 10, workers=0))
    assert "\n" not in str(raised.value)
    assert seen(Loader(data, PIPELINE, 10, workers=0, max_unreadable=0.1))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_hundred_unreadable_samples_in_a_row_are_no_accident(workers: int) -> None:
    data = Pictures(120, sizes=(20, 24), unreadable=tuple(range(5, 115)))
    with pytest.raises(TooManyUnreadable, match="in a row") as raised:
        seen(Loader(data, PIPELINE, 10, workers=workers, shuffle=False, max_unreadable=1.0))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("memory", [0, None])
def test_a_missing_view_is_zero_and_said_to_be_missing(memory: int | None) -> None:
    data = Paired()
    for batch in Loader(data, PIPELINE, 10, workers=0, memory=memory).epoch(0):
        there = batch.index % 3 != 0
        assert torch.equal(batch.present["depth"], there)
        assert batch.present["image"].all()
        depth = batch.views()["depth"][0]
        assert depth.shape == (10, 1, 16, 16)
        assert (depth[~there] == 0).all()
        torch.testing.assert_close(depth[there].mean((1, 2, 3)), batch.index[there].float())


@pytest.mark.parametrize("memory", [0, None])
def test_a_view_that_no_sample_of_a_batch_has_is_there_all_the_same(memory: int | None) -> None:
    class Rare(Pictures):
        modalities: tuple[str, ...] = ("image", "depth")

        def __getitem__(self, index: int) -> Sample:
            sample = super().__getitem__(index)
            depth = {"depth": torch.ones(1, 20, 20)} if index == 23 else {}
            return Sample(sample.id, index, {**depth, **sample.modalities}, sample.targets)

    for batch in Loader(Rare(), PIPELINE, 10, workers=0, memory=memory).epoch(0):
        assert list(batch.views()) == ["image", "depth"]
        assert torch.equal(batch.present["depth"], batch.index == 23)


@pytest.mark.parametrize("memory", [0, None])
def test_a_view_that_no_sample_has_is_zeros_like_an_example(memory: int | None) -> None:
    class Without(Pictures):
        modalities: tuple[str, ...] = ("image", "depth")

    loader = Loader(Without(), PIPELINE, 10, workers=0, memory=memory, examples={"depth": torch.ones(1, 20, 20)})
    for batch in loader.epoch(0):
        assert not batch.present["depth"].any()
        assert torch.equal(batch.views()["depth"][1], torch.zeros(10, 1, 16, 16))
        assert batch.views()["image"][0].any()


@pytest.mark.parametrize("memory", [0, None])
def test_a_process_may_have_no_share_of_the_last_batch(memory: int | None) -> None:
    loader = Loader(Pictures(9), PIPELINE, 8, workers=0, memory=memory, drop_last=False, rank=1, world=2)
    sizes = [(len(batch), len(batch.views()["image"][0])) for batch in loader.epoch(0)]
    assert sizes == [(4, 4), (0, 0)]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_another_has_displaced_says_so(workers: int) -> None:
    loader = Loader(Pictures(), PIPELINE, 10, workers=workers, memory=0)
    first = loader.epoch(0)
    next(first)
    assert torch.equal(next(loader.epoch(1)).ids, Pictures().ids[loader.order(1)[:10]])
    with pytest.raises(RuntimeError, match="epoch 0 cannot go on"):
        next(first)


def test_a_loader_that_nobody_needs_is_gone_at_once() -> None:
    loader = Loader(Pictures(), PIPELINE, 10, workers=2, memory=0)
    next(loader.epoch(0))
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_drawn_from_the_random_numbers_of_who_trains(workers: int) -> None:
    torch.manual_seed(0)
    loader, before = Loader(Pictures(), PIPELINE, 10, workers=workers, memory=0), torch.get_rng_state()
    next(loader.epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("memory", [0, None])
def test_views_of_some_rows_are_those_of_the_whole_batch(memory: int | None) -> None:
    batch: Batch = next(Loader(Pictures(), PIPELINE, 10, workers=0, memory=memory).epoch(0))
    whole, part = batch.views()["image"], batch.views(slice(3, 7))["image"]
    for a, b in zip(whole, part, strict=True):
        assert torch.equal(a[3:7], b)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 51}, "more than the 50 samples"),
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"batch_size": 9, "world": 2}, "multiple"),
        ({"rank": 2, "world": 2}, "rank: .*got 2"),
        ({"max_unreadable": 2}, "max_unreadable: .*got 2"),
        ({"world": 0}, "world: .*got 0"),
        ({"batch_size": 8.0}, "batch_size: .*got 8.0"),
        ({"seed": "a"}, "seed: .*got 'a'"),
        ({"dataset": "scenes"}, "dataset: str is none"),
        ({"pipeline": transforms.ToTensor()}, "TransformPipeline"),
        ({"pipeline": ViewPipeline([Augmentation(8)], {"imgae": Modality()})}, "has no \\['imgae'\\]"),
    ],
)
def test_a_mistake_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loader(**{"dataset": Pictures(), "pipeline": PIPELINE, "batch_size": 8, **wrong})


@pytest.mark.parametrize("which", [(-1, 0), (0, -1), (0, 7), ("0", 0)])
def test_an_epoch_that_cannot_be_is_refused(which: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="epoch"):
        next(Loader(Pictures(), PIPELINE, 8).epoch(*which))


@pytest.mark.parametrize("geometry", ["shared", "own"])
@pytest.mark.parametrize("memory", [0, None])
def test_a_derived_view_is_present_where_its_modality_is(memory: int | None, geometry: Geometry) -> None:
    pipeline = PIPELINE.of(
        {"near": 1, "L": 2}, views={"near": View("depth", mean=(1.0,), std=(2.0,))}, geometry=geometry
    )
    for batch in Loader(Paired(), pipeline, 10, workers=0, memory=memory).epoch(0):
        there, views = batch.index % 3 != 0, batch.views()
        assert list(views) == list(batch.present) == ["near", "L"]
        assert torch.equal(batch.present["near"], there)
        assert batch.present["L"].all()
        assert [tuple(copy.shape) for copy in views["L"]] == [(10, 1, 16, 16)] * 2
        torch.testing.assert_close(views["near"][0][there].mean((1, 2, 3)), (batch.index[there].float() - 1) / 2)
        assert torch.equal(batch.views(slice(2, 5))["L"][1], views["L"][1][2:5])


@pytest.mark.parametrize("memory", [0, None])
def test_a_view_of_a_modality_that_the_data_lacks_is_refused_at_once(memory: int | None) -> None:
    with pytest.raises(ValueError, match="views: 'thermal' is made of 'thermal', which the data lacks; it has image"):
        Loader(Pictures(), PIPELINE.of({"thermal": 1}), 10, memory=memory)


def test_it_knows_how_many_samples_so_many_batches_hold() -> None:
    for drop_last, expected in ((True, [0, 8, 16, 24]), (False, [0, 8, 16, 20, 28, 36, 40])):
        loader = Loader(Pictures(20), PIPELINE, 8, drop_last=drop_last)
        assert [loader.seen(count) for count in range(len(expected))] == expected
