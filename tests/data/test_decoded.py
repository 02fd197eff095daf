"""What fits is decoded once, and says of each row what is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.core.sample import Sample
from manyview.data.decoded import PROBES, decode, default_limit, some_samples
from tests.data.fakes import BatchedMemory
from tests.data.random_pictures import Paired, Pictures


def test_rows_that_lack_a_modality_or_cannot_be_read_are_zero_and_noted() -> None:
    data = Paired(20, unreadable=(4,))
    decoded = decode(data)
    assert decoded is not None
    assert list(decoded.pixels) == ["image", "depth"]
    assert decoded.unreadable == {4: "cut short"}
    for row in range(20):
        assert bool(decoded.present["depth"][row]) == (row % 3 != 0 and row != 4)
        assert bool(decoded.present["image"][row]) == (row != 4)
        images = decoded.pixels["image"][row]
        assert torch.equal(images, data[row].modalities["image"]) if row != 4 else bool((images == 0).all())


def test_a_batched_data_set_is_decoded_by_its_batches() -> None:
    data = BatchedMemory(5, 2)
    decoded = decode(data)
    assert decoded is not None
    assert torch.equal(decoded.pixels["image"], data.batch(torch.arange(5))["image"])


def test_pictures_of_several_sizes_or_too_many_bytes_are_not_decoded() -> None:
    assert decode(Pictures(sizes=(20, 24))) is None
    assert decode(Pictures(10), limit=10 * 3 * 20 * 20 - 1) is None
    assert decode(Pictures(10), limit=10 * 3 * 20 * 20) is not None


def test_whether_it_is_wanted_is_asked_before_all_of_it_is_read(tmp_path: Path) -> None:
    data = Pictures(100)
    data.log = tmp_path / "log"
    assert decode(data, wanted=lambda none: none["image"].shape != (0, 3, 20, 20)) is None
    assert len(data.log.read_text().split()) == PROBES + 1


def test_a_few_samples_lie_over_the_whole_data_and_more_come_until_each_modality_was_met() -> None:
    assert [sample.index for sample in some_samples(Pictures(161))] == list(range(0, 161, 160 // PROBES))

    class Rare(Paired):
        def __getitem__(self, index: int) -> Sample:
            sample = super().__getitem__(index)
            if index != 7:
                sample.modalities.pop("depth", None)
            return sample

    assert any("depth" in sample.modalities for sample in some_samples(Rare(161)))


def test_the_limit_is_shared_among_the_processes_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = default_limit()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert default_limit() == alone // 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "many")
    assert default_limit() == alone
