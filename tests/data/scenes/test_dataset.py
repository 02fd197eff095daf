from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview.data.dataset import Batched, Dataset
from manyview.data.scenes.dataset import MODALITIES, TARGETS, Scenes


def test_scenes_are_a_data_set_that_comes_in_batches() -> None:
    scenes = Scenes(10)
    assert isinstance(scenes, Dataset)
    assert isinstance(scenes, Batched)
    sample = scenes[3]
    assert sample.modalities["image"].shape == (3, 32, 32)
    assert sample.modalities["image"].dtype == torch.uint8
    assert (sample.index, sample.id, sample.targets["label"]) == (3, int(scenes.ids[3]), int(scenes.labels[3]))
    assert scenes.modalities == ("image",)
    assert len(scenes.classes) == 10
    assert scenes[-1].id == scenes[9].id
    assert scenes.name(7) == "train-000007"


def test_a_batch_has_each_view_in_the_order_asked_for() -> None:
    scenes = Scenes(50, size=16, modalities=("rgb", "depth", "instance"))
    index = torch.tensor([4, 40, 4])
    batch = scenes.batch(index)
    assert list(batch) == ["rgb", "depth", "instance"]
    assert (batch["rgb"][0] == batch["rgb"][2]).all()
    assert (batch["depth"][1] == scenes[40].modalities["depth"]).all()
    assert scenes.batch(torch.arange(0))["depth"].shape == (0, 1, 16, 16)


@pytest.mark.parametrize("size", [17, 50])
def test_a_scene_alone_and_in_any_batch_is_the_same_to_the_bit(size: int) -> None:
    scenes = Scenes(300, size=size, modalities=MODALITIES)
    index = torch.tensor([7, 250, 3, 99, 8])
    together = scenes.batch(index)
    backwards = scenes.batch(index.flip(0))
    for place, row in enumerate(index.tolist()):
        alone = scenes[row].modalities
        for view in MODALITIES:
            assert torch.equal(alone[view], together[view][place]), (view, row)
            assert torch.equal(alone[view], backwards[view][len(index) - 1 - place]), (view, row)


def test_chunks_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Scenes(90).batch(torch.arange(90))["image"]
    monkeypatch.setattr("manyview.data.scenes.dataset.RAYS", 2 * 32 * 32 * 13)
    assert torch.equal(Scenes(90).batch(torch.arange(90))["image"], whole)


def test_the_count_changes_nothing() -> None:
    few, many = Scenes(20), Scenes(1000)
    assert torch.equal(few.ids, many.ids[:20])
    assert torch.equal(few.labels, many.labels[:20])
    assert torch.equal(few[19].modalities["image"], many[19].modalities["image"])


def test_threads_change_nothing() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = Scenes(64).batch(torch.arange(64))["image"]
        torch.set_num_threads(2)
        assert torch.equal(Scenes(64).batch(torch.arange(64))["image"], one)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_random_state_is_neither_used_nor_touched() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = Scenes(5)[2].modalities["image"]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(Scenes(5)[2].modalities["image"], first)


def test_splits_and_seeds_share_nothing() -> None:
    sets = [Scenes(2000, split=split, seed=seed) for split in ("train", "val", "test") for seed in (0, 1)]
    ids = torch.cat([scenes.ids for scenes in sets])
    assert len(ids.unique()) == len(ids)
    assert ids.min() >= 0
    pictures = torch.cat([scenes.batch(torch.arange(40))["image"] for scenes in sets]).flatten(1)
    assert len(pictures.unique(dim=0)) == len(pictures)


def test_another_size_shows_the_same_scene() -> None:
    small, large = Scenes(40, size=32), Scenes(40, size=128)
    index = torch.arange(40)
    shrunk = F.avg_pool2d(large.batch(index)["image"].float(), 4)
    assert (shrunk - small.batch(index)["image"]).abs().mean() < 8
    for row in index.tolist():
        assert small.describe(row).caption == large.describe(row).caption
    assert torch.equal(small.ids, large.ids)


def test_classes_are_equally_likely() -> None:
    counts = Scenes(20000).labels.bincount(minlength=10)
    assert counts.min() > 1850
    assert counts.max() < 2150


def test_the_label_is_the_main_object_of_the_masks() -> None:
    scenes = Scenes(60, modalities=("instance", "semantic"))
    views = scenes.batch(torch.arange(60))
    for row in range(60):
        main = views["semantic"][row][views["instance"][row] == 1]
        assert (main == scenes.labels[row] + 2).all()
        assert len(main) > 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"count": 0}, "count"),
        ({"size": 0}, "size"),
        ({"split": "tests"}, "split"),
        ({"modalities": ("image", "sound")}, "modalities"),
        ({"modalities": "image"}, "modalities"),
        ({"modalities": ()}, "modalities"),
        ({"targets": ("boxes", "price")}, "targets"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        Scenes(**arguments)  # type: ignore[arg-type]


def test_an_index_that_is_not_there_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="10 scenes"):
        Scenes(10)[10]


def neighbours_accuracy(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, k: int = 20) -> float:
    """Cosine, majority of k."""
    train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    nearest = (test @ train.T).topk(k, 1).indices
    votes = F.one_hot(labels[nearest], 10).sum(1)
    return float((votes.argmax(1) == truth).double().mean())


def images(scenes: Scenes) -> Tensor:
    return scenes.batch(torch.arange(len(scenes)))["image"].float() / 127.5 - 1


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        around = [nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)]
        self.around = nn.Sequential(*(around if inside != outside else []))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.path(x) + self.around(x))


def small_network(width: int = 24) -> nn.Sequential:
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
    blocks = [Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def shifted(x: Tensor) -> Tensor:
    """A crop of the padded batch, mirrored half of the time."""
    row, column = torch.randint(0, 7, (2,)).tolist()
    x = F.pad(x, (3, 3, 3, 3), mode="replicate")[:, :, row : row + 32, column : column + 32]
    return x.flip(3) if torch.rand(()) < 0.5 else x


def test_neighbours_in_pixels_or_random_features_say_little_about_the_class() -> None:
    train, test = Scenes(3000), Scenes(500, split="test")
    x, y = images(train), images(test)
    assert 0.1 < neighbours_accuracy(x.flatten(1), train.labels, y.flatten(1), test.labels) < 0.4
    torch.manual_seed(0)
    network = small_network()
    with torch.no_grad():
        network(x[:500])
        features, others = network.eval()(x), network(y)
    assert neighbours_accuracy(features, train.labels, others, test.labels) < 0.4


@pytest.mark.slow
def test_neighbours_in_pixels_say_little_with_all_scenes_too() -> None:
    train, test = Scenes(), Scenes(2000, split="test")
    x, y = images(train).flatten(1), images(test).flatten(1)
    assert neighbours_accuracy(x, train.labels, y, test.labels) < 0.4


@pytest.mark.slow
def test_a_small_network_learns_the_classes_from_labels() -> None:
    train, test = Scenes(40000), Scenes(2000, split="test")
    x, epochs, batch = images(train), 8, 128
    torch.manual_seed(0)
    network = nn.Sequential(small_network(), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.15, epochs * (len(x) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].split(batch):
            optimizer.zero_grad()
            F.cross_entropy(network(shifted(x[rows])), train.labels[rows]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        guess = network.eval()(images(test)).argmax(1)
    assert (guess == test.labels).double().mean() > 0.9


def test_samples_carry_the_targets_that_are_asked_for() -> None:
    scenes = Scenes(10, size=32, targets=("boxes", "keypoints", "caption"))
    assert list(Scenes(10)[4].targets) == ["label"]
    for row in (0, 4):
        described, targets = scenes.describe(row), scenes[row].targets
        assert list(targets) == ["label", "boxes", "keypoints", "caption"]
        assert targets["label"] == scenes.labels[row]
        assert targets["caption"] == described.caption
        assert torch.equal(targets["boxes"], described.boxes)
        assert torch.equal(targets["keypoints"], described.keypoints)
    assert set(Scenes(2, targets=TARGETS)[1].targets) == {"label", *TARGETS}
