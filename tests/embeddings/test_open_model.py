"""Who can be judged: runs, files, names, an encoder per view; and what is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import TensorDataset

from manyview.core.errors import UserError
from manyview.data import TorchDataset
from manyview.embeddings.checksums import weights_checksum
from manyview.embeddings.open_model import open_model, run_of
from manyview.encoders import create, save
from manyview.training import pipelines
from manyview.training.load import load
from manyview.training.run import Run
from manyview.views import PICTURE
from tests.evaluate.pictures import depths, encoder
from tests.evaluate.runs import made
from tests.tiny import many_views, sensors


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
        assert found.picture == pipelines.picture(run.config) != PICTURE
        assert found.pipeline("image").augmentations == pipelines.evaluation(run.config, {}).augmentations
        assert found.trained


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


def test_the_file_of_a_views_encoder_knows_what_it_is_given(many: Path) -> None:
    found = open_model(many / "encoder-depth.safetensors")
    assert found.checksum != open_model(many).checksum
    raw = 1000 * torch.rand(2, 1, 32, 32)
    ids = torch.arange(2)
    ((made,),) = found.pipeline("image", of={"": "image"})({"image": raw}, ids).values()
    ((right,),) = open_model(many).only("depth").pipeline("depth")({"depth": raw}, ids).values()
    assert torch.equal(made, right)


def test_an_encoder_may_be_for_a_derived_view() -> None:
    found = open_model("L=patchnet,ab=patchnet", like=blank(32))
    assert [each.options["channels"] for each in found.encoders.values()] == [1, 2]
    views = found.pipeline("image")({"image": torch.zeros(2, 3, 40, 40, dtype=torch.uint8)}, torch.arange(2))
    assert {name: copies[0].shape for name, copies in views.items()} == {"L": (2, 1, 32, 32), "ab": (2, 2, 32, 32)}


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
