from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from manyview.core import memory
from manyview.core.memory import LARGE, new_memory

SIDE = 1 << 10  # of floats: exactly what is large


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free", [])


def test_memory_is_used_again_once_the_last_tensor_on_it_is_gone() -> None:
    first = new_memory((SIDE, SIDE))
    assert first.is_contiguous()
    assert (first.dtype, tuple(first.shape)) == (torch.float32, (SIDE, SIDE))
    place, part = first.data_ptr(), first[3:5, 7].view(2, 1)
    assert place % 64 == 0
    del first
    assert new_memory((SIDE, SIDE)).data_ptr() != place  # `part` is still there
    del part
    assert place in {new_memory((SIDE, SIDE)).data_ptr(), new_memory((SIDE, SIDE)).data_ptr()}


def test_what_is_held_for_the_backward_pass_is_not_given_away() -> None:
    x, weight = new_memory((SIDE, SIDE)).fill_(2), torch.ones(SIDE, SIDE, requires_grad=True)
    loss = (x * weight).sum()
    del x
    new_memory((SIDE, SIDE)).fill_(5)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.eq(2).all()


def test_only_a_few_large_pieces_are_kept_and_they_are_of_the_size_asked_for() -> None:
    several = [new_memory((SIDE, SIDE)) for _ in range(7)]
    assert len({each.data_ptr() for each in several}) == 7
    del several
    assert len(memory._free) == memory.KEPT
    assert new_memory((SIDE, SIDE + 1)).shape[1] == SIDE + 1
    new_memory((2, LARGE // 16))
    assert all(block.nbytes >= LARGE for block in memory._free)
    assert new_memory((4, LARGE), torch.uint8).dtype == torch.uint8


def test_threads_never_get_the_same_piece() -> None:
    def write(number: int) -> bool:
        mine = new_memory((SIDE, SIDE)).fill_(number)
        return bool(mine.eq(number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(40)))


@pytest.mark.parametrize("shape", [(), (0, 3), (4, 2, 3), (SIDE, SIDE)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_it_has_any_shape_and_type_also_where_no_gradient_can_be_asked_for(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for inference in (False, True):
        with torch.inference_mode(inference):
            room = new_memory(shape, dtype)
            assert (tuple(room.shape), room.dtype, room.device.type) == (shape, dtype, "cpu")
            assert room.is_contiguous()
            assert bool(room.fill_(1).eq(1).all())


def test_other_devices_have_memory_of_their_own() -> None:
    room = new_memory((SIDE, SIDE), device=torch.device("meta"))
    assert room.device.type == "meta"
    assert memory._free == []
