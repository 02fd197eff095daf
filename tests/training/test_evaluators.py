"""Evaluators: the kNN accuracy of the encoders as they stand, and which evaluators a run has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.data import TensorDataset

from manyview.config.config import Config
from manyview.config.resolve import resolve
from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data import Dataset, Loader, TorchDataset
from manyview.data.selection import subset
from manyview.embeddings.open_model import open_model
from manyview.encoders import Encoder, Towers, create
from manyview.evaluate import Task, knn
from manyview.evaluate.linear_fast import linear_fast
from manyview.features.embedding_pass import embed, features
from manyview.methods import cmc, simclr
from manyview.training import pipelines, run_data
from manyview.training.evaluators import KnnEvaluator, LinearEvaluator, evaluators, make_probe
from manyview.training.instance import InstanceEvaluator
from manyview.training.retrieval import RetrievalEvaluator
from manyview.training.run_data import RunData
from manyview.views import View, ViewPipeline
from tests.config.small import flags
from tests.evaluate.pictures import scenes

CPU = torch.device("cpu")
IMAGE = {"image": View("image")}


def colours(count: int, seed: int) -> TorchDataset:
    """Pictures of two classes: darker and brighter ones."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    base = torch.where(labels == 1, 170, 40)[:, None, None, None]
    images = (base + torch.randint(0, 60, (count, 3, 16, 16), generator=draw)).to(torch.uint8)
    return TorchDataset(TensorDataset(images, labels))


class WithHeight:
    """The same pictures, and a modality that says nothing of the class."""

    modalities = ("image", "height")

    def __init__(self, pictures: TorchDataset) -> None:
        self.pictures, self.ids, self.classes = pictures, pictures.ids, pictures.classes
        self.labels: torch.Tensor | None = pictures.labels

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Sample:
        found = self.pictures[index]
        height = torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(index))
        return replace(found, modalities={**found.modalities, "height": height})

    def name(self, index: int) -> str:
        return str(index)


def settings(bank: int = 5000, queries: int = 1000, more: str = "") -> Config:
    size = "--augmentation custom --augmentation.size 16 --workers 0"
    return flags(f"{size} --knn-bank {bank} --knn-queries {queries} {more}")


def data(train: Dataset, test: Dataset | None, views: dict[str, View] | None = None) -> RunData:
    views = views or IMAGE
    return RunData(train, test, views, dict.fromkeys(views, 3), 16, (len(train), 0), train.modalities)


def evaluator(bank: int = 5000, queries: int = 1000) -> KnnEvaluator:
    return KnnEvaluator(data(colours(60, 0), colours(30, 1)), settings(bank, queries), CPU)


def encoder(channels: int = 3) -> Encoder:
    torch.manual_seed(0)
    return create("patchnet", size=16, widths=(8, 16), blocks=(1, 1), channels=channels)


def towers(network: Encoder | dict[str, Encoder]) -> Towers:
    return Towers(network, None)


def test_it_is_the_knn_of_the_held_out_images() -> None:
    network, views = encoder(), pipelines.evaluation(settings(), IMAGE)
    expected = knn(*features(network, colours(60, 0), views), *features(network, colours(30, 1), views), k=20)
    assert evaluator()(towers(network)) == {"knn": expected}
    assert expected > 0.9


def test_at_most_so_many_images_are_scored_and_always_the_same() -> None:
    few = evaluator(bank=24, queries=10)
    assert [len(loader.dataset) for loader in few.loaders] == [24, 10]
    again = evaluator(bank=24, queries=10)
    for one, other in zip(few.loaders, again.loaders, strict=True):
        assert torch.equal(one.dataset.ids, other.dataset.ids)


def test_a_bank_smaller_than_the_neighbours_is_enough() -> None:
    assert 0 <= evaluator(bank=4)(towers(encoder()))["knn"] <= 1


def test_the_encoder_stays_in_training_mode_and_unchanged() -> None:
    network = encoder().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    randomness = torch.get_rng_state()
    evaluator()(towers(network))
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), randomness)  # else a run would depend on how often it is scored


def test_an_encoder_a_view_is_scored_by_itself_and_all_of_them_side_by_side() -> None:
    views = {**IMAGE, "height": View("height")}
    train, test = WithHeight(colours(60, 0)), WithHeight(colours(30, 1))
    networks = {"image": encoder(), "height": encoder(1)}
    scores = KnnEvaluator(data(train, test, views), settings(), CPU)(towers(networks))
    assert list(scores) == ["knn", "knn/image", "knn/height"]
    assert scores["knn/image"] == evaluator()(towers(networks["image"]))["knn"]
    assert scores["knn/height"] < 0.8 < scores["knn/image"]
    pipeline, sides = pipelines.evaluation(settings(), views), []
    for images in (train, test):
        found = [features_of(networks[view], images, view, pipeline) for view in views]
        assert images.labels is not None
        sides += [torch.cat(found, 1), images.labels]
    assert scores["knn"] == knn(*sides, k=20)


def features_of(network: Encoder, images: Dataset, view: str, pipeline: ViewPipeline) -> torch.Tensor:
    loader = Loader(images, pipeline, 10, shuffle=False, drop_last=False, workers=0)
    return embed(network, loader, view)[0]


class WithoutHeight(WithHeight):
    """Every third has no height."""

    def __getitem__(self, index: int) -> Sample:
        found = super().__getitem__(index)
        return found if index % 3 else replace(found, modalities={"image": found.modalities["image"]})


def test_images_that_lack_a_view_take_no_part_in_its_score() -> None:
    views = {**IMAGE, "height": View("height")}
    networks = {"image": encoder(), "height": encoder(1)}
    of_all = data(WithHeight(colours(60, 0)), WithHeight(colours(30, 1)), views)
    gaps = data(WithoutHeight(colours(60, 0)), WithoutHeight(colours(30, 1)), views)
    fewer = [subset(each, torch.arange(len(each)) % 3 > 0) for each in (of_all.train, WithHeight(colours(30, 1)))]
    found, whole, expected = (
        KnnEvaluator(each, settings(), CPU)(towers(networks))
        for each in (gaps, of_all, data(fewer[0], fewer[1], views))
    )
    assert found["knn/image"] == whole["knn/image"]
    assert (found["knn/height"], found["knn"]) == (expected["knn/height"], expected["knn"])
    nobody = data(of_all.train, EitherOne(colours(30, 1)), views)
    assert list(KnnEvaluator(nobody, settings(), CPU)(towers(networks))) == ["knn/image", "knn/height"]


class EitherOne(WithHeight):
    """All lack one of the two."""

    def __getitem__(self, index: int) -> Sample:
        found, only = super().__getitem__(index), self.modalities[index % 2]
        return replace(found, modalities={only: found.modalities[only]})


def test_of_several_views_only_those_with_an_encoder_are_scored() -> None:
    views = {**IMAGE, "height": View("height")}
    of_both = data(WithHeight(colours(60, 0)), WithHeight(colours(30, 1)), views)
    assert KnnEvaluator(of_both, settings(), CPU)(towers({"image": encoder()})) == evaluator()(towers(encoder()))


ONE = simclr(encoder())


def test_a_run_has_the_evaluators_that_its_settings_name_where_there_are_labels() -> None:
    labelled, unlabelled = data(colours(8, 0), colours(8, 1)), data(colours(8, 0), None)
    assert [type(each) for each in evaluators(ONE, labelled, settings(), CPU)] == [KnnEvaluator, InstanceEvaluator]
    assert evaluators(ONE, labelled, settings(more="--evaluators []"), CPU) == []
    assert evaluators(ONE, labelled, settings(more="--evaluate-every 0"), CPU) == []
    assert evaluators(ONE, unlabelled, settings(), CPU) == []


def test_retrieval_is_for_methods_that_contrast_several_views_and_needs_no_labels() -> None:
    views = {**IMAGE, "height": View("height")}
    train, test = WithHeight(colours(8, 0)), WithHeight(colours(8, 1))
    both = cmc({"image": encoder(), "height": encoder(1)})
    of_two = data(train, test, views)
    assert [type(each) for each in evaluators(both, of_two, settings(), CPU)] == [KnnEvaluator, RetrievalEvaluator]
    assert len(evaluators(both, of_two, settings(more="--evaluators retrieval"), CPU)) == 1
    train.labels = None
    assert [type(each) for each in evaluators(both, of_two, settings(), CPU)] == [RetrievalEvaluator]


@pytest.mark.parametrize("more", ["", "--evaluate-every 0"])
def test_an_unknown_evaluator_is_refused_even_where_nothing_is_scored(more: str) -> None:
    with pytest.raises(UserError, match=r"^evaluators: there is none named 'nkn'; did you mean 'knn'\?$"):
        evaluators(ONE, data(colours(8, 0), None), settings(more=f"--evaluators nkn {more}"), CPU)


class PicturesAlone(WithHeight):
    """The same, and no sample has it."""

    def __getitem__(self, index: int) -> Sample:
        return self.pictures[index]


def test_where_no_held_out_image_has_a_view_the_others_are_scored() -> None:
    both = {"image": View("image"), "height": View("height")}
    train = WithHeight(colours(60, 0))
    found = replace(data(train, PicturesAlone(colours(30, 1)), both), met=train[0].modalities)
    networks = {"image": encoder(), "height": encoder(1)}
    scored = [each(towers(networks)) for each in evaluators(cmc(networks), found, settings(), CPU)]
    assert [list(each) for each in scored] == [["knn/image"], []]


def test_neighbours_of_an_imbalanced_run_are_all_training_images() -> None:
    settings = {"data.name": "scenes", "data.count": 600, "data.size": 16, "data.imbalance": "exponential"}
    config = resolve({**settings, "augmentation.name": "simclr-cifar", "augmentation.size": 16}, {})
    data = run_data.open_data(config)
    bank, _ = KnnEvaluator(data, config, torch.device("cpu")).loaders
    assert len(data.train) < 100
    assert len(bank.dataset) == 600
    assert len(bank.dataset.labels.unique()) == len(bank.dataset.classes)  # type: ignore[union-attr]


def test_the_linear_probe_is_linear_fast_on_the_same_images() -> None:
    train, test, network = scenes(120, "train"), scenes(60, "test"), encoder()
    found = LinearEvaluator(data(train, test), settings(), CPU)(towers(network))
    expected = dict(linear_fast(Task(open_model(network), train, test, "scenes")))
    assert found == {"linear": pytest.approx(expected["top1"])}
    assert 0 < found["linear"] < 1


def test_with_an_encoder_a_view_each_has_a_probe_and_all_side_by_side() -> None:
    both = data(
        WithHeight(colours(60, 0)), WithHeight(colours(30, 1)), {name: View(name) for name in WithHeight.modalities}
    )
    found = LinearEvaluator(both, settings(), CPU)(towers({"image": encoder(), "height": encoder(1)}))
    assert list(found) == ["linear", "linear/image", "linear/height"]
    assert found["linear/image"] > 0.9


@pytest.mark.parametrize(
    ("more", "labelled", "why"),
    [
        ("--probe-every 3 --evaluate-every 2", True, "probe_every: 3 epochs are no multiple of evaluate_every, 2"),
        ("--probe-every 3 --evaluate-every 0", True, "probe_every: 3 epochs are no multiple of evaluate_every, 0"),
        ("--probe-every 2 --evaluators retrieval", True, "probe_every: is for a run that kNN scores"),
        ("--probe-every 2", False, "probe_every: a linear probe needs labels"),
    ],
)
def test_a_probe_that_cannot_be_is_refused(more: str, labelled: bool, why: str) -> None:
    images = data(colours(60, 0), colours(30, 1) if labelled else None)
    with pytest.raises(UserError, match=why):
        make_probe(images, settings(more=more), CPU)


def test_nobody_probes_unless_asked() -> None:
    assert make_probe(data(colours(60, 0), colours(30, 1)), settings(), CPU) is None
