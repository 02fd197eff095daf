"""`manyview embed`: what it says, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from manyview import encoders
from manyview.cli.main import run
from manyview.core.errors import UserError
from manyview.embeddings import read
from manyview.encoders import Encoder
from tests.tiny import pictures

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
