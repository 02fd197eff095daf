import numpy as np
import pytest
import torch
from pycocotools import mask as oracle

from manyview.transfer.run_lengths import decode_mask, encode_mask, has_flaw


def a_mask(seed: int = 0) -> torch.Tensor:
    return (torch.rand(13, 9, generator=torch.Generator().manual_seed(seed)) > 0.6).to(torch.uint8)


def test_a_mask_is_the_same_after_encoding_and_decoding() -> None:
    assert torch.equal(decode_mask(encode_mask(a_mask()), 13, 9), a_mask())


def test_run_lengths_are_those_of_pycocotools() -> None:
    theirs = oracle.encode(np.asfortranarray(a_mask().numpy()))
    assert encode_mask(a_mask())["counts"] == theirs["counts"].decode()


def test_polygons_are_decoded_as_pycocotools_does() -> None:
    polygons = [[1.2, 1.0, 7.5, 2.0, 6.0, 9.3], [0, 10, 5, 10, 5, 12.5, 0, 12.5]]
    theirs = oracle.decode(oracle.merge(oracle.frPyObjects(polygons, 13, 9)))
    assert np.array_equal(decode_mask(polygons, 13, 9).numpy(), theirs)


def test_uncompressed_run_lengths_are_decoded() -> None:
    found = decode_mask({"size": [2, 3], "counts": [1, 2, 3]}, 2, 3)
    assert found.tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_compressed_run_lengths_of_a_mask_have_no_flaw(seed: int) -> None:
    big = (torch.rand(200, 300, generator=torch.Generator().manual_seed(seed)) > 0.99).to(torch.uint8)
    assert not has_flaw(encode_mask(big), 200, 300)


@pytest.mark.parametrize(
    "segmentation",
    [
        None,
        [],
        "text",
        [[1, 2, 3, 4]],
        [[1, 2, 3, 4, 5, 6, 7]],
        [[0, 0, 5, 0, float("nan"), 5]],
        [[0, 0, 1e9, 0, 5, 5]],
        {"size": [13, 9]},
        {"size": [9, 13], "counts": [117]},
        {"size": [13, 9], "counts": [118]},
        {"size": [13, 9], "counts": [-1, 118]},
        {"size": [13, 9], "counts": [117.0]},
        {"size": [13, 9], "counts": "\u00e9"},
        {"size": [13, 9], "counts": "ooooooooooooooooooo"},
        {"size": [13, 9], "counts": encode_mask(torch.ones(20, 20, dtype=torch.uint8))["counts"]},
    ],
)
def test_what_is_no_mask_of_an_image_is_found_before_it_is_decoded(segmentation: object) -> None:
    assert has_flaw(segmentation, 13, 9)
