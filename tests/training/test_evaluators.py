from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

from manyview.data import TorchDataset
from manyview.encoders import Encoder, create
from manyview.evaluate import knn
from manyview.features.embedding_pass import features
from manyview.training.evaluators import Scorer
from manyview.views import AUGMENTATIONS


def colours(count: int, seed: int) -> TorchDataset:
    """Pictures of two classes: darker and brighter ones."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    base = torch.where(labels == 1, 170, 40)[:, None, None, None]
    images = (base + torch.randint(0, 60, (count, 3, 16, 16), generator=draw)).to(torch.uint8)
    return TorchDataset(TensorDataset(images, labels))


def scorer(bank: int = 5000, queries: int = 1000) -> Scorer:
    views = AUGMENTATIONS["probe-test"](16)
    return Scorer(colours(60, 0), colours(30, 1), views, bank=bank, queries=queries, device=torch.device("cpu"))


def encoder() -> Encoder:
    torch.manual_seed(0)
    return create("patchnet", size=16, widths=(8, 16), blocks=(1, 1))


def test_it_is_the_knn_of_the_images_kept_aside() -> None:
    network = encoder()
    views = AUGMENTATIONS["probe-test"](16)
    expected = knn(*features(network, colours(60, 0), views), *features(network, colours(30, 1), views), k=20)
    assert scorer()(network) == expected
    assert expected > 0.9


def test_at_most_so_many_images_are_looked_at_and_always_the_same() -> None:
    few = scorer(bank=24, queries=10)
    assert [len(loader.dataset) for loader in few.loaders] == [24, 10]
    again = scorer(bank=24, queries=10)
    for one, other in zip(few.loaders, again.loaders, strict=True):
        assert torch.equal(one.dataset.ids, other.dataset.ids)


def test_a_bank_smaller_than_the_neighbours_is_enough() -> None:
    assert 0 <= scorer(bank=4)(encoder()) <= 1


def test_the_encoder_stays_in_training_mode_and_unchanged() -> None:
    network = encoder().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    randomness = torch.get_rng_state()
    scorer()(network)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), randomness)  # else a run would depend on how often it is scored
