from __future__ import annotations

import torch

from manyview.data.dataset import Batched, Dataset, id_of, label_target
from tests.data.fakes import BatchedMemory, Memory


def test_a_data_set_is_what_has_the_attributes_of_one() -> None:
    assert isinstance(Memory(2, 2), Dataset)
    assert not isinstance([1, 2], Dataset)
    assert isinstance(BatchedMemory(2, 2), Batched)
    assert not isinstance(Memory(2, 2), Batched)


def test_an_id_is_the_same_on_every_machine_and_not_negative() -> None:
    assert id_of("rgb/a.png") == 919272300594482635
    assert id_of("caf\udce9.png") != id_of("caf\u00e9.png")  # a name that is not UTF-8 is a name all the same
    assert all(0 <= id_of(str(number)) < 2**63 for number in range(100))


def test_a_class_that_is_not_known_is_no_target() -> None:
    labels = torch.tensor([3, -1])
    assert label_target(labels, 0) == {"label": 3}
    assert label_target(labels, 1) == {}
    assert label_target(None, 0) == {}
