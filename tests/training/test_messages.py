"""What a run says of itself."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.config.resolve import resolve
from manyview.data import Loader
from manyview.diagnose.health import Health
from manyview.encoders import create
from manyview.features.gain import Share
from manyview.methods import Method, cmc, cmc_moco, prediction, split_brain
from manyview.training import messages
from manyview.training.run import encoder_file
from manyview.training.state import RunState
from tests.data.test_paired import put
from tests.patience import PATIENCE
from tests.tiny import noise, pictures, pretrain
from tests.training.kills import metrics
from tests.training.whole_runs import at_step, stop_with


@pytest.mark.parametrize(
    ("settings", "leaks"),
    [
        ({"memory__size": 16}, True),
        ({"memory__size": 16, "method__bn_splits": 2}, False),
        ({"memory__name": "batch"}, False),
        ({"memory__name": "batch", "micro_batch": 4}, True),
        ({"memory__name": "batch", "micro_batch": 4, "method__bn_splits": 2}, False),
    ],
)
def test_keys_that_share_statistics_with_their_queries_are_told(
    settings: dict[str, Any], leaks: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, method="moco_v2", max_steps=1, **settings) == 0
    assert ("a key is in the same batch of batch norm as its query" in capsys.readouterr().err) == leaks


def test_without_labels_there_is_no_knn_and_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "data", 32), evaluators="knn") == 0
    assert "32 images of" in (said := capsys.readouterr().out)
    assert "no labels to score with: no kNN" in said
    assert all("knn" not in line for line in metrics(tmp_path / "run"))


def test_several_views_are_scored_by_retrieval_without_labels_and_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"method": "cmc", "views": "L,ab", "data": pictures(tmp_path / "data", 40), "health_every": 2}
    assert pretrain(tmp_path / "run", **given) == 0
    said = capsys.readouterr().out
    assert "views L, ab, scored on 4 held-out images\n" in said
    assert "recall@1 across views of the untrained towers" in said
    assert ", by chance 25.0%, on 4 held-out samples that have both" in said
    assert re.search(r"^step 8/8 .* recall@1 [0-9.]+% \(untrained [0-9.]+%, chance 25.0%\)  ", said, re.MULTILINE)
    assert re.search(r"^L +ab +[0-9.]+ \([0-9.]+\).* 25.0 / 100.0 / 100.0 +4$", said, re.MULTILINE)
    lines = metrics(tmp_path / "run")
    scored = [line for line in lines if "recall@1" in line]
    assert [line["step"] for line in scored] == [0, 4, 8]
    assert {"recall@5/L to ab", "recall@10/ab to L", "pairs/ab to L"} <= scored[0].keys()
    told = [line for line in lines if "health" in line]
    assert all(line["bound/L to ab"] == pytest.approx(math.log(7) - line["loss/L to ab"]) for line in told)
    assert all({"health/L", "health/ab", "rank/L", "rank/ab"} <= line.keys() for line in told)


def test_plain_lines_are_one_an_epoch_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("manyview.core.progress.LINE_SECONDS", PATIENCE)  # however long it takes here
    assert pretrain(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines))
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["1/12", "6/12", "12/12"]
    told = "its folders are the classes, --data.labels false trains on all"
    assert lines[0] == f"dcl on 49 images of {noise()}, scored on 5 held-out images; {told}"
    assert lines[-1] == f"encoder {tmp_path / 'encoder.safetensors'}"


def test_it_says_what_is_scored_on_and_why_not_the_test_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "test"):
        pictures(tmp_path / "data" / split, 40, classes=2)
    assert pretrain(tmp_path / "one", data=tmp_path / "data", max_steps=1) == 0
    said = capsys.readouterr()
    assert "dcl on 40 images of " in said.out
    assert ", scored on 32 images of its test split\n" in said.out  # of 40, as --knn-queries says
    for number, folder in enumerate(sorted((tmp_path / "data" / "test").iterdir())):
        folder.rename(folder.with_name(f"other{number}"))
    assert pretrain(tmp_path / "two", data=tmp_path / "data", max_steps=1) == 0
    said = capsys.readouterr()
    assert ", scored on 4 held-out images; its folders are the classes" in said.out
    assert said.err == "warning: the test split is not scored on: it has other classes than the training images\n"


def test_quiet_prints_nothing_but_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 2, stop_with(signal.SIGTERM))
    assert pretrain(tmp_path, "--quiet") == 143
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("warning: stopped after step 2")


def test_it_says_what_somebody_may_not_have_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pictures(tmp_path / "photos", 60)
    (folder / "0.png").write_bytes(b"no picture")
    assert pretrain(tmp_path / "run", data=folder, method="moco_v2", epochs=1, max_unreadable=0.1, evaluators="[]") == 0
    said = capsys.readouterr().err
    assert "the queue of 65,536 keys is larger than the data" in said
    assert "1 of 60 images cannot be read, others stand in for them: 0.png" in said
    assert "1 of 60 images cannot be read" in (tmp_path / "run" / "train.log").read_text()


def test_it_says_which_of_several_modalities_is_trained_on_and_that_a_batch_is_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for modality in ("rgb", "thermal"):
        pictures(tmp_path / "both" / modality, 12)
    assert pretrain(tmp_path / "run", data=tmp_path / "both", epochs=1, batch_size=4) == 0
    said = capsys.readouterr().err
    assert "of the modalities rgb, thermal only rgb is trained on" in said
    assert "a batch of 4 is small: each image has 3 others" in said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (15, ["each epoch leaves out 7 of 15 samples, others every time: it has 1 batch of 8, "]),
        (20, ["each epoch leaves out 4 of 20 samples, others every time: it has 2 batches of 8, "]),
        (16, []),
        (17, []),  # one of them, which is less than a tenth
    ],
)
def test_it_says_that_an_epoch_leaves_many_samples_out(
    count: int, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "photos", count), max_steps=1, evaluators="[]") == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "leaves out" in line]
    assert told == [f"{line}and none that is not full; --drop-last false takes them too" for line in said]


def test_modalities_that_are_taken_for_classes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for modality in ("depth", "thermal"):
        pictures(tmp_path / "both" / modality, 12)
    assert pretrain(tmp_path / "run", data=tmp_path / "both", max_steps=1) == 0
    said = capsys.readouterr().err
    assert "warning: the folders depth, thermal are taken for classes" in said
    assert "; --data.modalities depth,thermal takes them" in said


def test_nothing_is_said_of_modalities_that_views_leave_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for modality in ("rgb", "thermal", "other"):
        pictures(tmp_path / "three" / modality, 12)
    given = {"method": "cmc", "views": "rgb,thermal", "epochs": 1, "max_steps": 1, "batch_size": 8}
    assert pretrain(tmp_path / "run", data=tmp_path / "three", **given) == 0
    said = capsys.readouterr()
    assert "trained on" not in said.err + said.out


def test_a_gain_is_said_with_its_standard_error_and_none_with_what_to_do(tmp_path: Path) -> None:
    state = RunState(resolve({"data.name": "photos"}, {}), 20, 20, 5, Health(coupled=True))
    state.scored({"knn": Share.of(torch.arange(100) < 50), "knn/depth": 0.25})
    state.step = 20
    state.scored({"knn": Share.of(torch.arange(100) < 60), "knn/depth": 0.25})
    for view in ("image", "depth"):
        (tmp_path / encoder_file(view)).write_bytes(b"")
    assert messages.conclusion(state, tmp_path) == [
        "kNN 60.0%, untrained 50.0%: +10.0 \N{PLUS-MINUS SIGN} 3.1 points "
        "(standard error over the same 100 held-out images)",
        "kNN/depth 25.0%, untrained 25.0%: +0.0 points",  # of an older checkpoint, say
        "kNN/depth is no better than before training: train longer, or with milder augmentation",
        "too few steps to tell whether it is healthy",
        f"encoders {tmp_path / 'encoder-depth.safetensors'}, {tmp_path / 'encoder-image.safetensors'}",
    ]


@pytest.mark.parametrize(
    ("chosen", "views", "said"),
    [
        (partial(cmc, graph="core", core="ir"), "rgb depth ir", ["rgb and depth are each contrasted with ir"]),
        (partial(cmc_moco, graph="core"), "rgb depth thermal", ["depth and thermal are each contrasted with rgb"]),
        (cmc, "rgb depth thermal", ["each two of rgb, depth and thermal are contrasted"]),
        (cmc, "rgb depth", []),
        (partial(cmc, jigsaw=0.5), "rgb depth", []),
        (prediction, "rgb depth thermal", ["rgb and depth predict thermal"]),
        (partial(prediction, target="rgb"), "rgb depth", ["depth predicts rgb"]),
        (split_brain, "L ab", ["L predicts ab; ab predicts L"]),
    ],
)  # fmt: skip
def test_it_says_which_views_are_contrasted_and_which_is_predicted(
    chosen: Callable[..., Method], views: str, said: list[str]
) -> None:
    small = create("patchnet", size=8, widths=(4,), blocks=(1,))
    method = chosen(dict.fromkeys(views.split(), small))
    assert messages.roles(method) == said


def test_terms_that_contrast_some_views_alone_are_said_one_by_one() -> None:
    whole = cmc(dict.fromkeys("abcd", create("patchnet", size=8, widths=(4,), blocks=(1,))))
    ring = [term for term in whole.terms if term.name in ("a to b", "b to a", "b to c", "c to d")]
    method = Method(views=whole.views, towers=whole.towers, terms=ring)
    assert messages.roles(method) == ["a with b, b with c, c with d are contrasted"]


def test_of_many_unreadable_images_some_are_named() -> None:
    loader = SimpleNamespace(unreadable=dict.fromkeys(range(5), "cut off"), dataset=Named("abcdefgh"))
    (said,) = messages.unreadable(cast(Loader, loader))
    assert said == "5 of 8 images cannot be read, others stand in for them: a (cut off), b (cut off), c (cut off), ..."
    assert messages.unreadable(cast(Loader, SimpleNamespace(unreadable={}))) == []


class Named(str):
    """As many images as letters, which are their names."""

    def name(self, row: int) -> str:
        return self[row]


def test_it_says_which_views_are_missing_what_is_normalised_how_and_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        for folder in ("rgb", "labels", *(["depth"] if number > 2 else [])):
            put(tmp_path / "street" / folder / f"{number:02}.png", "depth" if folder == "depth" else "rgb")
    (tmp_path / "street" / "depth" / "08.png").write_bytes(b"broken")
    assert (
        pretrain(
            tmp_path / "run", data=tmp_path / "street", method="cmc", max_steps=1, data__nodata=1234, max_unreadable=0.1
        )
        == 0
    )
    said = capsys.readouterr()
    assert re.search("depth is missing in [1-3] of 18 samples: a sample takes part in what it has", said.out)
    normalised = r"depth: normalised with mean 0, std 1 of 1\d samples; pixels without data \(1234 or NaN\), 100.0%"
    assert re.search(normalised, said.out)  # two of the 20 are held out
    assert "left out labels: label maps by name" in said.out
    assert "others stand in for them: 08 (depth: not an image of a known format" in said.err


@pytest.mark.parametrize(
    ("given", "zeros", "said"),
    [
        ({}, 0.08, "8.0% of the pixels of depth are 0: where that means nothing was seen, give --data.nodata 0"),
        ({}, 0.0, ""),
        ({"data__nodata": 0}, 0.08, ""),
        ({"data__nodata": 1234}, 0.08, ""),
        ({"data__nodata": 20000000}, 0.0, "data.nodata: no pixel of depth is 20000000; all of them count as data"),
        ({"data__nodata": "{depth: 7}"}, 0.0, "data.nodata: no pixel of depth is 7; all of them count as data"),
    ],
)
def test_it_asks_about_zeros_and_says_that_a_value_of_no_data_is_nowhere(
    given: dict[str, Any], zeros: float, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    depth = np.full((10, 10), 1234, np.uint16)
    depth.flat[: round(100 * zeros)] = 0
    pictures(tmp_path / "street" / "rgb", 10)
    (tmp_path / "street" / "depth").mkdir()
    for number in range(10):
        Image.fromarray(depth).save(tmp_path / "street" / "depth" / f"{number}.png")
    assert pretrain(tmp_path / "run", data=tmp_path / "street", method="cmc", max_steps=1, **given) == 0
    found = capsys.readouterr()
    about = [
        line for line in (found.out + found.err).splitlines() if "give --data.nodata" in line or "data.nodata:" in line
    ]
    assert [line.removeprefix("warning: ") for line in about] == ([said] if said else [])


def test_it_says_nothing_of_negatives_or_of_a_memory_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pictures(tmp_path / "photos", 12)
    assert pretrain(tmp_path / "one", data=data, method="simsiam", head__hidden=8, epochs=1, batch_size=4) == 0
    assert "is small" not in capsys.readouterr().err
    swav = {"method": "swav", "method__queue": 64, "method__small": 0, "prototypes__count": 8}
    assert pretrain(tmp_path / "two", data=data, epochs=1, batch_size=4, **swav) == 0
    said = capsys.readouterr().err
    assert "the queue of 64 keys is larger than the data; a smaller one would learn sooner" in said


def test_after_the_first_epoch_it_is_said_how_many_images_are_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for number in range(16):
        Image.new("RGB", (140 + number, 150), (number, 0, 0)).save(root / f"{number}.png")
    assert pretrain(tmp_path / "run", data=root, epochs=3) == 0
    said = capsys.readouterr().out
    assert said.count("all images are in memory now (0.0011 GB), and are not decoded again") == 1
    assert pretrain(tmp_path / "other", data=root, epochs=1) == 0
    assert "in memory" not in capsys.readouterr().out


class Holding(SimpleNamespace):
    """A loader of 12,000 images, whose epochs leave out 100."""

    dataset, world = range(12_000), 1
    unreadable: ClassVar[dict[int, str]] = {}

    def __len__(self) -> int:
        return 119

    def seen(self, batches: int) -> int:
        return 100 * batches


@pytest.mark.parametrize(
    ("held", "at_once", "said"),
    [
        (
            (5000, 3_100_000_000), False,
            "5,000 of 12,000 images are in memory now (3.1 GB), and are not decoded again; "
            "there is no room for the others in the quarter of it that images may take",
        ),
        (
            (11_900, 3_100_000_000), False,
            "11,900 of 12,000 images are in memory now (3.1 GB), and are not decoded again; "
            "an epoch leaves some out, others every time",
        ),
        ((0, 0), False, None),
        ((12000, 100), True, None),
    ],
)  # fmt: skip
def test_who_holds_some_images_says_how_many_and_why_not_all(
    held: tuple[int, int], at_once: bool, said: str | None
) -> None:
    loader = cast(Loader, Holding(held=held, at_once=at_once))
    assert messages.held(loader) == ([] if said is None else [said])


def test_a_handful_of_steps_for_the_minutes_is_said_before_training() -> None:
    config = resolve({}, {"data.name": "scenes", "minutes": 0.5})
    advice = "give more minutes, a smaller --augmentation.size or another --encoder"
    assert messages.few_steps(replace(config, epochs=0.01), 100) == [f"only 1 step fits into 0.5 min: {advice}"]
    assert messages.few_steps(replace(config, epochs=1.9), 10) == [f"only 19 steps fit into 0.5 min: {advice}"]
    assert messages.few_steps(replace(config, epochs=2), 10) == []
    assert messages.few_steps(resolve({}, {"data.name": "scenes", "epochs": 1}), 10) == []


def test_a_pattern_of_labels_tells_the_classes_that_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pictures(tmp_path / "data", 24)  # 0.png to 23.png
    assert pretrain(tmp_path / "run", data=data, data__labels="^([0-2])", max_steps=1) == 0
    said = capsys.readouterr().out
    assert "\n3 classes by --data.labels: 0 1, 1 11, 2 5; 7 images without a class\n" in said
    assert ", 1 step\n" in said


def test_views_of_photos_are_explained_and_few_photos_pointed_to_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pictures(tmp_path / "data", 24)
    assert pretrain(tmp_path / "run", data=data, method="cmc", max_steps=1) == 0
    said = capsys.readouterr().out
    assert (
        "\nviews L and ab: lightness and colour of the same picture, with an encoder each (--views names others)\n"
        in said
    )
    assert "\nunder 2,000 images: try weights that exist first (docs/own-photos.md)\n" in said
