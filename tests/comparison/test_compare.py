"""What a comparison says before and after its runs, which here take no time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from manyview.cli import main as cli
from manyview.comparison import compare as module
from manyview.comparison.outcome import OUTCOME, Outcome, read
from manyview.comparison.plan import PlannedRun
from manyview.config.recipes import to_yaml
from manyview.features.feature_cache import FeatureCache
from manyview.training.run import CONFIG, METRICS
from tests.tiny import noise

IMAGES = 49  # training images, in `noise`
Compare = Callable[..., Outcome]


def trained(runs: Sequence[PlannedRun], jobs: int, say: Callable[[str], None]) -> list[PlannedRun]:
    """Stands in for `run_all`: leaves what runs of two epochs leave."""
    for run in runs:
        steps = IMAGES // run.config.batch_size
        lines = [{"step": n * steps, "epoch": n, "seconds": float(n), "knn": 0.5 + n / 10} for n in range(3)]
        run.folder.mkdir(parents=True)
        (run.folder / CONFIG).write_text(to_yaml(run.config))
        (run.folder / METRICS).write_text("\n".join(map(json.dumps, lines)))
    return []


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def compare(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Compare:
    monkeypatch.setattr(module, "run_all", trained)
    monkeypatch.setattr("manyview.report.page.after_training", lambda *_, **__: None)
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))

    def compared(methods: Sequence[str], **given: Any) -> Outcome:
        usual = {"epochs": 2, "batch_size": 8, "seeds": 1, "out": tmp_path / "out", "say": said.append}
        return module.compare(noise(), methods, **{**usual, **given})

    return compared


def test_a_fair_comparison_warns_of_nothing(compare: Compare, said: list[str]) -> None:
    found = compare(["simclr", "cacr"])
    assert said[1:] == []
    assert found.caveat.startswith("Batches by the rule same: every method takes as many images a step")
    assert [each.batch_size for each in found.methods] == [8, 8]


def test_the_rule_of_the_batches_is_in_the_table_and_in_the_file(compare: Compare, tmp_path: Path) -> None:
    found = compare(["simclr", "cacr"], batch_rule="copies")  # batches of 8 and of 3 see 48 images an epoch
    words = "Batches by the rule copies: every method takes as many augmented copies a step: batch x 2 / copies."
    assert found.table().endswith(f"\n\n{words}")
    assert [found.cells(each)[:3] for each in found.methods] == [["8 x 2", "12", "96"], ["3 x 5", "32", "96"]]
    written = json.loads((tmp_path / "out" / OUTCOME).read_text())
    assert written["batch_rule"] == "copies"
    assert [each["batch_size"] * each["steps"] for each in written["methods"]] == [96, 96]
    assert [each["images_seen"] for each in written["methods"]] == [96, 96]


def test_a_rule_that_there_is_not_is_refused_before_any_training(compare: Compare, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_rule: there is none named 'views'"):
        compare(["simclr", "cacr"], batch_rule="views")
    assert not (tmp_path / "out").exists()


def test_a_method_with_an_encoder_a_view_is_compared_with_others(compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "cmc.yaml").write_text("method: {name: cmc, copies: 4}\n")
    (tmp_path / "simclr.yaml").write_text("method: simclr\n")
    recipe = str(tmp_path / "{method}.yaml")
    found = compare(["simclr", "cmc"], recipe=recipe, views=("image",), batch_rule="copies")
    assert [found.cells(each)[0] for each in found.methods] == ["8 x 2", "4 x 4"]


def test_a_method_with_one_view_sees_the_picture_of_which_another_sees_parts(compare: Compare, said: list[str]) -> None:
    given = {"views": ("L", "ab"), "augmentation": "custom"}
    found = compare(["cmc", "simclr"], **given)
    assert said[1:] == ["the methods differ also in: views (cmc ['L', 'ab'], simclr the picture)"]
    assert [run.config.views for run in found.runs()] == [("L", "ab"), None]
    assert [found.cells(each)[0] for each in found.methods] == ["8 x 2", "8 x 2"]


def test_other_augmentations_of_methods_with_other_views_are_refused_before_any_training(compare: Compare) -> None:
    with pytest.raises(ValueError, match=r"augmentation\.name: cmc has cmc, simclr has custom"):
        compare(["cmc", "simclr"], views=("L", "ab"))


def test_pairs_without_labels_are_compared_by_recall_across_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def trained(runs: Sequence[PlannedRun], jobs: int, say: Callable[[str], None]) -> list[PlannedRun]:
        for run in runs:
            run.folder.mkdir(parents=True)
            (run.folder / CONFIG).write_text(to_yaml(run.config))
            lines = [{"step": 2 * n, "epoch": n, "seconds": 1.0, "recall@1": n / 4} for n in range(3)]
            (run.folder / METRICS).write_text("\n".join(map(json.dumps, lines)))
        return []

    monkeypatch.setattr(module, "run_all", trained)
    monkeypatch.setattr("manyview.report.page.after_training", lambda *_, **__: None)
    for number in range(30):
        for name in ("rgb", "thermal"):
            path = tmp_path / "pairs" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (8 * number, 0, 0)).save(path)
    given: dict[str, Any] = {"epochs": 2, "batch_size": 8, "seeds": 1, "out": tmp_path / "out", "say": said.append}
    found = module.compare(tmp_path / "pairs", ["cmc", "cmc_moco"], views=("rgb", "thermal"), **given)
    assert found.measure == "recall@1 across views"
    assert found.titles[3] == "recall@1 across views"
    assert [found.cells(each)[3] for each in found.methods] == ["50.0", "50.0"]
    assert read(tmp_path / "out") == found
    with pytest.raises(ValueError, match="has no labels, or no kNN, and too few images or no score without labels"):
        module.compare(
            tmp_path / "pairs", ["simclr", "dcl"], **{**given, "out": tmp_path / "other", "evaluators": ("knn",)}
        )


def test_images_without_labels_are_compared_by_how_often_a_view_finds_its_own_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def trained(runs: Sequence[PlannedRun], jobs: int, say: Callable[[str], None]) -> list[PlannedRun]:
        for run in runs:
            run.folder.mkdir(parents=True)
            (run.folder / CONFIG).write_text(to_yaml(run.config))
            lines = [{"step": 2 * n, "epoch": n, "seconds": 1.0, "instance": n / 4} for n in range(3)]
            (run.folder / METRICS).write_text("\n".join(map(json.dumps, lines)))
        return []

    monkeypatch.setattr(module, "run_all", trained)
    monkeypatch.setattr("manyview.report.page.after_training", lambda *_, **__: None)
    (tmp_path / "photos").mkdir()
    for number in range(30):
        Image.new("RGB", (16, 16), (8 * number, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    given: dict[str, Any] = {"epochs": 2, "batch_size": 8, "seeds": 1, "out": tmp_path / "out", "say": said.append}
    found = module.compare(tmp_path / "photos", ["simclr", "dcl"], **given)
    assert found.measure == "own image first"
    assert found.queries == 3
    assert [found.cells(each)[3] for each in found.methods] == ["50.0", "50.0"]
    assert read(tmp_path / "out") == found


def test_settings_that_differ_by_recipe_are_said_once_and_kept(
    compare: Compare, said: list[str], tmp_path: Path
) -> None:
    for method, rate in (("dcl", 0.03), ("simclr", 0.06)):
        (tmp_path / f"{method}.yaml").write_text(f"optimizer: {{name: sgd, lr: {rate}}}\n")
    found = compare(["dcl", "simclr"], recipe=str(tmp_path / "{method}.yaml"), seeds=2)
    assert said[1:] == ["the methods differ also in: optimizer.lr (dcl 0.03, simclr 0.06)"]
    assert found.table().endswith(" The methods differ also in: optimizer.lr (dcl 0.03, simclr 0.06).")
    written = json.loads((tmp_path / "out" / OUTCOME).read_text())
    assert written["differing_settings"] == {"optimizer.lr": {"dcl": 0.03, "simclr": 0.06}}


def test_recipes_with_other_views_are_refused_before_any_training(compare: Compare, tmp_path: Path) -> None:
    for method, size in (("dcl", 24), ("simclr", 32)):
        (tmp_path / f"{method}.yaml").write_text(f"augmentation: {{size: {size}}}\n")
    refused = r"^augmentation.size: dcl has 24, simclr has 32; .* give --augmentation.size for all$"
    with pytest.raises(ValueError, match=refused):
        compare(["dcl", "simclr"], recipe=str(tmp_path / "{method}.yaml"))
    assert not (tmp_path / "out").exists()


def test_views_that_come_to_the_same_on_these_images_are_not_refused(compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "dcl.yaml").write_text("augmentation: {size: 32, name: custom}\n")
    (tmp_path / "simclr.yaml").write_text("augmentation: auto\n")
    assert compare(["dcl", "simclr"], recipe=str(tmp_path / "{method}.yaml")).differing == {}


def test_batches_that_leave_out_many_images_are_warned_of_and_the_table_has_the_images(
    compare: Compare, said: list[str]
) -> None:
    found = compare(["simclr", "cacr"], batch_size=20, batch_rule="copies")
    _, warning = said
    assert "of 49 images an epoch has simclr 40, cacr 48" in warning
    assert "--drop-last false makes them alike" in warning
    assert [found.cells(each)[2] for each in found.methods] == ["80", "96"]
    assert found.titles[2] == "images seen"


def test_a_protocol_that_there_is_not_is_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "run_all", lambda *given: pytest.fail("it has trained"))
    words = ["--data", str(noise()), "--methods", "simclr,dcl", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert cli.main(["compare", *words, "--protocols", "lineer"]) == 2
    assert "there is none named 'lineer'; did you mean 'linear'?" in capsys.readouterr().err


def test_an_evaluation_that_fails_costs_that_score_alone(
    compare: Compare, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(folder: Path, data: None, protocols: list[str], **given: Any) -> list[SimpleNamespace]:
        assert isinstance(given["cache"], FeatureCache)  # so that what is interrupted goes on
        if (folder.name, protocols) == ("dcl-1", ["linear"]):
            raise ValueError("data: has one class only;\njudging needs two or more")
        return [SimpleNamespace(scores={"top1": 0.7, "top5": 0.9})]

    monkeypatch.setattr(module, "evaluate", evaluate)
    found = compare(["simclr", "dcl"], seeds=2, protocols=["linear", "mlp"])
    assert said[1:] == ["dcl, seed 1: linear is left out: data: has one class only; judging needs two or more"]
    assert [list(each.scores) for each in found.methods] == [["kNN", "linear", "mlp"], ["kNN", "mlp"]]
    assert found.scores == ["kNN", "mlp"]
    assert found.failed == ()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"batch_size": 500}, "batch_size: 500 images a step of simclr are more than the 49 training images"),
        ({"encoder": "timm/resnet5000"}, "encoder.name: there is no encoder 'timm/resnet5000'"),
        (
            {"encoder": "torchvision/alexnet", "augmentation.size": 8},
            "augmentation.size: torchvision/alexnet cannot take 8 x 8",
        ),
        ({"precision": "fp16", "device": "cpu"}, "precision: fp16 needs a GPU"),
        ({"minutes": float("inf"), "epochs": None}, "minutes: expected a time above 0, of a year at most, got inf"),
        ({"minutes": 1e20, "epochs": None}, "minutes: expected a time above 0, of a year at most, got 1e+20"),
        ({"seeds": 10**20}, "seeds: expected 1,000 at most, got 100000000000000000000"),
        ({"jobs": 10**20}, "jobs: expected 1 to 1024, got 100000000000000000000"),
        ({"minutes": 1.0}, "minutes: 1 and epochs 2 are both given"),
    ],
    ids=str,
)
def test_what_every_run_would_be_refused_for_is_refused_before_any_training(
    given: dict[str, Any], reason: str, compare: Compare, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        compare(["simclr", "dcl"], **given)
    assert not (tmp_path / "out").exists()


def listed(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_folder_that_is_not_empty_and_no_comparisons_is_refused_and_left_as_it_is(
    compare: Compare, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^out: .*out is no comparison's folder: it holds notes.txt, and no plan"):
        compare(["simclr"])
    assert listed(tmp_path / "out") == {"notes.txt": "mine"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "images is missing"),
        ("[]", "it: expected a table, got a list"),
        ('{"images": "all"}', "images: expected a list, got 'all'"),
        ('{"images": [1], "minutes": "two"}', "minutes: expected a finite number, got 'two'"),
        ('{"images": [1], "epochs": {"dcl": 3}}', r"epochs\['dcl'\]: expected a table, got 3"),
        ('{"images": [1], "epochs": {"dcl": {"epochs": NaN, "of": ""}}}', "epochs: expected a finite number, got nan"),
        ("[" * 100_000, "it nests too deep"),
        ("\0", "Expecting value"),
    ],
)
def test_a_plan_that_is_none_is_one_line_and_left_as_it_is(
    compare: Compare, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(text)
    with pytest.raises(ValueError, match=rf"plan.json is damaged \({why}.*; give another --out$"):
        compare(["simclr"])
    assert listed(tmp_path / "out") == {"plan.json": text}


def test_what_a_killed_comparison_leaves_is_no_reason_to_refuse_its_folder(compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lock").write_text("123 host")
    (tmp_path / "out" / ".plan.json.123.part").write_text("{")
    assert compare(["simclr"]).failed == ()


def test_a_run_whose_metrics_are_damaged_is_left_out_and_named(
    compare: Compare, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(runs: Sequence[PlannedRun], jobs: int, say: Callable[[str], None]) -> list[PlannedRun]:
        trained(runs, jobs, say)
        (runs[0].folder / METRICS).write_text('{"step": "one", "knn": 0.5}\n[[[\n{"step": 2, "knn": "high"}')
        return []

    monkeypatch.setattr(module, "run_all", damaged)
    found = compare(["simclr", "dcl"])
    assert found.failed == ("simclr, seed 0",)
    assert [each.method for each in found.methods] == ["dcl"]
    assert said[1:] == [
        f"simclr, seed 0 is left out: {tmp_path}/out/simclr-0/metrics.jsonl holds no score; "
        f"remove {tmp_path}/out/simclr-0 to train it again"
    ]


def test_a_method_that_there_is_not_comes_with_the_nearest(compare: Compare) -> None:
    with pytest.raises(ValueError, match="there is no method 'simclrr'; did you mean 'simclr'"):
        compare(["dcl", "simclrr"])
