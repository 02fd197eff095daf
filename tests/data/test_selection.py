"""Subsets keep what a sample is and renumber where it is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data.dataset import Batched, Dataset
from manyview.data.factory import open_data
from manyview.data.paired import Paired
from manyview.data.selection import (
    imbalanced,
    keep_shares,
    left_out,
    missing,
    modality_classes,
    only_modalities,
    reference,
    subset,
)
from tests.data.fakes import BatchedMemory, Memory
from tests.data.test_paired import put


def test_ids_and_labels_stay_and_the_index_is_dense() -> None:
    whole = Memory(10, 3)
    part = subset(whole, [7, 2])
    assert isinstance(part, Dataset)
    assert part.ids.tolist() == [whole[7].id, whole[2].id]
    assert part.labels is not None
    assert part.labels.tolist() == [1, 2]
    assert part.classes == whole.classes
    assert part.modalities == whole.modalities
    assert part.name(0) == "number 7"
    assert (part[0].id, part[0].index, part[0].targets["label"]) == (whole[7].id, 0, 1)
    assert part[1].index == part[-1].index == 1
    assert torch.equal(part[-1].modalities["image"], whole[2].modalities["image"])
    with pytest.raises(IndexError):
        part[2]


def test_a_boolean_for_each_row_works() -> None:
    assert subset(Memory(4, 2), torch.tensor([True, False, False, True])).ids.tolist() == [3, 24]


def test_a_subset_of_a_subset_finds_the_same_samples() -> None:
    twice = subset(subset(Memory(10, 2), [9, 8, 7]), [2, 0])
    assert [twice.name(i) for i in range(2)] == ["number 7", "number 9"]


def test_batches_are_passed_on_where_there_are_any() -> None:
    assert not isinstance(subset(Memory(5, 2), [1]), Batched)
    part = subset(BatchedMemory(5, 2), [4, 1])
    assert isinstance(part, Batched)
    assert part.batch(torch.tensor([1, 0]))["image"][:, 0, 0, 0].tolist() == [1, 4]


def test_without_labels_there_are_none() -> None:
    assert subset(Memory(5, 2, labelled=False), [1]).labels is None


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([5], "expected rows 0 to 4, got 5 to 5"),
        ([-1], "expected rows 0 to 4"),
        ([1, 1], "twice"),
        ([], "no samples are left"),
        ([0.5], "whole numbers"),
        ([[1]], "whole numbers"),
        ([True], r"expected \(5,\) booleans"),
    ],
)
def test_a_wrong_index_is_refused(index: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subset(Memory(5, 2), index)


class TwoModalities(BatchedMemory):
    modalities = ("image", "depth")  # type: ignore[assignment]

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        sample.modalities["depth"] = torch.full((1, 2, 2), float(index))
        return sample

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {**super().batch(index), "depth": index.float()[:, None, None, None]}


def test_one_modality_of_several_is_a_data_set_of_it_alone() -> None:
    whole = TwoModalities(6, 2)
    part = only_modalities(whole, ("depth",))
    assert isinstance(part, Dataset)
    assert isinstance(part, Batched)
    assert part.modalities == ("depth",)
    assert list(part[3].modalities) == ["depth"]
    assert list(part.batch(torch.tensor([4, 2]))) == ["depth"]
    assert (part[3].id, part[3].index, part.name(3), len(part)) == (whole[3].id, 3, whole.name(3), 6)
    assert torch.equal(part.ids, whole.ids)
    assert part.classes == whole.classes
    assert part.labels is not None


def test_the_only_modality_there_is_changes_nothing() -> None:
    data = Memory(4, 2)
    assert only_modalities(data, ("image",)) is data


def test_samples_that_lack_the_modality_are_left_out(tmp_path: Path) -> None:
    """A loader would show zeros in their place."""
    for name in "abc":
        put(tmp_path / "rgb" / f"{name}.jpg")
    for name in "bcd":
        put(tmp_path / "thermal" / f"{name}.png", "grey")
    paired = Paired(tmp_path)
    found = only_modalities(paired, ["thermal"])
    assert [found.name(i) for i in range(len(found))] == ["b", "c", "d"]
    assert [list(found[i].modalities) for i in range(3)] == [["thermal"]] * 3
    assert [found[i].index for i in range(3)] == [0, 1, 2]
    fewer = only_modalities(subset(paired, [0, 3]), ["rgb"])
    assert [fewer.name(i) for i in range(len(fewer))] == ["a"]
    both = only_modalities(paired, ("thermal", "rgb"))
    assert both.modalities == ("thermal", "rgb")
    assert [list(both[i].modalities) for i in (0, 1, 3)] == [["rgb"], ["thermal", "rgb"], ["thermal"]]


def counts(data: Dataset) -> list[int]:
    assert data.labels is not None
    return torch.bincount(data.labels, minlength=len(data.classes)).tolist()


def test_linear_keeps_a_tenth_of_the_first_class_and_all_of_the_last() -> None:
    assert counts(imbalanced(Memory(1000, 10))) == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_exponential_falls_by_e_from_class_to_class() -> None:
    kept = counts(imbalanced(Memory(50_000, 10), "exponential"))
    assert kept == [math.floor(5000 * math.exp(label - 9)) for label in range(10)]
    assert kept[0] == 0
    assert kept[-1] == 5000


def test_a_hundred_classes_go_by_tens() -> None:
    shares = keep_shares(100, "linear")
    assert shares[0] == shares[9] == pytest.approx(0.1)
    assert shares[10] == pytest.approx(0.2)
    assert shares[99] == 1
    assert keep_shares(100, "exponential")[85] == pytest.approx(math.exp(9) / math.exp(10))
    assert keep_shares(100, "linear", group=1)[0] == pytest.approx(0.01)


def test_groups_that_do_not_divide_the_classes_end_with_everything() -> None:
    assert keep_shares(5, "linear", group=2) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1])


def test_the_order_of_the_data_does_not_matter() -> None:
    whole = Memory(200, 4)
    shuffled = subset(whole, torch.randperm(200, generator=torch.Generator().manual_seed(1)))
    assert set(imbalanced(whole).ids.tolist()) == set(imbalanced(shuffled).ids.tolist())


def test_the_seed_matters_and_is_all_that_does() -> None:
    first, again, other = (imbalanced(Memory(200, 4), seed=seed).ids.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    torch.manual_seed(5)
    assert imbalanced(Memory(200, 4), seed=1).ids.tolist() == first


def test_a_larger_share_holds_the_smaller() -> None:
    rare = imbalanced(Memory(200, 4), "exponential")
    assert set(rare.ids.tolist()) <= set(imbalanced(Memory(200, 4), "linear").ids.tolist())


def test_which_samples_are_kept_is_fixed_for_ever() -> None:
    assert imbalanced(Memory(12, 2)).ids.tolist() == [10, 24, 31, 38, 52, 59, 66, 73, 80]


def test_batches_survive() -> None:
    assert hasattr(imbalanced(BatchedMemory(20, 2)), "batch")


def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="has no labels"):
        imbalanced(Memory(10, 2, labelled=False))
    with pytest.raises(ValueError, match="expected 'linear' or 'exponential', got 'cubic'"):
        imbalanced(Memory(10, 2), "cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group: expected at least 1"):
        imbalanced(Memory(10, 2), group=0)
    with pytest.raises(ValueError, match="leaves no sample"):
        imbalanced(subset(Memory(10, 10), [0]))


def test_missing_modalities_are_counted_without_reading(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path / "rgb" / f"{name}.jpg")
    put(tmp_path / "depth" / "a.png", "depth")
    (tmp_path / "rgb" / "b.jpg").write_bytes(b"broken")
    data = Paired(tmp_path)
    assert missing(data) == {"depth": 2}
    assert missing(subset(data, [0])) == {}
    assert missing(only_modalities(subset(data, [1, 2]), ("rgb",))) == {}
    assert missing(Memory(4, 2)) == {}


def test_a_part_without_a_modality_does_not_read_it(tmp_path: Path) -> None:
    put(tmp_path / "rgb" / "a.jpg")
    put(tmp_path / "depth" / "a.png", "depth")
    data = Paired(tmp_path)
    (tmp_path / "depth" / "a.png").write_bytes(b"broken")
    assert list(subset(only_modalities(data, ("rgb",)), [0])[0].modalities) == ["rgb"]


def test_colours_are_taken_of_the_picture(tmp_path: Path) -> None:
    put(tmp_path / "rgb" / "a.jpg")
    for folder in ("camera", "back"):
        put(tmp_path / folder / "a.jpg")
    put(tmp_path / "depth" / "a.png", "depth")
    assert reference(Paired(tmp_path, modalities=("depth", "camera", "rgb"))) == "rgb"
    assert reference(Paired(tmp_path, modalities=("depth", "camera", "back"))) == "camera"
    (tmp_path / "camera" / "a.jpg").write_bytes(b"broken")
    assert reference(Paired(tmp_path, modalities=("depth", "camera"))) == "depth"


def test_what_was_left_out_is_known_of_a_part_too(tmp_path: Path) -> None:
    for folder in ("rgb", "depth", "masks"):
        put(tmp_path / folder / "a.png")
    assert left_out(subset(Paired(tmp_path), [0])) == ("masks",)
    assert left_out(Memory(2, 2)) == ()


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        ("depth/1 depth/2 thermal/1", "depth,thermal"),
        ("depth/d_1 rgb/frame_1", "rgb,depth"),
        ("ir_left/1 Depth2/1 other/1", "Depth2,ir_left"),
        ("depth/1 rgb/1", ""),  # which are modalities
        ("cat/1 flow/1", ""),
        ("iris/1 flower/1 depths/1", ""),
    ],
)
def test_modalities_that_are_taken_for_classes_are_told(files: str, taken: str, tmp_path: Path) -> None:
    for file in files.split():
        put(tmp_path / f"{file}.png")
    said = modality_classes(open_data(tmp_path), "--modalities")
    assert [line.startswith(f"the folders {taken.replace(',', ', ')} are taken for classes") for line in said] == (
        [True] if taken else []
    )
    assert all(f"; --modalities {taken} takes them" in line for line in said)
