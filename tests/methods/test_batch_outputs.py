"""What terms are given of a batch; that processes join their rows is tested with the terms."""

from __future__ import annotations

import torch

from manyview.encoders import Slot
from manyview.methods import BatchOutputs

QUERY, KEY = Slot("query", "a", 0), Slot("key", "b", 0)


def batch(**options: object) -> BatchOutputs:
    outputs = {QUERY: torch.eye(3), KEY: torch.eye(3).flip(0)}
    return BatchOutputs(outputs, torch.tensor([7, 8, 9]), torch.arange(3), **options)  # type: ignore[arg-type]


def test_alone_a_process_has_all_rows_and_nothing_is_copied() -> None:
    found = batch()
    assert found.processes == 1
    assert found.gathered([QUERY]) is found
    assert found.gather(found.ids) is found.ids


def test_queries_and_keys_come_with_what_is_known_of_their_images() -> None:
    present = {"a": torch.tensor([True, True, False]), "b": torch.tensor([True, False, True])}
    found = batch(present=present, step=4).embeddings([QUERY], [KEY])
    assert torch.equal(found.queries[0], torch.eye(3))
    assert torch.equal(found.keys[0], torch.eye(3).flip(0))
    assert (found.ids.tolist(), found.index.tolist(), found.step) == ([7, 8, 9], [0, 1, 2], 4)
    assert found.present is not None
    assert found.keys_present is not None
    assert (found.present[0] is present["a"], found.keys_present[0] is present["b"]) == (True, True)
