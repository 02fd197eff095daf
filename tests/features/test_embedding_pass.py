"""Embeddings for evaluation: in order, the same for any batch size, and the encoder left as it was."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from manyview.data import Loader, Scenes
from manyview.encoders import Encoder, create
from manyview.evaluate import embed, knn
from manyview.features.embedding_pass import features
from manyview.views import AUGMENTATIONS
from tests.data.fakes import Memory


@cache
def scenes() -> Scenes:
    return Scenes(50, size=16)


def encoder() -> Encoder:
    """Small, with statistics that are not those of its start."""
    torch.manual_seed(0)
    made = create("patchnet", size=16, widths=(8, 16), blocks=(1, 1))
    made(torch.randn(64, 3, 16, 16) * 2 + 1)
    return made


def test_they_are_the_encoders_embeddings_in_the_data_sets_order() -> None:
    looking = encoder()
    found, labels = features(looking, scenes())
    raw = {"image": scenes().batch(torch.arange(50))["image"]}
    views = AUGMENTATIONS["probe-test"](16)(raw, scenes().ids, seed=0, epoch=0)["image"][0]
    with torch.no_grad():
        torch.testing.assert_close(found, looking.eval()(views), rtol=1e-4, atol=1e-5)
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert labels.tolist() == scenes().labels.tolist()


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_an_images_embedding_does_not_depend_on_the_batch(batch_size: int) -> None:
    whole, _ = features(encoder(), scenes())
    pieces, labels = features(encoder(), scenes(), batch_size=batch_size)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-5)
    assert len(labels) == 50


def test_no_statistic_of_a_batch_norm_moves_and_nothing_gets_a_gradient() -> None:
    looking = encoder()
    before = {name: value.clone() for name, value in looking.state_dict().items()}
    features(looking, scenes())
    for name, value in looking.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(each.grad is None for each in looking.parameters())


def test_every_part_is_in_the_mode_it_was_in_even_after_a_failure() -> None:
    looking = encoder().train()
    frozen = next(part for part in looking.modules() if isinstance(part, nn.BatchNorm2d)).eval()
    modes = [part.training for part in looking.modules()]
    features(looking, scenes())
    assert [part.training for part in looking.modules()] == modes
    with pytest.raises(ValueError, match="expects"):
        features(create("patchnet", channels=1, size=16), scenes())
    assert not frozen.training


def test_one_loader_serves_again_and_again_and_gives_the_same() -> None:
    loader = Loader(scenes(), AUGMENTATIONS["probe-test"](16), 20, shuffle=False, drop_last=False)
    looking = encoder()
    first, again = embed(looking, loader)[0], embed(looking, loader)[0]
    assert torch.equal(first, again)
    torch.testing.assert_close(first, features(looking, scenes())[0], rtol=0, atol=1e-5)


def test_views_of_ones_own_are_what_the_encoder_sees() -> None:
    seen: list[Tensor] = []
    looking = encoder()
    looking.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    features(looking, scenes(), AUGMENTATIONS["probe-test"](8))
    assert seen[0].shape == (50, 3, 8, 8)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_data_without_labels_gives_minus_one_which_neighbours_refuse() -> None:
    found, labels = features(encoder(), Memory(30, 3, labelled=False))
    assert labels.tolist() == [-1] * 30
    with pytest.raises(ValueError, match="have no label"):
        knn(found, labels, found, labels)
