"""What a model is given of data, what it was before training, and what tells it apart."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest
import torch

from manyview import encoders
from manyview.data import Folder
from manyview.data.factory import open_data
from manyview.data.normals import WithNormals
from manyview.embeddings import embed
from manyview.embeddings.checksums import heads_checksum, weights_checksum
from manyview.embeddings.open_model import open_model
from manyview.embeddings.search import search
from manyview.embeddings.view_embeddings import embed_model
from manyview.encoders import create, save
from manyview.evaluate import ModelSource, evaluate, prepare
from manyview.training import build, pipelines, run_data
from manyview.training.load import load
from manyview.training.run import Run
from manyview.views import PICTURE, Modality
from tests.evaluate.pictures import encoder
from tests.evaluate.runs import made
from tests.tiny import many_views, pretrain, sensors


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("runs") / "one", augmentation="simclr-cifar", seed=7)


def test_an_encoder_sees_as_it_was_trained_wherever_it_is(run: Run, tmp_path: Path) -> None:
    trained = pipelines.picture(run.config)
    network, away = load(run), tmp_path / "away.safetensors"
    assert open_model(network).picture == trained
    save(network, away)
    assert open_model(away).picture == trained
    assert open_model(encoders.load(away)).picture == trained
    other = tmp_path / "resnet.safetensors"
    save(create("torchvision/resnet18", size=32), other, picture=(trained.mean, trained.std))
    assert open_model("torchvision/resnet18", size=32, weights=other).picture == trained
    assert open_model(encoder()).picture == PICTURE


def test_only_pictures_of_three_channels_are_normalised_as_pictures() -> None:
    deep = create("patchnet", channels=1, size=32)
    found = open_model({"rgb": "timm/vit_tiny_patch16_224", "depth": deep}, size=32)
    assert found.pipeline("rgb").modality("depth", torch.zeros(1, 1, 1, dtype=torch.uint8)) == Modality()


def test_untrained_is_the_run_as_it_began(run: Run) -> None:
    began = build.method(run.config, {"image": 3}, 49).towers.encoder().network.state_dict()
    fresh = open_model(run).untrained()
    for name, value in fresh.encoder.network.state_dict().items():
        assert torch.equal(value, began[name]), name
    assert not fresh.trained
    assert fresh.checksum != open_model(run).checksum


def test_untrained_is_what_a_run_began_with_though_that_was_not_drawn(tmp_path: Path) -> None:
    start = encoder(5, size=32)
    save(start, tmp_path / "start.safetensors")
    fresh = open_model(made(tmp_path / "run", encoder__pretrained=tmp_path / "start.safetensors")).untrained()
    assert fresh.checksums == {"": weights_checksum(start)}
    assert fresh.untrained().checksum == fresh.checksum


def test_what_a_run_began_with_is_a_plain_network_as_what_came_of_it_is(tmp_path: Path) -> None:
    model = open_model(made(tmp_path / "run", encoder__freeze_below="stage2"))
    first, last = model.untrained().encoder.train(), model.encoder.train()
    for each in (first, last):
        assert all(part.training for part in each.modules())
        assert all(parameter.requires_grad for parameter in each.parameters())


def test_each_view_begins_as_its_own_run_did(run: Run, tmp_path: Path) -> None:
    other = made(tmp_path / "other", seed=8)
    both = open_model({"rgb": run, "thermal": other}).untrained()
    assert both.checksums["rgb"] == open_model(run).untrained().checksums[""]
    assert both.checksums["thermal"] == open_model(other).untrained().checksums[""]
    assert not both.trained


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("many")
    return many_views(home / "run", sensors(home / "data"), max_steps=1)


def test_one_encoder_is_that_of_any_view_that_a_person_names() -> None:
    named = open_model(encoder()).only("thermal")
    assert list(named.encoders) == ["thermal"]
    assert named.only(None) is named


@pytest.mark.parametrize(
    "method",
    [
        {"method": "cmc", "views": "rgb,thermal,depth"},
        {"method": "cmc", "views": "rgb,depth", "method__jigsaw": 0.5},
        {"method": "prediction", "views": "depth,L", "method__target": "depth"},
    ],
)
def test_an_untrained_run_has_the_encoders_and_heads_that_it_began_with(
    method: dict[str, object], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert pretrain(folder, "--quiet", data=sensors(tmp_path / "data", 8), max_steps=1, **method) == 0
    config = Run(folder).config
    data = run_data.open_data(config)
    begun = build.method(config, data.channels, len(data.train)).towers.query
    for files_alone in (False, True):
        if files_alone:
            rmtree(folder / "checkpoints")
        model = open_model(folder)
        for fresh in (model.untrained(), *(model.only(view).untrained() for view in model.encoders)):
            for view in fresh.encoders:
                assert weights_checksum(fresh.encoders[view]) == weights_checksum(begun[view].encoder)  # type: ignore[arg-type]
            for view, head in fresh.heads.items():
                assert heads_checksum({view: head}) == heads_checksum({view: begun[view].head})  # type: ignore[dict-item]
        assert bool(model.heads) == (method["method"] == "cmc")


def test_the_checksum_tells_weights_size_and_normalisation_apart() -> None:
    one = encoder()
    assert open_model(one).checksum == open_model(one).checksum
    moved = encoder()
    with torch.no_grad():
        next(moved.parameters()).view(-1)[0] += 1e-6
    assert open_model(moved).checksum != open_model(one).checksum
    assert ModelSource("x", {"": one}, Modality()).checksum != open_model(one).checksum


def test_a_run_on_a_derived_view_is_evaluated_embedded_and_searched_as_it_was_trained(tmp_path: Path) -> None:
    grey = made(tmp_path / "run", views="L")
    found = open_model(grey)
    assert list(found.encoders) == ["L"]
    assert found.encoder.options["channels"] == 1
    data = Path(grey.config.data["name"])
    (result,) = evaluate(grey, None, ["knn"], settings={"knn": {"k": 3}}, untrained=False, workers=0, device="cpu")
    assert 0 <= result.score <= 1
    file = embed(grey.folder, data, tmp_path / "e.npz", workers=0, device="cpu")
    encoder = load(grey)
    assert encoder.preprocess is not None
    with torch.no_grad():
        alone = encoder(encoder.preprocess(str(file.file(0))))[0]
    torch.testing.assert_close(file.vectors[0], alone, rtol=1e-4, atol=1e-5)
    assert search(grey.folder, torch.zeros(3, 40, 40, dtype=torch.uint8), file, 2)
    assert embed_model(found, Folder(data), images=4, copies=2, workers=0).vectors.shape == (4, 2, encoder.dim)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one encoder, of depth in its own unit, on data with classes."""
    home = tmp_path_factory.mktemp("deep")
    data = sensors(home / "data", 24, classes=2)
    assert pretrain(home / "run", "--quiet", data=data, method="simclr", views="depth", max_steps=2) == 0
    return home / "run"


def test_one_encoder_of_another_modality_than_pictures_is_used_as_it_was_trained(deep: Path, tmp_path: Path) -> None:
    encoder, data = load(deep), Path(Run(deep).config.data["name"])
    assert encoder.preprocess is not None
    file = embed(deep, data, tmp_path / "e.npz", split="test", workers=0, device="cpu")
    image = str(file.file(0))
    with torch.no_grad():
        alone = encoder(encoder.preprocess(image))[0]
    torch.testing.assert_close(file.vectors[0], alone, rtol=1e-4, atol=1e-5)
    assert len(search(deep, image, file, 2)) == 2
    for model in (open_model(deep), open_model({"depth": deep})):
        (depth,) = model.inputs.values()
        assert depth == encoder.preprocess.input  # type: ignore[attr-defined]
        assert depth.modality.std[0] > 100  # of millimetres
        assert model.only("depth").inputs == model.inputs
    seen = embed_model(open_model(deep), open_data(str(data)), images=4, copies=2, workers=0)
    assert seen.pipeline.modality("depth", torch.zeros(1, 1, 1)) == depth.modality


def test_the_live_score_of_another_modality_is_that_of_evaluate(deep: Path) -> None:
    (result,) = evaluate(deep, None, ["knn"], untrained=False, workers=0, device="cpu")
    assert result.score == Run(deep).knn[-1][1]


def test_colours_are_taken_of_the_modality_that_training_took_them_of(tmp_path: Path) -> None:
    home = sensors(tmp_path, 24, splits=["train"])
    rows = [f"train/thermal/{n}.png,train/rgb/{n}.png,class{n % 2}" for n in range(24)]
    table = tmp_path / "pairs.csv"
    table.write_text("\n".join(["thermal,vis,label", *rows]))
    many = many_views(tmp_path / "run", table, "L,ab,thermal", max_steps=1)
    results = evaluate(many, None, ["knn", "linear"], settings={"linear": {"epochs": 1}}, untrained=False, workers=0)
    assert [next(iter(each.scores)) for each in results] == ["L top1", "L top1"]
    file = embed(many, None, tmp_path / "e.npz", view="L", workers=0)
    encoder = load(many, "L")
    assert encoder.preprocess is not None
    with torch.no_grad():
        alone = encoder(encoder.preprocess(home / "train" / "rgb" / "3.png"))[0]
    (row,) = [row for row in range(24) if str(file.file(row)).endswith("rgb/3.png")]
    torch.testing.assert_close(file.vectors[row], alone, rtol=1e-4, atol=1e-5)
    seen = embed_model(open_model(many), open_data(str(table)), images=4, copies=2, workers=0)
    assert seen.vectors.shape == (4, 2, encoder.dim)
    named = open_model({"L": "patchnet"}, like=open_data(str(table)), size=32)
    assert named.encoder.options["channels"] == 1


def test_normals_that_a_run_made_of_depth_are_made_of_other_data_as_well(tmp_path: Path) -> None:
    data = sensors(tmp_path / "data", 24, classes=2)
    settings = {"views": "rgb,normals", "data__camera": "30,30,16,16", "data__nodata": 500, "max_steps": 1}
    assert pretrain(tmp_path / "run", "--quiet", data=data, method="cmc", **settings) == 0
    model, other = tmp_path / "run", sensors(tmp_path / "other", 24, classes=2)
    train, test = (open_data(str(other), split=split) for split in ("train", "test"))
    own = WithNormals(train, (30, 30, 16, 16), 500)
    for given in (str(other), {"name": str(other)}, train, (train, test)):
        found = prepare(model, given, workers=0).train
        (row,) = (own.ids == found.ids[3]).nonzero()[0].tolist()
        made, right = (x.modalities["normals"] for x in (found[3], own[row]))
        torch.testing.assert_close(made, right, equal_nan=True, rtol=0, atol=0)
    file = embed(model, other, tmp_path / "e.npz", view="normals", split="train", workers=0)
    again = embed(model, train, tmp_path / "own.npz", view="normals", workers=0)
    assert torch.equal(file.vectors, again.vectors)
    encoder = load(model, "normals")
    assert encoder.preprocess is not None
    with torch.no_grad():
        alone = encoder(encoder.preprocess(own[5].modalities["normals"]))[0]
    torch.testing.assert_close(file.vectors[5], alone, rtol=1e-4, atol=1e-5)
    assert "depth" in str(file.file(5))
