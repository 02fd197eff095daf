"""`manyview search`: the list, the picture, and what is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview import encoders
from manyview.cli.main import main, run
from manyview.core.errors import UserError
from manyview.embeddings import Embeddings, embed, read
from manyview.encoders import Encoder
from manyview.training.load import load, load_projector
from tests.cli.said import one_line
from tests.tiny import many_views, pictures, sensors

LONG = f"{'a' * 252}.png"  # a name has at most 255 bytes


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1]).eval()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return pictures(tmp_path / "data", 20)


@pytest.fixture
def found(encoder: Encoder, data: Path, tmp_path: Path) -> Embeddings:
    return embed(encoder, data, tmp_path / "e.npz", workers=0, device="cpu")


def test_the_command_prints_and_pictures(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pictures(tmp_path / "data", 6, classes=2)
    os.rename(data / "class0" / "2.png", data / "class0" / "evil\x1b[31m.png")
    encoders.save(encoder, "encoder.safetensors")
    embed("encoder.safetensors", data, "e.npz", workers=0, device="cpu")
    assert run("search", ["encoder.safetensors", "data/class1/1.png", "--embeddings", "e.npz", "--top", "5"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == f"nearest to data/class1/1.png among 6 images of {data}:"
    assert len(lines) == 7
    assert r"evil\x1b[31m.png" in out
    assert "\x1b" not in out
    assert lines[-1] == "picture nearest-1.png"
    with Image.open("nearest-1.png") as sheet:
        assert sheet.format == "PNG"


def test_images_that_were_moved_are_found_with_root(
    encoder: Encoder, data: Path, found: Embeddings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    encoders.save(encoder, "encoder.safetensors")
    os.rename(data, tmp_path / "moved")
    arguments = ["encoder.safetensors", "moved/1.png", "--embeddings", "e.npz", "--root", "moved", "--picture", "p.png"]
    assert run("search", arguments) == 0
    sheet = np.array(Image.open("p.png"))
    assert (sheet == (0xE4, 0xE4, 0xE4)).all(-1).sum() < 5000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data/1.png", "--embeddings", "e.npz", "--picture", "p.jpg"], "ends in .png"),
        (["data/1.png", "--embeddings", "e.npz", "--picture", "no/p.png"], "there is no folder"),
        (["data/1.png", "--embeddings", "e.npz", "--picture", "./data/1.png"], "would be overwritten"),
        (["data/1.png", "--embeddings", "e.npz", "--top", "0"], "top: expected at least 1, got 0"),
        (["data/1.png", "--embeddings", "e.npz", "--top", str(10**20)], "top: expected at most 2147483647, got 1"),
        (["nowhere.png", "--embeddings", "e.npz"], "there is no file nowhere.png"),
        (["e.npz", "--embeddings", "e.npz"], "cannot be read"),
        (["data/1.png", "--embeddings", "none.npz"], "there is no file"),
        (["data/1.png"], "--embeddings"),
        (["data/1.png", "--embeddings", "e.npz", "--root", "nope", "--no-picture"], "root: there is no folder nope"),
        (
            ["data/1.png", "--embeddings", "e.npz", "--picture", LONG],
            f"picture: {LONG} cannot be written to: File name too",
        ),
    ],
)
def test_wrong_arguments_are_one_line(
    encoder: Encoder,
    found: Embeddings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    encoders.save(encoder, "encoder.safetensors")
    before = (tmp_path / "data" / "1.png").read_bytes()
    with pytest.raises(UserError) as caught:
        run("search", ["encoder.safetensors", *arguments])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "data" / "1.png").read_bytes() == before


def test_a_picture_of_somebodys_is_not_overwritten(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "data", 4)
    encoders.save(encoder, "encoder.safetensors")
    assert run("embed", ["encoder.safetensors", "data", "--to", "e.npz", "--workers", "0"]) == 0
    theirs = Path("data/2.png").read_bytes()
    Path("nearest-1.png").write_bytes(theirs)
    words = ["encoder.safetensors", "data/1.png", "--embeddings", "e.npz"]
    with pytest.raises(UserError, match=r"^picture: nearest-1.png is there and not from here; give another name"):
        run("search", words)
    assert Path("nearest-1.png").read_bytes() == theirs
    assert run("search", [*words, "--no-picture"]) == 0
    assert run("search", [*words, "--picture", "p.png"]) == 0
    assert run("search", [*words, "--picture", "p.png"]) == 0  # its own may be made again


def test_a_picture_of_one_view_finds_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = sensors(Path("data"), 12)
    two = many_views(Path("two"), data, "rgb,depth", max_steps=3)
    assert main(["embed", "two", "data/test", "--view", "rgb", "--to", "rgb.npz", "--quiet"]) == 0
    Image.open("data/test/depth/3.png").save("query.png")
    encoder, head = load(two, "depth"), load_projector(two, "depth")
    assert encoder.preprocess is not None
    assert head is not None
    found = read("rgb.npz")
    assert found.projections is not None
    with torch.no_grad():
        expected = torch.cosine_similarity(head(encoder(encoder.preprocess("query.png"))), found.projections)
    best = float(expected.max())
    capsys.readouterr()
    for image in ("query.png", "data/test/depth/3.png"):  # the other view of two, or that of its folder
        assert main(["search", "two", image, "--embeddings", "rgb.npz", "--top", "2", "--picture", "sheet.png"]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[0].startswith(f"nearest to {image}, read as depth, among 12 rgb images of ")
        number, similarity, name = out[1].split()
        assert (number, name) == ("1", found.names[int(expected.argmax())])
        assert float(similarity) == pytest.approx(best, abs=1e-4)
    with Image.open("sheet.png") as sheet:  # depth of 16 bits is stretched, so that there is something to see
        shown = np.asarray(sheet.convert("L"))[16:216, 16:216]
    assert shown.min() < 30
    assert shown.max() > 220
    assert main(["search", "two", "data/test/rgb/3.png", "--embeddings", "rgb.npz", "--no-picture", "--top", "12"]) == 0
    assert "rgb/3.png" not in capsys.readouterr().out.partition("\n")[2]  # of its own view, itself is left out
    capsys.readouterr()
    assert main(["search", "two", "query.png", "--embeddings", "rgb.npz", "--view", "flow", "--no-picture"]) == 2
    one_line(capsys, "view: two has an encoder for rgb, depth, got 'flow'")
    assert main(["search", "two", "query.png", "--embeddings", "rgb.npz", "--view", "rgb", "--no-picture"]) == 2
    one_line(capsys, "view: query.png is 1 channel of 16 bits or floats, and rgb of two was trained on RGB of 8 bits")


def test_across_views_of_one_file_the_file_itself_is_what_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    many_views(Path("two"), sensors(Path("data"), 8), "L,ab", max_steps=1)
    assert main(["embed", "two", "data/test/rgb", "--view", "ab", "--to", "ab.npz", "--quiet"]) == 0
    asked = ["two", "data/test/rgb/3.png", "--embeddings", "ab.npz", "--top", "8", "--no-picture"]
    capsys.readouterr()
    for view, found in (("L", True), ("ab", False)):
        assert main(["search", *asked, "--view", view]) == 0
        first, *rest = capsys.readouterr().out.splitlines()
        assert f", read as {view}, among 8 ab images" in first
        assert any("3.png" in line for line in rest) == found


def test_of_three_views_the_picture_s_is_asked_for_and_other_runs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = sensors(Path("data"), 8)
    many_views(Path("three"), data, max_steps=1)
    many_views(Path("other"), data, max_steps=1, seed=1)
    assert main(["embed", "three", "data/test", "--view", "rgb", "--to", "rgb.npz", "--quiet"]) == 0
    Image.open("data/test/depth/3.png").save("query.png")
    asked = ["query.png", "--embeddings", "rgb.npz", "--no-picture"]
    capsys.readouterr()
    assert main(["search", "three", *asked]) == 2
    one_line(capsys, "view: of which is the picture? give one of rgb, thermal, depth")
    assert main(["search", "three", *asked, "--view", "depth"]) == 0
    capsys.readouterr()
    assert main(["search", "other", *asked, "--view", "depth"]) == 2
    one_line(capsys, "embeddings: were made by three")
