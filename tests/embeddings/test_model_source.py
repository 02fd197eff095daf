"""Who can be judged: runs, files, names, an encoder per view; and what is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import TensorDataset

from manyview import encoders
from manyview.core.errors import UserError
from manyview.data import Folder, TorchDataset
from manyview.data.factory import open_data
from manyview.data.normals import WithNormals
from manyview.embeddings import embed
from manyview.embeddings.checksums import heads_checksum, weights_checksum
from manyview.embeddings.model_source import open_model, run_of
from manyview.embeddings.search import search
from manyview.embeddings.view_embeddings import embed_model
from manyview.encoders import create, save
from manyview.evaluate import ModelSource, evaluate, prepare
from manyview.training import build
from manyview.training.load import load
from manyview.training.run import Run
from manyview.views import PICTURE, Modality
from tests.evaluate.pictures import depths, encoder
from tests.evaluate.runs import made
from tests.tiny import many_views, pretrain, sensors


def blank(side: int) -> TorchDataset:
    """Pictures of that size."""
    return TorchDataset(TensorDataset(torch.zeros(4, 3, side, side + 10, dtype=torch.uint8), torch.arange(4)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("runs") / "one", augmentation="simclr-cifar", seed=7)


def test_a_run_is_named_by_its_folder_or_its_encoder_and_sees_as_it_was_trained(run: Run) -> None:
    for what in (run, run.folder, str(run.folder / "encoder.safetensors")):
        found = open_model(what)
        assert found.run == run
        assert found.picture == build.picture(run.config) != PICTURE
        assert found.pipeline("image").augmentations == build.test_pipeline(run.config, {}).augmentations
        assert found.trained


def test_an_encoder_sees_as_it_was_trained_wherever_it_is(run: Run, tmp_path: Path) -> None:
    trained = build.picture(run.config)
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


def test_a_name_draws_its_weights_from_the_seed_and_leaves_others_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (
        open_model("patchnet", size=32),
        open_model("patchnet", size=32),
        open_model("patchnet", size=32, seed=1),
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert one.checksum == same.checksum == one.untrained().checksum != other.checksum
    assert not one.trained


def test_the_size_is_that_of_the_data_or_of_the_published_weights() -> None:
    assert open_model("patchnet", like=blank(48)).size == 64  # as a run would have it
    assert open_model("patchnet", like=blank(48), size=40).size == 40
    assert open_model("torchvision/resnet18").size == 224
    assert open_model("timm/vit_tiny_patch16_224", like=blank(32)).size == 32  # no weights: any will do


def test_a_library_says_how_its_weights_were_normalised() -> None:
    assert open_model("timm/vit_tiny_patch16_224", size=32).picture.mean == (0.5, 0.5, 0.5)
    assert open_model("torchvision/resnet18", size=32).picture.mean == (0.485, 0.456, 0.406)


def test_a_file_of_ours_knows_its_network_and_a_plain_one_is_for_a_named_one(tmp_path: Path) -> None:
    ours, plain = tmp_path / "ours.safetensors", tmp_path / "plain.safetensors"
    save(encoder(), ours)
    assert open_model(ours).checksums == open_model(encoder()).checksums
    network = create("torchvision/resnet18", size=32).network
    save_file({**network.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}, plain)
    found = open_model("torchvision/resnet18", size=32, weights=plain)
    assert torch.equal(found.encoder.network.state_dict()["conv1.weight"], network.state_dict()["conv1.weight"])
    assert found.trained
    with pytest.raises(ValueError, match="does not say which network it is for; give that, and --weights"):
        open_model(plain)


def test_a_file_for_pictures_of_the_data_is_judged_at_their_size(tmp_path: Path) -> None:
    save(create("torchvision/resnet18", size=32), tmp_path / "w.safetensors")
    found = open_model("torchvision/resnet18", weights=tmp_path / "w.safetensors", like=blank(160))
    assert found.size == 160  # 128 is only what runs take by default


def test_an_encoder_per_view_is_made_for_its_views_channels() -> None:
    found = open_model("rgb=patchnet,depth=patchnet", like=depths(40, "train"))
    assert list(found.encoders) == ["rgb", "depth"]
    assert [each.options["channels"] for each in found.encoders.values()] == [3, 1]
    assert found.name == "rgb=patchnet,depth=patchnet"


def test_an_encoder_with_another_normalisation_keeps_it() -> None:
    found = open_model({"rgb": "torchvision/resnet18", "thermal": "timm/vit_tiny_patch16_224"}, size=32)
    stack = found.pipeline("rgb")
    picture = torch.zeros(3, 1, 1, dtype=torch.uint8)
    assert stack.modality("rgb", picture).mean == (0.485, 0.456, 0.406)
    assert stack.modality("thermal", picture).mean == (0.5, 0.5, 0.5)
    assert list(found.pipeline("rgb", view="rgb").modalities) == []


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("many")
    return many_views(home / "run", sensors(home / "data"), max_steps=1)


def test_a_run_with_an_encoder_a_view_is_all_of_them_or_one_by_its_name(many: Path) -> None:
    every = open_model(many)
    assert list(every.encoders) == list(every.inputs) == list(every.heads) == ["rgb", "thermal", "depth"]
    assert every.checksums["depth"] == weights_checksum(load(many, "depth"))
    assert open_model({"thermal": many}).checksums == {"thermal": every.checksums["thermal"]}
    depth = every.only("depth")
    assert list(depth.encoders) == list(depth.inputs) == list(depth.heads) == ["depth"]
    assert depth.checksum != every.checksum
    for view in (None, "flow"):
        with pytest.raises(UserError, match=r"^view: .* has an encoder for rgb, thermal, depth; give one of them"):
            every.only(view)


def test_one_encoder_is_that_of_any_view_that_a_person_names() -> None:
    named = open_model(encoder()).only("thermal")
    assert list(named.encoders) == ["thermal"]
    assert named.only(None) is named


def test_the_file_of_a_views_encoder_knows_what_it_is_given(many: Path) -> None:
    found = open_model(many / "encoder-depth.safetensors")
    assert found.checksum != open_model(many).checksum
    raw = 1000 * torch.rand(2, 1, 32, 32)
    ids = torch.arange(2)
    ((made,),) = found.pipeline("image", of={"": "image"})({"image": raw}, ids).values()
    ((right,),) = open_model(many).only("depth").pipeline("depth")({"depth": raw}, ids).values()
    assert torch.equal(made, right)


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
    data = build.data(config)
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


def test_an_encoder_may_be_for_a_derived_view() -> None:
    found = open_model("L=patchnet,ab=patchnet", like=blank(32))
    assert [each.options["channels"] for each in found.encoders.values()] == [1, 2]
    views = found.pipeline("image")({"image": torch.zeros(2, 3, 40, 40, dtype=torch.uint8)}, torch.arange(2))
    assert {name: copies[0].shape for name, copies in views.items()} == {"L": (2, 1, 32, 32), "ab": (2, 2, 32, 32)}


def test_the_checksum_tells_weights_size_and_normalisation_apart() -> None:
    one = encoder()
    assert open_model(one).checksum == open_model(one).checksum
    moved = encoder()
    with torch.no_grad():
        next(moved.parameters()).view(-1)[0] += 1e-6
    assert open_model(moved).checksum != open_model(one).checksum
    assert ModelSource("x", {"": one}, Modality()).checksum != open_model(one).checksum


def test_what_is_no_run_is_none() -> None:
    assert run_of("patchnet") is None
    assert run_of(encoder()) is None


def test_wrong_names_and_options_are_one_line(run: Run, tmp_path: Path) -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: open_model("resnet18"), "no run, file or encoder named 'resnet18'; nearest: .*timm/resnet18"),
        (
            lambda: open_model("runs/none"),
            "^encoder: there is no run, file .* named 'runs/none'; give the folder",
        ),
        (lambda: open_model("none.safetensors"), "no run, file or encoder named 'none.safetensors'"),
        (lambda: open_model(tmp_path), "is no run's folder, it has no config.yaml"),
        (lambda: open_model(run, size=64), "size: .* is a run, whose encoder sees 32 px; leave out the size 64"),
        (lambda: open_model(run, pretrained=True), "pretrained: .* is a run, which has its weights"),
        (lambda: open_model("patchnet", pretrained=True, weights="w"), "weights: give w or --pretrained, not both"),
        (lambda: open_model("patchnet", size=0), "size: expected a whole number from 1 to [0-9]+, got 0"),
        (lambda: open_model("rgb=,depth=patchnet"), "encoders: expected VIEW=ENCODER"),
        (lambda: open_model({"all": "patchnet"}), "encoders: expected names of views, other than 'all'"),
        (lambda: open_model({"a": encoder(), "b": encoder(size=32)}), "size: the encoders see .* different sizes"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as refused:
            call()
        assert "\n" not in str(refused.value)


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
