"""The data of a run: its views, and the modalities that they are derived from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.methods import METHODS
from manyview.training import build, pipelines, run_data, settle
from manyview.views import View
from tests.config.small import flags
from tests.data.test_paired import put
from tests.methods.toys.run import Pairs
from tests.methods.toys.two_banks import two_banks

SCENES = {"data.name": "scenes"}


@pytest.mark.parametrize(
    ("method", "held_out"),
    [
        ("cmc", True),
        ("cmc_moco", True),
        ("prediction", False),
        ("cmc_patch", False),
        ("prediction --evaluators instance", True),
        ("prediction --evaluators instance --evaluate-every 0", False),
    ],
)
def test_unlabelled_images_are_held_out_where_they_can_be_scored_on(method: str, held_out: bool) -> None:
    pairs = Pairs(whole=True)
    pairs.labels = None
    scored = "" if "--evaluators" in method else "--evaluators knn,retrieval"
    found = run_data.open_data(flags(f"--method {method} --views image,depth {scored}"), pairs)
    assert (found.test is not None, found.held_out) == (held_out, held_out)
    assert (len(found.train) == len(Pairs(whole=True))) != held_out


def test_a_method_of_one_view_sees_the_first_modality_or_the_view_that_is_named() -> None:
    assert run_data.views_of(flags("--method simclr"), ("rgb", "depth")) == {"image": View("rgb")}
    assert run_data.views_of(flags("--method simclr --views depth"), ("rgb", "depth")) == {"image": View("depth")}
    lightness = run_data.views_of(flags("--method simclr --views L"), ("rgb", "depth"))
    assert lightness == {"image": View("rgb", channels=(0,), space="lab")}


def test_a_method_of_many_views_sees_all_modalities_or_the_views_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS, "two_banks", two_banks)
    both = run_data.views_of(flags("--method two_banks"), ("rgb", "depth"))
    assert both == {"rgb": View("rgb"), "depth": View("depth")}
    assert list(run_data.views_of(flags("--method two_banks --views ab,L"), ("rgb", "depth"))) == ["ab", "L"]
    assert list(run_data.views_of(flags("--method two_banks"), ("image",))) == ["L", "ab"]  # of photos
    mixed = run_data.views_of(flags("--method two_banks --views L,depth"), ("depth", "rgb"), "rgb")
    assert mixed == {"L": View("rgb", channels=(0,), space="lab"), "depth": View("depth")}


@pytest.mark.parametrize(
    ("chosen", "setting"),
    [("--method cmc --method.graph core --core", "core"), ("--method prediction --target", "target")],
)
def test_a_view_that_a_setting_names_is_looked_for_in_the_data(tmp_path: Path, chosen: str, setting: str) -> None:
    for number in range(4):
        for folder, kind in (("rgb", "rgb"), ("depth", "depth"), ("thermal", "grey")):
            put(tmp_path / folder / f"{number}.png", kind)
    there, mistyped = (flags(f"--data {tmp_path} {chosen} {name}") for name in ("depth", "dept"))
    build.check(there)
    assert tuple(run_data.open_data(there).views) == ("rgb", "depth", "thermal")
    build.check(mistyped)  # the data may have it
    with pytest.raises(UserError, match=f"^method.{setting}: there is no view 'dept'; did you mean 'depth'") as error:
        run_data.open_data(mistyped)
    with pytest.raises(UserError, match=f"^{re.escape(str(error.value))}"):
        build.check(flags(f"--data {tmp_path} {chosen} dept --views rgb,depth"))


def test_what_the_data_has_on_request_is_taken_where_a_view_names_it(tmp_path: Path) -> None:
    for number in range(4):
        for folder, kind in (("rgb", "rgb"), ("depth", "depth"), ("masks", "grey")):
            put(tmp_path / folder / f"{number}.png", kind)
    config = flags(f"--data {tmp_path} --method cmc")
    assert tuple(run_data.open_data(config).views) == ("rgb", "depth")
    config = flags(f"--data {tmp_path} --method cmc --views rgb,masks")
    found = run_data.open_data(config)
    assert tuple(found.views) == found.train.modalities == ("rgb", "masks")
    assert settle.settled(config, found).data["modalities"] == ("rgb", "depth", "masks")  # so that a resumed run has it
    config = flags("--method cmc --views L,depth --data.count 40", SCENES)
    assert run_data.open_data(config).train.modalities == ("image", "depth")


def test_a_modality_that_few_samples_have_is_found(tmp_path: Path) -> None:
    for number in range(40):
        put(tmp_path / "rgb" / f"{number:02}.png")
    put(tmp_path / "depth" / "08.png", "depth")  # between those that are looked at first
    config = flags(f"--data {tmp_path} --method cmc")
    data = run_data.open_data(config)
    assert data.channels == {"rgb": 3, "depth": 1}
    assert data.statistics["depth"].mean == (1234.0,)
    given = pipelines.inputs(settle.settled(config, data), data)["depth"]
    assert (given.channels, given.dtype, given.modality.mean) == (1, "float32", (1234.0,))


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        ("L,ab", "views: simclr sees one view, got L, ab; give one of them"),
        (
            "thermal",
            "views: the data has no 'thermal'; it has rgb, depth; "
            "`manyview list views` has what is derived of pictures",
        ),
        ("CbCrr", "views: the data has no 'CbCrr'; it has rgb, depth; did you mean 'CbCr'?"),
        ("dept", "views: the data has no 'dept'; it has rgb, depth; did you mean 'depth'?"),
    ],
)
def test_views_that_the_method_or_the_data_cannot_have_are_refused(views: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(reason)}$"):
        run_data.views_of(flags(f"--method simclr --views {views}"), ("rgb", "depth"))


def test_a_modality_that_is_called_like_a_derived_view_is_refused() -> None:
    with pytest.raises(UserError, match="'R' is a view derived of pictures: give the modality 'R' another name"):
        run_data.views_of(flags("--method simclr"), ("R", "G"))


def test_the_data_of_a_run_keeps_only_the_modalities_of_its_views() -> None:
    config = flags("--method simclr --views depth --data.modalities image,depth --data.count 40", SCENES)
    found = run_data.open_data(config)
    assert found.train.modalities == ("depth",)
    assert found.test is not None
    assert found.test.modalities == ("depth",)
    assert (found.modalities, found.channels, found.side) == (("image", "depth"), {"image": 1}, 32)
    assert set(found.train[0].modalities) == {"depth"}
