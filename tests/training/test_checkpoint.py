from __future__ import annotations

import errno
import multiprocessing
import os
import re
import resource
import shutil
import signal
import zipfile
from multiprocessing.connection import Connection
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from manyview.core.atomic import DiskFull
from manyview.training import checkpoint
from manyview.training.checkpoint import Checkpoints
from tests.patience import PATIENCE

SPAWN = multiprocessing.get_context("spawn")


def state(step: int) -> dict[str, Any]:
    weight = torch.arange(6.0).reshape(2, 3) + step
    return {
        "step": step,
        "towers": nn.Linear(3, 2).requires_grad_(False).state_dict() | {"weight": weight},
        "bank": [weight.half(), torch.tensor([True, False]), nn.Parameter(torch.ones(2))],
        "settings": {"lr": 0.1, "name": "a [b] ü", "none": None, "betas": (0.9, 0.999), "on": True, 3: torch.tensor(7)},
    }


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def latest_step(kept: Checkpoints) -> int:
    found = kept.latest()
    assert found is not None
    return int(found[0]["step"])


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "new" / "run")
    assert kept.latest() is None
    path = kept.save(state(3), 3)
    found = kept.latest()
    assert found is not None
    assert found[1] == path == tmp_path / "new" / "run" / "step-000000003.pt"
    assert same(found[0], state(3) | {"towers": found[0]["towers"]})
    assert torch.equal(found[0]["towers"]["weight"], state(3)["towers"]["weight"])
    assert kept.damaged == []


def test_the_newest_are_kept_by_number_and_not_by_name(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for step in (999_999_998, 999_999_999, 1_000_000_000):
        kept.save(state(step), step)
    assert names(tmp_path) == ["step-1000000000.pt", "step-999999999.pt"]
    assert latest_step(kept) == 1_000_000_000


@pytest.mark.parametrize("links", [True, False])
def test_an_epochs_snapshot_stays_for_ever(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(a: object, b: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    kept = Checkpoints(tmp_path)
    kept.save(state(1), 1, epoch_snapshot=20)
    kept.save(state(1), 1, epoch_snapshot=20)  # a resumed run comes by again
    kept.save(state(2), 2)
    kept.save(state(3), 3)
    assert names(tmp_path) == ["epoch-0020.pt", "step-000000002.pt", "step-000000003.pt"]
    assert torch.load(tmp_path / "epoch-0020.pt", weights_only=True)["step"] == 1


def test_without_step_files_the_newest_snapshot_is_taken(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for step in (1, 2):
        kept.save(state(step), step, epoch_snapshot=step).unlink()
    assert latest_step(kept) == 2


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(torch.arange(6.0).add(2).numpy().tobytes())] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("step 2\n")


def not_sealed(path: Path) -> None:
    torch.save(state(2), path)


def a_list(path: Path) -> None:
    torch.save([1], path)
    checkpoint._seal(path)


def code(path: Path) -> None:
    torch.save({"step": print}, path)
    checkpoint._seal(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    checkpoint._seal(path)


DAMAGES = [truncate, flip, empty, text, not_sealed, a_list, code, a_folder, another_zip]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over_and_named(damage: Any, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(1), 1)
    damage(kept.save(state(2), 2))
    assert latest_step(kept) == 1
    assert len(kept.damaged) == 1
    assert re.match(r".*step-000000002\.pt: \S.*: \S", kept.damaged[0])
    assert "\n" not in kept.damaged[0]
    latest_step(kept)
    assert len(kept.damaged) == 1


def test_every_changed_or_missing_byte_is_noticed(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save({"step": 1}, 1)
    path = kept.save({"step": 2, "a": torch.arange(3.0)}, 2)
    content = path.read_bytes()
    assert latest_step(kept) == 2
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        assert latest_step(kept) == 1, place
        path.write_bytes(content[:place])
        assert latest_step(kept) == 1, place


def test_other_programs_can_read_the_files(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(state(1), 1)
    assert torch.load(path, weights_only=True)["step"] == 1
    assert torch.load(path, weights_only=True, mmap=True)["step"] == 1
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_without_a_whole_one_it_says_what_to_do(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    empty(kept.save(state(1), 1))
    with pytest.raises(ValueError, match=r"none of its 1 checkpoints is whole \(.*step-0.*\); .*delete them") as caught:
        kept.latest()
    assert "\n" not in str(caught.value)


def test_damaged_ones_of_later_steps_do_not_crowd_out_new_ones(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(1), 1)
    (tmp_path / "step-000000009.pt").write_bytes(b"")
    assert latest_step(kept) == 1
    kept.save(state(2), 2)
    assert names(tmp_path) == ["step-000000001.pt", "step-000000002.pt"]


@pytest.mark.parametrize("bad", [Path("x"), np.float64(1.0), np.ones(2), torch.nn.ReLU()])
def test_what_could_not_be_read_again_is_not_written(bad: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^state: needs .*; a checkpoint holds dicts, lists"):
        Checkpoints(tmp_path).save({"a": [1, bad]}, 1)
    assert names(tmp_path) == []


def test_reading_runs_no_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return PosixPath.touch, (PosixPath(tmp_path / "sprung"),)

    torch.save({"a": Trap()}, tmp_path / "step-000000001.pt")
    checkpoint._seal(tmp_path / "step-000000001.pt")
    with pytest.raises(ValueError, match=r"none of its 1 .* cannot be read"):
        Checkpoints(tmp_path).latest()
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("number", "why"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "your quota"), (errno.EFBIG, "ulimit")]
)
def test_a_full_disk_leaves_what_was_there(
    number: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoints(tmp_path)
    last = kept.save(state(1), 1)

    def full(state: object, file: Any) -> None:
        file.write(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(DiskFull) as caught:
        kept.save(state(2), 2)
    line = str(caught.value)
    assert re.fullmatch(rf".*step-000000002\.pt cannot be written: .*{why}.* MB are free; .*", line)
    assert f"the last checkpoint {last} is whole; free some space" in line
    assert names(tmp_path) == [last.name]
    assert latest_step(kept) == 1


def test_a_disk_that_is_full_at_the_snapshot_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(a: object, b: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(DiskFull, match=r"the last checkpoint .*epoch-0001.pt is whole"):
        Checkpoints(tmp_path).save(state(1), 1, epoch_snapshot=1)


def test_killed_between_its_two_names_a_snapshot_is_there_and_the_run_comes_by_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(a: object, b: object) -> None:
        raise KeyboardInterrupt

    kept = Checkpoints(tmp_path)
    kept.save(state(1), 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.save(state(2), 2, epoch_snapshot=1)
    assert (tmp_path / "epoch-0001.pt").is_file()
    assert latest_step(kept) == 1
    kept.save(state(2), 2, epoch_snapshot=1)
    assert latest_step(kept) == 2


def test_another_error_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: object, file: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="Input/output error") as caught:
        Checkpoints(tmp_path).save(state(1), 1)
    assert not isinstance(caught.value, DiskFull)
    assert names(tmp_path) == []


def save_under_a_limit(folder: Path, told: Connection) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        Checkpoints(folder).save({"step": 2, "a": torch.ones(100_000)}, 2)
    except DiskFull as error:
        told.send(str(error))


def test_a_real_limit_in_the_midst_of_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    last = Checkpoints(tmp_path).save({"step": 1}, 1)
    ours, theirs = SPAWN.Pipe()
    SPAWN.Process(target=save_under_a_limit, args=(tmp_path, theirs), daemon=True).start()
    assert ours.poll(PATIENCE)
    line = ours.recv()
    assert "\n" not in line
    assert "ulimit -f" in line
    assert f"the last checkpoint {last} is whole" in line
    assert names(tmp_path) == [last.name]
    assert latest_step(Checkpoints(tmp_path)) == 1


def test_a_checkpoint_that_finds_no_memory_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoints(tmp_path)
    kept.save({"step": 1}, 1)

    def full(*given: object, **more: object) -> None:
        raise MemoryError

    monkeypatch.setattr(torch, "load", full)
    with pytest.raises(MemoryError):
        kept.latest()
