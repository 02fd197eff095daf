"""The embedding pass: in order, the same for any batch size, in the weights' precision, the network left as it was."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from manyview.core.sample import Views
from manyview.data import Loader, Scenes
from manyview.encoders import Encoder, create
from manyview.evaluate import knn
from manyview.features.embedding_pass import (
    ImageBatch,
    as_input,
    embed,
    embed_pieces,
    embedding,
    features,
    forward,
    loader_batches,
    on_device,
)
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
    network = encoder()
    found, labels = features(network, scenes())
    raw = {"image": scenes().batch(torch.arange(50))["image"]}
    views = AUGMENTATIONS["probe-test"](16)(raw, scenes().ids, seed=0, epoch=0)["image"][0]
    with torch.no_grad():
        torch.testing.assert_close(found, network.eval()(views), rtol=1e-4, atol=1e-5)
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
    network = encoder()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    features(network, scenes())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(each.grad is None for each in network.parameters())


def test_every_part_is_in_the_mode_it_was_in_even_after_a_failure() -> None:
    network = encoder().train()
    frozen = next(part for part in network.modules() if isinstance(part, nn.BatchNorm2d)).eval()
    modes = [part.training for part in network.modules()]
    features(network, scenes())
    assert [part.training for part in network.modules()] == modes
    with pytest.raises(ValueError, match="expects"):
        features(create("patchnet", channels=1, size=16), scenes())
    assert not frozen.training


def test_one_loader_serves_again_and_again_and_gives_the_same() -> None:
    loader = Loader(scenes(), AUGMENTATIONS["probe-test"](16), 20, shuffle=False, drop_last=False)
    network = encoder()
    first, again = embed(network, loader)[0], embed(network, loader)[0]
    assert torch.equal(first, again)
    torch.testing.assert_close(first, features(network, scenes())[0], rtol=0, atol=1e-5)


def test_views_of_ones_own_are_what_the_encoder_sees() -> None:
    seen: list[Tensor] = []
    network = encoder()
    network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    features(network, scenes(), AUGMENTATIONS["probe-test"](8))
    assert seen[0].shape == (50, 3, 8, 8)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_data_without_labels_gives_minus_one_which_neighbours_refuse() -> None:
    found, labels = features(encoder(), Memory(30, 3, labelled=False))
    assert labels.tolist() == [-1] * 30
    with pytest.raises(ValueError, match="have no label"):
        knn(found, labels, found, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_images_take_the_dtype_of_the_weights_and_embeddings_are_float32(dtype: torch.dtype) -> None:
    network = encoder().to(dtype)
    seen: list[Tensor] = []
    network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    found = forward(network, torch.randn(4, 3, 16, 16), read=embedding)
    assert seen[0].dtype == dtype
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert found.dtype == torch.float32


def test_a_pass_reads_several_outputs_of_several_copies_at_once() -> None:
    network, copies = encoder(), [torch.randn(4, 3, 16, 16) for _ in range(2)]

    def read(network: Encoder, views: Views) -> list[Tensor]:
        (copies,) = views.values()
        return [network.layers(copies[0])["stage1"], *(embedding(network, copy) for copy in copies)]

    layer, first, second = forward(network, {"image": copies}, read=read)
    assert torch.equal(first, forward(network, copies[0], read=embedding))
    assert torch.equal(second, forward(network, copies[1], read=embedding))
    assert layer.shape == (4, 8, 8, 8)


def test_autocast_around_a_pass_changes_no_number() -> None:
    network, x = encoder(), torch.randn(4, 3, 16, 16)
    plain = forward(network, x, read=embedding)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(forward(network, x, read=embedding), plain)


def test_a_network_without_weights_takes_images_as_they_are() -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert torch.equal(as_input(x, nn.Flatten()), x)
    assert forward(nn.Flatten(), x, read=lambda network, x: network(x)).shape == (2, 48)


def test_eval_mode_and_a_device_are_given_back_after_a_failure() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval())

    def failing(*_: object) -> None:
        raise KeyError

    with pytest.raises(KeyError), on_device(network, torch.device("cpu")):
        forward(network, torch.ones(1, 2, 1, 1), read=failing)
    assert [part.training for part in network.modules()] == [True, True, False]


def test_pieces_leave_out_what_only_stands_in_for_an_unreadable_image() -> None:
    x = torch.randn(5, 3, 16, 16)
    batches = [
        ImageBatch(2, torch.tensor([0, -1]), x[:2]),
        ImageBatch(1, torch.empty(0, dtype=torch.long), torch.empty(0), {2: "torn"}),
        ImageBatch(3, torch.tensor([3, 4, 5]), x[2:]),
    ]
    done: list[int] = []
    first, second = embed_pieces(encoder(), batches, [torch.arange(3), torch.arange(3, 6)], advance=done.append)
    assert (first.rows.tolist(), second.rows.tolist()) == ([0], [3, 4, 5])
    assert first.vectors.shape == (1, 16)
    assert (first.unreadable, second.unreadable) == ({2: "torn"}, {})
    assert done == [2, 1, 3]
    torch.testing.assert_close(first.vectors, forward(encoder(), x[:1], read=embedding))


def test_a_loaders_batches_say_which_rows_of_the_data_they_are() -> None:
    loader = Loader(scenes(), AUGMENTATIONS["probe-test"](16), 20, shuffle=False, drop_last=False)
    rows = torch.arange(100, 150)
    batches = list(loader_batches(loader, rows, "image"))
    assert [batch.count for batch in batches] == [20, 20, 10]
    assert torch.cat([batch.rows for batch in batches]).tolist() == rows.tolist()
