"""Copies of images, embedded by runs and encoders as the figures want them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from manyview import encoders
from manyview.config.config import Config
from manyview.core.sample import Batch, Sample
from manyview.data import Dataset, Scenes, Unreadable
from manyview.diagnose.measures import validation
from manyview.embeddings import run_epochs, view_embeddings
from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.view_embeddings import ViewEmbeddings
from manyview.training import pipelines, run_data
from manyview.training.checkpoint import Checkpoints
from manyview.training.load import load
from manyview.training.run import Run
from manyview.views import AUGMENTATIONS, Modality, ViewPipeline
from tests.tiny import pictures, pretrain


@pytest.fixture(scope="module")
def seen(run: Run) -> ViewEmbeddings:
    return view_embeddings.embed_run(run, copies=4)


def test_a_run_embeds_held_out_images_through_its_head(run: Run, seen: ViewEmbeddings) -> None:
    found = run_data.open_data(run.config)
    assert found.test is not None
    assert seen.held_out
    assert seen.vectors.shape == (len(found.test), 4, 128)
    assert sorted(seen.ids.tolist()) == sorted(found.test.ids.tolist())
    torch.testing.assert_close(seen.vectors.norm(dim=-1), torch.ones(len(found.test), 4))


def test_ids_labels_and_rows_belong_to_the_vectors(run: Run, seen: ViewEmbeddings) -> None:
    assert seen.data.labels is not None
    assert torch.equal(seen.ids, seen.data.ids[seen.index])
    assert torch.equal(seen.labels, seen.data.labels[seen.index])


def test_a_vector_is_what_the_query_tower_says_of_the_copy_in_eval_mode(run: Run, seen: ViewEmbeddings) -> None:
    method = run_epochs.method_of(run)
    sample = seen.data[int(seen.index[2])]
    raw = {name: view[None] for name, view in sample.modalities.items()}
    made = seen.pipeline(raw, torch.tensor([sample.id]), seed=seen.seed)["image"][3]
    torch.testing.assert_close(method.towers.queries(made)[0], seen.vectors[2, 3], atol=1e-5, rtol=1e-4)


def test_copies_of_an_image_differ_and_are_alike_the_second_time(run: Run, seen: ViewEmbeddings) -> None:
    assert not torch.equal(seen.vectors[:, 0], seen.vectors[:, 1])
    again = view_embeddings.embed_run(run, copies=4)
    assert torch.equal(seen.vectors, again.vectors)
    assert not torch.equal(seen.vectors, view_embeddings.embed_run(run, copies=4, seed=1).vectors)


def test_a_copy_can_be_shown_as_a_picture(run: Run, seen: ViewEmbeddings) -> None:
    picture = seen.picture(2, 3)
    assert picture.dtype == torch.uint8
    modality = seen.pipeline.picture
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (modality.mean, modality.std))
    normed = ((picture / 255 - mean) / std)[None]
    vector = run_epochs.method_of(run).towers.queries(normed)[0]
    assert float(vector @ seen.vectors[2, 3]) > 0.99


def test_every_nth_copy_is_augmented_as_training_does_it_there(run: Run) -> None:
    """MoCo v3's two augmentations are unlike; more of them take turns."""
    augmentation = {"name": "moco-v3", "size": 32, "smallest": 0.2}
    config = Config(**{**vars(run.config), "augmentation": augmentation})
    method = run_epochs.method_of(run)
    loader = view_embeddings._run_loader(config, run_data.open_data(config), method, {"image": 5}, 4, 0, "cpu", 0)
    assert isinstance(loader.pipeline, ViewPipeline)
    blurs = [each.blur for each in loader.pipeline.augmentations]
    assert blurs == [1.0, 0.1, 1.0, 1.0, 0.1]  # the method has three


def test_snapshots_are_a_run_by_epoch_with_the_same_copies(run: Run) -> None:
    found = list(view_embeddings.snapshots(run, copies=2))
    assert [snapshot.epoch for snapshot in found] == [0, 1, 2, 3]
    for snapshot in found:
        alone = view_embeddings.embed_run(run, epoch=snapshot.epoch, copies=2)
        torch.testing.assert_close(snapshot.embeddings.vectors, alone.vectors, atol=1e-5, rtol=1e-4)
        assert torch.equal(snapshot.embeddings.ids, found[0].embeddings.ids)
    assert len({snapshot.measures["uniformity"] for snapshot in found}) == 4


def test_measures_of_a_snapshot_are_validations_of_full_batches(run: Run) -> None:
    """Four of the five images make the one batch."""
    snapshot = list(view_embeddings.snapshots(run, copies=1))[-1]
    method, held = run_epochs.method_of(run), snapshot.embeddings
    assert len(held.ids) == 5
    samples = [held.data[int(row)] for row in held.index[:4]]
    raw = {"image": torch.stack([sample.modalities["image"] for sample in samples])}
    views = pipelines.training(run.config, run_data.open_data(run.config).views, method)(raw, held.ids[:4])
    there = {"image": torch.ones(4, dtype=torch.bool)}
    batch = Batch(held.ids[:4], held.index[:4], held.labels[:4], there, lambda rows: views)
    expected = validation(method, views, batch)
    assert {f"validation_{name}" for name in snapshot.measures} == set(expected)
    for name, value in snapshot.measures.items():
        assert value == pytest.approx(expected[f"validation_{name}"], rel=1e-3, abs=1e-4), name
    assert snapshot.measures["negatives"] == 32
    assert snapshot.measures["batch_entropy_limit"] == pytest.approx(math.log(3))


def test_without_labels_training_images_are_embedded(tmp_path: Path) -> None:
    data = pictures(tmp_path / "plain", 12)
    assert pretrain(tmp_path / "run", "--quiet", data=data, epochs=1, batch_size=4) == 0
    seen = view_embeddings.embed_run(Run(tmp_path / "run"), copies=2, images=7)
    assert not seen.held_out
    assert seen.vectors.shape[:2] == (7, 2)
    assert seen.labels.tolist() == [-1] * 7


def test_nothing_is_written_into_a_run(run: Run) -> None:
    def files() -> list[tuple[str, int]]:
        return sorted((str(file), file.stat().st_mtime_ns) for file in run.folder.rglob("*"))

    before = files()
    list(view_embeddings.snapshots(run, images=3))
    view_embeddings.embed_run(run, images=3)
    assert files() == before
    assert Checkpoints(run.folder / "checkpoints").latest() is not None


def small(size: int = 16) -> encoders.Encoder:
    return encoders.create("patchnet", size=size, widths=(4, 8), blocks=(1, 1))


def test_any_encoder_embeds_without_a_head() -> None:
    encoder = small().train()
    model = ModelSource("mine", {"": encoder}, Modality((0.5,) * 3, (0.25,) * 3, colour=True))
    seen = view_embeddings.embed_model(model, Scenes(40, size=16), images=9, copies=3)
    assert seen.vectors.shape == (9, 3, encoder.dim)
    assert encoder.training  # as it was
    assert seen.pipeline.picture == model.picture
    raw = {name: view[None] for name, view in seen.data[int(seen.index[4])].modalities.items()}
    made = seen.pipeline(raw, seen.ids[4:5], seed=0)["image"][1]
    expected = F.normalize(encoder.eval()(made), dim=1)[0]
    torch.testing.assert_close(seen.vectors[4, 1], expected, atol=1e-5, rtol=1e-4)


def test_the_encoder_of_a_run_is_shown_what_its_training_was_shown(run: Run) -> None:
    model = ModelSource("run", {"": load(run)}, pipelines.picture(run.config), run=run)
    data = run_data.open_data(run.config).train
    seen = view_embeddings.embed_model(model, data, images=5, copies=2, held_out=False)
    training = pipelines.training(run.config, {}, run_epochs.method_of(run))
    assert list(seen.pipeline.augmentations) == list(training.augmentations)[:2]
    assert seen.vectors.shape[2] == load(run).dim
    assert not seen.held_out


def test_a_view_that_the_data_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="data: has no view 'sonar', which mine is for; it has "):
        view_embeddings.embed_model(ModelSource("mine", {"sonar": small()}), Scenes(10, size=16))


@pytest.mark.parametrize(("images", "count"), [(1, 2), (5, 0)])
def test_too_few_images_or_copies_are_refused(run: Run, images: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"images and copies: expected at least 2 and 1, got {images} and {count}"):
        view_embeddings.embed_run(run, images=images, copies=count)


class Holed:
    """Scenes of which one cannot be read."""

    def __init__(self) -> None:
        self.scenes: Dataset = Scenes(12, size=16)
        self.ids, self.labels = self.scenes.ids, self.scenes.labels
        self.classes, self.modalities = self.scenes.classes, self.scenes.modalities

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> Sample:
        if index == 5:
            raise Unreadable("a hole")
        return self.scenes[index]

    def name(self, index: int) -> str:
        return self.scenes.name(index)


def test_what_stands_in_for_an_unreadable_image_is_there_once() -> None:
    seen = view_embeddings.embed_model(ModelSource("mine", {"": small()}), Holed(), copies=2)
    assert sorted(seen.index.tolist()) == [row for row in range(12) if row != 5]


@pytest.mark.parametrize(("size", "count", "expected"), [(32, 2, 256), (32, 32, 256), (224, 32, 6), (224, 500, 1)])
def test_large_pictures_and_many_copies_are_taken_few_at_a_time(size: int, count: int, expected: int) -> None:
    assert view_embeddings._batch_size(1000, AUGMENTATIONS["moco-v2"](size, count)) == expected
