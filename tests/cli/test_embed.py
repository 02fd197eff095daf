"""`manyview embed`: what it says, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from manyview import encoders
from manyview.cli.main import main, run
from manyview.core.errors import UserError
from manyview.embeddings import read
from manyview.encoders import Encoder
from tests.cli.said import one_line
from tests.tiny import many_views, pictures, sensors

LONG = f"{'a' * 251}.npz"  # the folder of its pieces has too long a name


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1]).eval()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return pictures(tmp_path / "data", 50, classes=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["patchnet", "DATA", "--to", "e.npz"], "random weights"),
        (["ENCODER", "DATA", "--to", "e.csv"], "ends in .npz or .parquet"),
        (["ENCODER", "DATA", "--to", "no/such/e.npz"], "there is no folder"),
        (["ENCODER", "DATA", "--to", "folder.npz"], "is a folder"),
        (["ENCODER", "DATA", "--to", "e.npz", "--batch-size", "0"], "batch_size: expected at least 1, got 0"),
        (["ENCODER", "DATA", "--to", "e.npz", "--workers", "-1"], "workers: expected at least 0"),
        (["ENCODER", "DATA", "--to", "e.npz", "--workers", str(10**20)], "workers: expected at most 1024, got 1"),
        (["ENCODER", "DATA", "--to", "e.npz", "--batch-size", str(10**20)], "batch_size: expected at most 2147483647"),
        (["ENCODER", "DATA", "--to", "e.npz", "--device", "abacus"], "device: 'abacus' cannot be used"),
        (["ENCODER", "DATA", "--to", "e.npz", "--split", "test"], "split: no 'test'"),
        (["ENCODER", "nowhere", "--to", "e.npz"], "neither a folder here nor the name"),
        (["ENCODER", "DATA", "--to", LONG], f"to: {LONG} cannot be written to: File name too long; give another"),
        (["ENCODER", "nowhere", "--to", "e.npz", "--workers", "-1"], "workers: expected at least 0, got -1"),
        (["ENCODER", "DATA"], "--to"),
    ],
)
def test_wrong_arguments_are_one_line(
    encoder: Encoder,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    encoders.save(encoder, "encoder.safetensors")
    (tmp_path / "folder.npz").mkdir()
    stands_for = {"ENCODER": "encoder.safetensors", "DATA": str(data)}
    with pytest.raises(UserError) as caught:
        run("embed", [stands_for.get(word, word) for word in arguments])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "e.npz").exists()


def test_the_command_says_what_it_wrote_and_what_is_left_out(
    encoder: Encoder, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoders.save(encoder, tmp_path / "encoder.safetensors")
    (data / "class0" / "bad\x1b[31m.png").write_bytes(b"")
    to = str(tmp_path / "e.npz")
    flags = ["--dtype", "float16", "--workers", "0", "--device", "cpu", "--batch-size", "16"]
    assert run("embed", [str(tmp_path / "encoder.safetensors"), str(data), "--to", to, *flags]) == 0
    out, err = capsys.readouterr()
    assert out == f"{to}: 50 images, vectors of 16 numbers, float16\n"
    assert err == "warning: class0/bad\\x1b[31m.png is left out: the file is empty\n"
    assert read(to).vectors.dtype == torch.float16


def test_of_a_run_with_several_views_each_is_embedded_with_what_crosses_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = sensors(Path("data"), 8)
    many = many_views(Path("run"), data, max_steps=1)
    capsys.readouterr()
    assert main(["embed", str(many), "--to", "any.npz"]) == 2
    one_line(capsys, "view: run has an encoder for rgb, thermal, depth; give one of them")
    assert main(["embed", str(many), "--to", "any.npz", "--view", "sonar"]) == 2
    one_line(capsys, "give one of them, got 'sonar'")
    assert main(["embed", str(many), "--view", "depth", "--to", "own.npz", "--quiet"]) == 0  # the run's own data
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("own.npz: 16 images, vectors of 16 numbers, and 8 to compare with other views")
    assert out[1] == f"the images are those of all splits (train, test) of {data.resolve()}; --split takes one of them"
    assert read("own.npz").names[::8] == ["train/depth/0.png", "test/depth/0.png"]
    assert main(["embed", str(many), "data", "--view", "depth", "--to", "all.npz", "--quiet"]) == 0
    assert torch.equal(read("all.npz").vectors, read("own.npz").vectors)
    capsys.readouterr()
    assert main(["embed", str(many), "--view", "depth", "--split", "test", "--to", "test.npz", "--quiet"]) == 0
    assert f"the images are those of the test split of {data.resolve()}\n" in capsys.readouterr().out
    for number, place in enumerate(["data --split test", "data/test", "data/test/depth"]):
        to = f"{number}.npz"
        assert main(["embed", str(many), *place.split(), "--view", "depth", "--to", to, "--quiet"]) == 0
    found = [read(f"{number}.npz") for number in range(3)]
    for one, other in pairwise(found):  # whatever the folder, the same files
        assert torch.equal(one.vectors, other.vectors)
        assert one.projections is not None
        assert other.projections is not None
        assert torch.equal(one.projections, other.projections)
    assert {each.about.view for each in found} == {"depth"}
    assert found[0].projections is not None
    torch.testing.assert_close(found[0].projections.norm(dim=1), torch.ones(8))
    capsys.readouterr()
    assert main(["embed", str(many), "data/test/thermal", "--view", "depth", "--to", "wrong.npz"]) == 2
    one_line(capsys, "is 1 channel of 8 bits, and depth of run was trained on 1 channel of 16 bits or floats")
    assert main(["embed", str(many), "data/test/depth", "--view", "rgb", "--to", "wrong.npz"]) == 2
    one_line(
        capsys, "data/test/depth/0.png is 1 channel of 16 bits or floats, and rgb of run was trained on RGB of 8 bits"
    )


@pytest.mark.filterwarnings("always:the folder")
def test_a_folder_that_is_named_like_another_view_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = sensors(Path("data"), 8)
    many = many_views(Path("run"), data, "rgb,depth", max_steps=1)
    (data / "test" / "depth").rename("rgb")
    capsys.readouterr()
    assert main(["embed", str(many), "rgb", "--view", "depth", "--to", "e.npz", "--quiet"]) == 0
    assert f"warning: the folder {tmp_path / 'rgb'} is named rgb and is read as depth\n" in capsys.readouterr().err
    assert main(["embed", str(many), "data/train/depth", "--view", "depth", "--to", "f.npz", "--quiet"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_projections_survive_parquet_and_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    many = many_views(Path("run"), sensors(Path("data"), 8), "L,thermal", max_steps=1)
    (tmp_path / "data" / "test" / "rgb" / "0.png").write_bytes(b"no picture")
    for to in ("e.npz", "e.parquet"):  # one at a time: the first batch has nothing that can be read
        assert main(["embed", str(many), "data/test", "--view", "L", "--to", to, "--batch-size", "1", "--quiet"]) == 0
    one, other = read("e.npz"), read("e.parquet")
    assert one.projections is not None
    assert other.projections is not None
    assert one.projections.shape == (7, 8)
    assert torch.equal(one.projections, other.projections)
    assert torch.equal(one.vectors, other.vectors)
    assert list(one.about.broken) == ["test/0"] or list(one.about.broken) == ["0"]
