"""The real training loop in two processes goes, step by step, where one process with the whole batch goes."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.lock import locked
from manyview.core.sample import Sample
from tests.patience import PATIENCE
from tests.tiny import flags, pictures, pretrain
from tests.training.kills import metrics
from tests.two_processes import Found, in_processes, in_two_processes

STEPS = 3
ALL = {
    "data.name": "(own)",
    "encoder.name": "timm/test_vit",  # layer norm, and no dropout
    "augmentation.size": 32,
    "head.name": "mlp",  # no batch norm
    "head.dim_out": 16,
    "batch_size": 12,
    "epochs": 2,
    "max_steps": STEPS,
    "precision": "fp64",
    "optimizer.name": "sgd",  # which shows a gradient's length too, and does not magnify one that is 0 but for rounding
    "optimizer.lr": 0.5,
    "evaluate_every": 0,
    "health_every": 1,
    "loggers": (),
    "quiet": True,
    "device": "cpu",
    "workers": 0,
}
PATCHES = {"encoder.name": "timm/test_efficientnet_ln"}  # takes images of any size; layer norm
QUEUE = {"memory.size": 40}  # no multiple of the batch
GROUPS = {  # of three images, with batch norm
    "encoder.name": "patchnet", "encoder.options": {"widths": (4, 8), "blocks": (1, 1)}, "method.bn_splits": 4,
    "momentum.start": 0.9, **QUEUE,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "simclr": {"method.name": "simclr"},
    "moco_v2": {"method.name": "moco_v2", "momentum.start": 0.9, **QUEUE},
    "moco_v2 in groups": {"method.name": "moco_v2", **GROUPS},
    "with gradient checkpointing": {"method.name": "simclr", "grad_checkpoint": True},
    "a last batch of few": {"method.name": "cacr", "method.positives": 1, "batch_size": 58, "drop_last": False},
}
SLOW: dict[str, dict[str, Any]] = {
    "dcl in micro-batches": {"method.name": "dcl", "micro_batch": 4, "grad_clip": 0.1},
    "a last batch of few in micro-batches": {
        "method.name": "moco_v2",
        "momentum.start": 0.9,
        "batch_size": 58,
        "drop_last": False,
        "micro_batch": 2,
        **QUEUE,
    },
    "jcl": {"method.name": "jcl", "method.keys": 3, "method.ramp": True, "momentum.start": 0.9, **QUEUE},
    "jcl in micro-batches": {"method.name": "jcl", "method.keys": 2, "momentum.start": 0.9, "micro_batch": 4, **QUEUE},
    "cacr_moco": {"method.name": "cacr_moco", "method.positives": 2, "momentum.start": 0.9, **QUEUE},
    "jcl in groups": {"method.name": "jcl", "method.keys": 2, **GROUPS},
    "jcl in micro-batches, with gradient checkpointing": {
        "method.name": "jcl",
        "method.keys": 2,
        "momentum.start": 0.9,
        "micro_batch": 4,
        "grad_checkpoint": True,
        **QUEUE,
    },
    "moco_v2 in groups, with gradient checkpointing": {"method.name": "moco_v2", "grad_checkpoint": True, **GROUPS},
    "cmc_moco in groups": {"method.name": "cmc_moco", "views": ("L", "ab"), **GROUPS},
    "symmetric moco_v2": {"method.name": "moco_v2", "method.symmetric": True, "momentum.start": 0.9, **QUEUE},
    "keys with gradient": {
        "method.name": "multikey",
        "method.keys": 2,
        "momentum": None,
        "memory.name": "batch",
        "micro_batch": 4,
    },
    "pirl": {"method.name": "pirl", "memory.m": 20, **PATCHES},
    "pirl in micro-batches": {"method.name": "pirl", "memory.m": 20, "micro_batch": 4, **PATCHES},
    "cmc_moco with pirl": {
        "method.name": "cmc_moco",
        "method.jigsaw": 0.5,
        "views": ("L", "ab"),
        "momentum.start": 0.9,
        **PATCHES,
        **QUEUE,
    },
    "align_uniform_moco": {"method.name": "align_uniform_moco", "momentum.start": 0.9, **QUEUE},
}
SMALL = {"method.small": 2, "augmentation.small_size": 16, **PATCHES}
FEW: dict[str, dict[str, Any]] = {
    "simclr": {"method.name": "simclr"},
    "cacr, whose loss pools all queries": {"method.name": "cacr", "method.positives": 2, "loss.cost": "rbf"},
    "barlow_twins": {"method.name": "barlow_twins"},
    "swav": {"method.name": "swav", "method.frozen": 1, "method.queue": 40, "prototypes.count": 12, **SMALL},
    "dino": {"method.name": "dino", "method.frozen": 1, "prototypes.count": 12, **SMALL},
    "dcl in micro-batches": {"method.name": "dcl", "micro_batch": 8},
}
for settings_of_few in FEW.values():  # of the last batch's two images one of three processes has none
    settings_of_few |= {"batch_size": 60, "drop_last": False}
Steps = list[dict[str, Tensor]]


class Noise:
    """Pictures of noise, all different."""

    modalities, classes, labels = ("image",), (), None
    ids = torch.arange(61) * 7 + 3  # of a batch of 58, two processes have 29 each, and 2 and 1 of the last

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(256, (3, 32, 32), generator=generator).byte()
        return Sample(int(self.ids[index]), index, {"image": image})

    def name(self, index: int) -> str:
        return f"noise {index}"


class OneMore(Noise):
    """One picture more, so that the last batch has two."""

    ids = torch.arange(62) * 7 + 3


def trained(cases: dict[str, dict[str, Any]], folder: str, world: int, data: type[Noise] = Noise) -> dict[str, Steps]:
    """Trains in this process, which may be one of several: what networks and memories were after each step."""
    from manyview.config.resolve import resolve
    from manyview.methods import Method
    from manyview.training.train import train

    found: dict[str, Steps] = {}
    update = Method.update

    def noted(self: Method, *arguments: Any) -> None:
        update(self, *arguments)
        steps.append({name: value.clone() for name, value in self.state_dict().items()})

    Method.update = noted  # type: ignore[method-assign, assignment]
    for name, case in cases.items():
        steps: Steps = []
        run = train(resolve({**ALL, **case, "out": f"{folder}/{world}-{name}"}, {}), data())
        losses = [line["loss"] for line in run.metrics if "loss" in line]
        found[name] = [{**state, "loss": torch.tensor(loss)} for state, loss in zip(steps, losses, strict=True)]
    Method.update = update  # type: ignore[method-assign]
    return found


def train_slow(rank: int, folder: str) -> dict[str, Any]:
    return trained(SLOW, folder, 2)


def train_few(rank: int, folder: str) -> dict[str, Any]:
    return trained(FEW, folder, 3, OneMore)


def assert_all_are_one(
    cases: dict[str, dict[str, Any]], many: list[dict[str, Steps]], folder: Path, data: type[Noise] = Noise
) -> None:
    """Compares what several processes found with one process, this one."""
    one = trained(cases, str(folder), 1, data)
    for name in cases:
        assert len(one[name]) == STEPS
        moved = [key for key, value in one[name][0].items() if not torch.equal(value, one[name][-1][key])]
        assert any(key.startswith("towers.query") for key in moved)
        queued = not {"memory.size", "method.queue"}.isdisjoint(cases[name])
        assert any(key.endswith("queue.keys") for key in moved) == queued
        for each in many:
            for step, (expected, found) in enumerate(zip(one[name], each[name], strict=True), start=1):
                assert expected.keys() == found.keys()
                for key, value in expected.items():
                    where = f"{name}, step {step}, {key}: {{}}"
                    torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-9, msg=where.format)


Told = list[tuple[int, str]]  # exit codes, and what was said on stderr
Two = tuple[Path, list[Found]]  # the folder that two processes have worked in, and what each has found


def commanded(**settings: Any) -> tuple[int, str]:
    """`manyview pretrain`, in this process: its exit code, and what it said on stderr."""
    from manyview.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(["pretrain", *flags(**settings), "--quiet"])
    return code, said.getvalue()


def in_two(rank: int, folder: str) -> Found:
    """All that two processes are asked to do, in one start of them."""
    parts = {"refused": refused, "diverging": diverging, "stopped": stopped, "counting": counting}
    return {"trained": trained(CASES, folder, 2), **{name: part(rank, folder) for name, part in parts.items()}}


def refused(rank: int, folder: str) -> Told:
    """What one of two processes says, and with which code it ends, when the first cannot go on."""
    at_once, told = torch.save, []

    def full(state: Any, file: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for case in ("whole", "locked", "apart", "damaged", "full"):
        out = f"{folder}/{case}-{rank}" if case in ("apart", "damaged") else f"{folder}/{case}"
        torch.save = full if case == "full" else at_once  # type: ignore[assignment]
        told.append(commanded(data=f"{folder}/data", out=out, max_steps=1, evaluate_every=0))
    torch.save = at_once
    return told


DIVERGING = {"in a step": 3, "in a step that saves": 4, "in the last step": 5, "infinite": 3}  # in which


def diverging(rank: int, folder: str) -> Told:
    """Trains with a loss that is no number in the second process alone, after so many steps."""
    from manyview.methods import Method

    objective, told = Method.objective, []

    def broken(self: Method, batch: Any) -> Any:
        found = objective(self, batch)
        bad = float("inf") if case == "infinite" else float("nan")
        return found._replace(loss=found.loss * bad) if rank == 1 and batch.step == DIVERGING[case] - 1 else found

    Method.objective = broken  # type: ignore[method-assign]
    for case in DIVERGING:
        settings = {"health_every": 100, "checkpoint_steps": 2, "max_steps": 5, "evaluate_every": 0}
        told.append(commanded(data=f"{folder}/data", out=f"{folder}/{case}", **settings))
    Method.objective = objective  # type: ignore[method-assign]
    return told


STOPPED_RUN = {"method": "moco_v2", "memory__size": 16, "health_every": 3, "evaluate_every": 0}
STOPS = {"SIGTERM to the second": (signal.SIGTERM, 1), "SIGINT to the first": (signal.SIGINT, 0)}


def stopped(rank: int, folder: str) -> Told:
    """Stops a run by a signal to one of two processes, goes on with it, and runs it undisturbed too."""
    from manyview.training.state import RunState

    stepped, told = RunState.stepped, []

    def stepped_and_stopped(self: RunState, losses: Tensor) -> None:
        stepped(self, losses)
        if self.step == 4 and rank == STOPS[case][1]:
            os.kill(os.getpid(), STOPS[case][0])

    told.append(commanded(data=f"{folder}/data", out=f"{folder}/undisturbed", **STOPPED_RUN))
    for case in STOPS:
        RunState.stepped = stepped_and_stopped  # type: ignore[method-assign, assignment]
        told.append(commanded(data=f"{folder}/data", out=f"{folder}/{case}", **STOPPED_RUN))
        RunState.stepped = stepped  # type: ignore[method-assign]
        told.append(commanded(data=f"{folder}/data", out=f"{folder}/{case}", **STOPPED_RUN))
    return told


COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_coalesced", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "scatter_object_list", "send", "recv", "isend", "irecv", "batch_isend_irecv",
)  # fmt: skip


def counting(rank: int, folder: str) -> dict[str, list[dict[str, int]]]:
    """Counts the collectives from the end of each step's update to that of the next; nothing is as before after it."""
    import torch.distributed as dist

    from manyview.config.resolve import resolve
    from manyview.core.distributed import Agreement
    from manyview.training.state import RunState
    from manyview.training.train import train

    counts: Counter[str] = Counter()
    after: list[Counter[str]] = []
    stepped, attempt = RunState.stepped, Agreement.attempt
    attempts: list[int] = []

    @contextlib.contextmanager
    def attempted(self: Agreement) -> Iterator[None]:
        with attempt(self):
            attempts.append(1)
            try:
                yield
            finally:
                attempts.pop()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            assert not attempts, f"{name} where one process may already have failed, and the others would wait for ever"
            return function(*given, **more)

        return called

    def noted(self: RunState, losses: Tensor) -> None:
        stepped(self, losses)
        after.append(counts.copy())

    for name in COLLECTIVES:
        setattr(dist, name, counted(name, getattr(dist, name)))
    RunState.stepped, Agreement.attempt = noted, attempted  # type: ignore[method-assign, assignment]
    found = {}
    for name, case in CASES.items():
        after.clear()
        plain = {"health_every": 100, "max_steps": 5, "evaluators": (), "epochs": 2, "batch_size": 8}
        train(resolve({**ALL, **case, **plain, "out": f"{folder}/{name}"}, {}), Noise())
        found[name] = [dict(second - first) for first, second in pairwise(after)]
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    """The folder that two processes have worked in, and what each has found."""
    folder = tmp_path_factory.mktemp("two")
    data = pictures(folder / "data", 48)
    assert pretrain(folder / "apart-0", "--quiet", data=data, max_steps=1, evaluate_every=0) == 0
    (folder / "apart-0" / "encoder.safetensors").unlink()  # so that it is not complete
    shutil.copytree(folder / "apart-0", folder / "damaged-0")
    (folder / "damaged-0" / "checkpoints" / "step-000000001.pt").write_text("cut off")
    with locked(folder / "locked"):
        return folder, in_two_processes(partial(in_two, folder=str(folder)), folder)


def test_two_processes_train_as_one_does(tmp_path: Path, two: Two) -> None:
    assert_all_are_one(CASES, [each["trained"] for each in two[1]], tmp_path)


@pytest.mark.slow
def test_two_processes_train_as_one_does_in_every_kind_of_method_and_in_micro_batches(tmp_path: Path) -> None:
    assert_all_are_one(SLOW, in_two_processes(partial(train_slow, folder=str(tmp_path)), tmp_path), tmp_path)


@pytest.mark.slow
def test_a_process_without_an_image_of_the_last_batch_goes_where_one_process_goes(tmp_path: Path) -> None:
    found = in_processes(3, partial(train_few, folder=str(tmp_path)), tmp_path)
    assert_all_are_one(FEW, found, tmp_path, OneMore)


def test_a_step_has_one_status_word_one_gather_of_all_outputs_and_one_reduction_of_its_gradient(two: Two) -> None:
    """Besides the gradients of the parameters, which DistributedDataParallel's reducer sums by itself."""
    for found in (each["counting"] for each in two[1]):
        gather = {
            "simclr": {"all_gather": 2, "all_reduce": 1},
            "moco_v2": {"all_gather": 2},  # keys have no gradient
            # the number of rows to shuffle, images there and keys back, and running statistics
            "moco_v2 in groups": {"all_gather": 3, "all_to_all_single": 2, "all_reduce": 1},
        }
        for name, step in gather.items():
            reported = {**step, "all_gather": step["all_gather"] + 1}  # the first step's losses
            assert found[name] == [reported, step, step, step], name


def test_a_loss_that_is_no_number_in_one_process_ends_both_in_one_line_and_is_not_saved(two: Two) -> None:
    for number, (case, step) in enumerate(DIVERGING.items()):
        codes, said = ([each["diverging"][number][place] for each in two[1]] for place in (0, 1))
        assert codes == [1, 1], case
        (line,) = "".join(said).splitlines()
        assert f"after step {step}: the loss is {'inf' if case == 'infinite' else 'nan'}; likely the " in line
        assert bool(said[1]) == (case in ("in a step", "infinite"))  # which nobody else knows yet
        out = two[0] / case
        assert line.endswith(str(next(path for path in out.glob("failed-after-step-*.pt") if str(path) in line)))
        assert not (out / "encoder.safetensors").exists()
        names = [path.name for path in (out / "checkpoints").glob("*.pt")]
        assert names == [f"step-{2 if step < 5 else 4:09d}.pt"] or (step == 5 and len(names) == 2)
        for name in names:
            state = torch.load(out / "checkpoints" / name, weights_only=True)["method"]
            assert all(torch.isfinite(value).all() for value in state.values())


def test_a_signal_to_one_process_saves_and_ends_both_and_the_run_goes_on_to_the_same_end(two: Two) -> None:
    first, second = (each["stopped"] for each in two[1])
    assert first[0][0] == second[0][0] == 0
    whole = two[0] / "undisturbed"
    for number, (case, (signalled, receiver)) in enumerate(STOPS.items()):
        stop, again = 1 + 2 * number, 2 + 2 * number
        codes = [each[stop][0] for each in (first, second)]
        assert codes[receiver] == 128 + signalled
        assert codes[1 - receiver] == 128 + signal.SIGTERM  # it does not know which
        (line,) = first[stop][1].splitlines()[-1:]
        assert line.startswith("warning: stopped after step 4 of 12 and saved. To go on: torchrun --nproc-per-node 2 ")
        assert second[stop][1] == ""
        assert first[again][0] == second[again][0] == 0
        assert (two[0] / case / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()
        assert metrics(two[0] / case) == metrics(whole)
        assert [line["step"] for line in metrics(whole)] == [1, 3, 6, 9, 12]


STOPPED = """
import os, signal, sys
from manyview.cli.main import main
from manyview.training.run_log import RunLog

def write_and_stop(self, step, *given, **named):
    write(self, step, *given, **named)
    if step == 3:
        os.kill(os.getpid(), signal.SIGTERM)  # only the first process writes; torchrun tells the other

write, RunLog.write = RunLog.write, write_and_stop
sys.exit(main(sys.argv[1:]))
"""


def torchrun(*program: str) -> tuple[int, str]:
    """The exit code of `torchrun --nproc-per-node 2 ...`, and what it said on stderr."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stderr


def test_torchrun_is_stopped_by_a_signal_to_one_process_and_goes_on_to_the_same_end(tmp_path: Path, two: Two) -> None:
    out, stopped = tmp_path / "run", tmp_path / "stopped.py"
    stopped.write_text(STOPPED)
    settings = flags(data=two[0] / "data", **STOPPED_RUN)
    _, said = torchrun(str(stopped), "pretrain", *settings, "--out", str(out))
    assert "and saved. To go on: torchrun --nproc-per-node 2 -m manyview pretrain --resume" in said
    assert not (out / "encoder.safetensors").exists()
    code, said = torchrun("-m", "manyview", "pretrain", "--resume", str(out))
    assert code == 0, said
    ends = [folder / "encoder.safetensors" for folder in (out, two[0] / "undisturbed")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
    assert metrics(out) == metrics(two[0] / "undisturbed")


def test_of_what_the_first_process_refuses_the_others_say_nothing(two: Two) -> None:
    first, second = (each["refused"] for each in two[1])
    assert first[0][0] == second[0][0] == 0
    assert second[1:] == [(1, "")] * 4
    assert [code for code, _ in first[1:]] == [2, 2, 2, 1]
    assert [said.count("\n") for _, said in first[1:]] == [1, 1, 1, 1]
    assert "is being trained by process" in first[1][1]
    assert "processes see different checkpoints" in first[2][1]
    assert "(step 1, none); give a folder that all machines share" in first[2][1]
    assert "damaged-0/checkpoints/step-000000001.pt" in first[3][1]
    assert "the disk is full" in first[4][1]
    state = torch.load(two[0] / "whole" / "checkpoints" / "step-000000001.pt", weights_only=True)
    assert state["world"] == 2
