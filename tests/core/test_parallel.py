from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from manyview.core.errors import UserError
from manyview.core.parallel import parallel_map, resolve_device, scratch
from manyview.views import Augmentation, ViewPipeline


@pytest.fixture(params=[1, 2])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_every_part_is_worked_on_once() -> None:
    done = torch.zeros(50)
    parallel_map(lambda i: done[i].add_(1), list(range(50)))
    assert (done == 1).all()


@pytest.mark.usefixtures("_threads")
def test_a_mistake_in_a_part_is_raised() -> None:
    def work(part: int) -> None:
        if part == 3:
            raise ValueError("part 3")

    with pytest.raises(ValueError, match="part 3"):
        parallel_map(work, list(range(5)))


def test_torch_uses_one_core_inside_and_as_many_as_before_outside() -> None:
    before, inside = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        parallel_map(lambda _: inside.append((torch.get_num_threads(), threading.current_thread().name)), [1, 2, 3])
        assert {number for number, _ in inside} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_views_are_the_same_for_any_number_of_cores_and_any_parts(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images, ids = torch.randint(256, (24, 3, 96, 96), dtype=torch.uint8), torch.arange(24)
    pipeline = ViewPipeline([Augmentation(96, jitter=(0.4,) * 4, grey=0.2, blur=0.5)] * 2)
    expected = [pipeline({"image": images[i : i + 1]}, ids[i : i + 1])["image"] for i in range(24)]
    monkeypatch.setattr("manyview.views.pipeline.PART_PIXELS", 5 * 96 * 96)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(cores)
        views = pipeline({"image": images}, ids)["image"]
    finally:
        torch.set_num_threads(before)
    for k, view in enumerate(views):
        assert torch.equal(view, torch.cat([one[k] for one in expected]))


def test_scratch_space_survives_other_defaults_of_torch() -> None:
    with torch.device("meta"):
        assert scratch("test", 2, 3, device=torch.device("cpu")).device.type == "cpu"
    assert scratch("test", 3, 2, device=torch.device("cpu")).dtype == torch.float32


@pytest.mark.usefixtures("_threads")
def test_views_can_be_made_in_inference_mode() -> None:
    with torch.inference_mode():
        view = ViewPipeline([Augmentation(8)])({"image": torch.zeros(6, 3, 9, 9, dtype=torch.uint8)}, torch.arange(6))[
            "image"
        ][0]
    assert view.shape == (6, 3, 8, 8)


@pytest.mark.parametrize("there", [False, True])
def test_auto_is_a_gpu_where_there_is_one(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert resolve_device("auto") == resolve_device() == torch.device("cuda" if there else "cpu")


def test_a_device_is_itself() -> None:
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_gpu_that_is_not_there_is_refused(name: str | torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^device: cuda was asked for and there is none here; .* give cpu$"):
        resolve_device(name)


def test_what_is_no_device_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^device: 'abacus' cannot be used: .*; give auto, cpu or cuda$") as refused:
        resolve_device("abacus")
    assert "\n" not in str(refused.value)
