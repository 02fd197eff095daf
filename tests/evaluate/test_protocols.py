"""`evaluate`: baselines beside the scores, nothing computed twice, every protocol for any encoder."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyview import __version__
from manyview.core.errors import UserError
from manyview.data import Loader
from manyview.evaluate import PROTOCOLS, FeatureCache, ModelSource, classifier, evaluate, prepare
from manyview.evaluate import protocols as table
from manyview.evaluate.protocols import NO_LABELS
from manyview.evaluate.results import read
from manyview.evaluate.task import Scores, Task
from tests.data.fakes import Memory
from tests.evaluate import runs
from tests.evaluate.pictures import depths, encoder, scenes, shades

DATA = (scenes(120, "train"), scenes(60, "test"))
EASY = (shades(120, 3, 1), shades(60, 3, 2))
QUICK: dict[str, dict[str, Any]] = {  # every protocol, as small as can be
    "knn": {"k": 5},
    "knn-sweep": {"ks": (1, 5)},
    "linear-fast": {"cs": (0.01, 0.1)},
    "linear": {"epochs": 1, "lr": 0.1},
    "mlp": {"epochs": 1, "lr": 0.1},
    "layers": {"cs": (0.01,), "dims": 32},
    "finetune": {"epochs": 1},
    "semi": {"fractions": (0.5,), "epochs": 1},
    "fewshot": {"shots": (1,), "draws": 2},
    "shot-transfer": {"shots": 2, "seeds": 1, "epochs": 10, "lrs": (0.03,)},
    "retrieval": {"ks": (1,)},
}


def test_scores_come_with_those_of_the_untrained_network_and_all_that_they_depend_on() -> None:
    (found,) = evaluate(encoder(), DATA, ["knn"], settings={"knn": {"k": 7}}, seed=3)
    (blank,) = evaluate(encoder(3).name, DATA, ["knn"], settings={"knn": {"k": 7}}, size=16, seed=3)
    assert found.settings == {"k": 7, "temperature": 0.1}
    assert found.untrained is not None
    assert found.untrained.keys() == found.scores.keys()
    assert found.untrained != found.scores
    assert (found.data["train"], found.data["test"], found.data["classes"]) == (120, 60, 10)
    assert (found.seed, found.version, found.model["encoder"]) == (3, __version__, "patchnet")
    assert blank.untrained is None  # it is that itself
    assert not blank.model["trained"]


def test_what_is_there_is_not_computed_again_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(task: Task, *, k: int = 3) -> Scores:
        calls.append(task.model.name)
        yield "top1", 0.5

    monkeypatch.setitem(PROTOCOLS, "knn", counted)
    said: list[str] = []
    for _ in range(2):
        evaluate(encoder(), DATA, ["knn"], out=tmp_path, say=said.append)
    assert calls == ["patchnet", "patchnet, untrained"]
    assert len(said) == 1
    assert said[0].startswith("knn: computed on ")
    evaluate(encoder(), DATA, ["knn"], out=tmp_path, recompute=True)
    assert len(calls) == 4
    evaluate(encoder(), DATA, ["knn"], out=tmp_path, settings={"knn": {"k": 4}})
    evaluate(encoder(1), DATA, ["knn"], out=tmp_path)
    evaluate(encoder(), (DATA[0], scenes(50, "test")), ["knn"], out=tmp_path)
    assert len(calls) == 10
    assert len(read(tmp_path)) == 4


def test_after_an_interruption_what_was_found_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = True

    def interrupted(task: Task) -> Scores:
        if stop and not task.model.trained:
            raise KeyboardInterrupt
        yield "top1", 0.5

    monkeypatch.setitem(PROTOCOLS, "retrieval", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(encoder(), DATA, ["knn", "retrieval"], out=tmp_path)
    there = read(tmp_path)
    assert [(each.protocol, each.untrained is None) for each in there] == [("knn", False), ("retrieval", True)]
    stop = False
    said: list[str] = []
    evaluate(encoder(), DATA, ["knn", "retrieval"], out=tmp_path, say=said.append)
    assert len(said) == 2  # the scores of both were there; only a baseline was missing
    assert read(tmp_path)[1].untrained == {"top1": 0.5}


def test_a_run_is_judged_on_its_own_data_and_its_folder_has_the_results(tmp_path: Path) -> None:
    run = runs.made(tmp_path / "run")
    results = evaluate(run, protocols=["knn"], settings={"knn": {"k": 5}})
    assert read(run.folder) == results
    assert results[0].data["held_out"]
    elsewhere = evaluate(run, {"name": "scenes", "count": 40, "size": 16}, ["knn"], out=tmp_path / "other")
    assert read(run.folder) == results
    assert read(tmp_path / "other") == elsewhere


def test_what_a_run_began_with_may_be_gone_and_its_score_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.made(tmp_path / "run")
    said: list[str] = []

    def gone(self: ModelSource) -> ModelSource:
        raise ValueError("encoder: no such file")

    monkeypatch.setattr(ModelSource, "untrained", gone)
    for _ in range(2):
        (found,) = evaluate(run, protocols=["knn"], settings={"knn": {"k": 5}}, supervised=True, say=said.append)
        assert (found.untrained, found.supervised) == (None, None)
    assert said[0] == "no score of the untrained network: encoder: no such file"
    assert read(run.folder) == [found]


def test_a_training_that_has_ended_is_kept_until_the_protocol_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "SECONDS", 0.0)
    learnt: list[int] = []
    test = classifier._test

    def counted(*given: Any) -> list[float]:
        learnt.append(1)
        if len(learnt) == 3:
            raise KeyboardInterrupt
        return test(*given)

    monkeypatch.setattr(classifier, "_test", counted)
    settings = {"semi": {"fractions": (0.5, 0.9), "epochs": 2}}

    def go() -> Any:
        return evaluate(encoder(), EASY, ["semi"], settings=settings, cache=FeatureCache(tmp_path), untrained=False)

    with pytest.raises(KeyboardInterrupt):
        go()
    go()
    assert len(learnt) == 3 + 2  # the first half was not learnt again
    assert not list(tmp_path.glob("*.probe"))


def test_the_supervised_baseline_is_computed_once_and_stands_beside_every_score(tmp_path: Path) -> None:
    settings = {"supervised": {"epochs": 1}, **QUICK}
    for _ in range(2):
        results = evaluate(
            encoder(), EASY, ["knn", "retrieval"], out=tmp_path, supervised=True, settings=settings, untrained=False
        )
        assert all(each.supervised and "top1" in each.supervised for each in results)
    assert sorted(each.protocol for each in read(tmp_path)) == ["knn", "retrieval", "supervised"]


@pytest.mark.parametrize("name", [name for name, each in PROTOCOLS.items() if each not in NO_LABELS])
def test_every_protocol_judges_an_encoder_and_one_per_view(name: str) -> None:
    (one,) = evaluate(encoder(), EASY, [name], settings=QUICK, untrained=False)
    assert one.score > 1 / 3 or name in ("finetune", "semi", "linear", "mlp")  # some learn for one epoch only
    assert 0 <= one.score <= 1
    if name in ("finetune", "semi"):
        return  # tested with their own files
    views = {"rgb": "patchnet", "depth": "patchnet"}
    (two,) = evaluate(views, (depths(40, "train"), depths(20, "test")), [name], size=16, settings=QUICK)
    assert {score.split()[0] for score in two.scores} >= {"rgb", "depth", "all"}


@pytest.mark.parametrize("name", [name for name, each in PROTOCOLS.items() if each not in NO_LABELS])
def test_every_protocol_refuses_data_that_it_cannot_use_in_one_line(name: str) -> None:
    train, test = DATA
    judged = prepare(encoder(), DATA)
    cases = [
        replace(judged, test=train),
        replace(judged, train=Memory(30, 3, labelled=False)),
        replace(judged, train=Memory(30, 1), test=test),
    ]
    for case in cases:
        with pytest.raises(ValueError, match=r"data: |learn") as refused:
            list(PROTOCOLS[name](case))
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocols_arguments_are_settings_with_defaults(name: str) -> None:
    settings = table.settings_of(name, {})
    parameters = inspect.signature(PROTOCOLS[name]).parameters
    assert set(settings) == set(parameters) - {"task"}
    assert (inspect.getdoc(PROTOCOLS[name]) or "").strip()


def test_features_are_computed_once_for_all_protocols(tmp_path: Path) -> None:
    network = encoder()
    seen: list[int] = []
    network.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    protocols = ["knn", "retrieval", "linear-fast"]
    evaluate(network, DATA, protocols, settings=QUICK, cache=FeatureCache(tmp_path), untrained=False)
    assert sum(seen) == 180


@pytest.mark.parametrize(
    ("settings", "protocols", "message"),
    [
        ({}, ["knm"], "protocols: there is none named 'knm'; did you mean 'knn'?"),
        ({}, [], "protocols: none is named"),
        (
            {},
            ["transfer"],
            "protocols: transfer is any other on other data than the run's: give --transfer-to DATA",
        ),
        ({"knn": {"kk": 3}}, ["knn"], "knn.kk: there is no such setting; "),
        ({"knn": {"k": "many"}}, ["knn"], "knn.k: expected a whole number, got 'many'"),
    ],
)
def test_what_is_not_there_is_named(settings: dict[str, Any], protocols: list[str], message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        evaluate(encoder(), DATA, protocols, settings=settings)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("knn", "k", 0),
        ("knn", "k", 121),
        ("knn", "temperature", 0.0),
        ("knn-sweep", "ks", (0,)),
        ("knn-sweep", "temperatures", ()),
        ("linear-fast", "steps", 0),
        ("linear-fast", "cs", ()),
        ("linear", "lr", -1.0),
        ("linear", "lr", float("nan")),
        ("linear", "epochs", 0),
        ("linear", "batch_size", 0),
        ("linear", "recipe", "no such"),
        ("linear", "layer", "no such"),
        ("mlp", "hidden", 0),
        ("layers", "dims", 0),
        ("semi", "epochs", 0),
        ("semi", "fractions", ()),
        ("semi", "fractions", (0.1, 1.5)),
        ("semi", "fractions", (0.0,)),
        ("semi", "mode", "knn"),
        ("fewshot", "shots", (0,)),
        ("fewshot", "draws", 0),
        ("retrieval", "ks", (0,)),
        ("supervised", "epochs", 0),
        ("knn", "k", 10**20),
        ("knn-sweep", "ks", (10**20,)),
        ("linear-fast", "steps", 10**20),
        ("linear", "epochs", 10**20),
        ("linear", "lr", float("inf")),
        ("mlp", "hidden", 10**20),
        ("layers", "dims", 10**20),
        ("finetune", "batch_size", 10**20),
        ("fewshot", "shots", (10**20,)),
        ("fewshot", "draws", 10**20),
        ("retrieval", "ks", (10**20,)),
    ],
)
def test_wrong_settings_of_any_protocol_are_refused_before_the_first_one_begins(
    name: str, key: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Task, "features", None)
    monkeypatch.setattr(Task, "loader", None)
    protocols = ["finetune", *({name} & set(PROTOCOLS))]
    with pytest.raises(ValueError, match=rf"^{name}\.{key}: expected ") as refused:
        evaluate(encoder(), DATA, protocols, settings={name: {key: value}}, supervised=name == "supervised")
    assert "\n" not in str(refused.value)


def test_the_untrained_network_looks_once_for_all_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ModelSource] = []
    real = ModelSource.untrained

    def counted(judged: ModelSource) -> ModelSource:
        made.append(real(judged))
        return made[-1]

    monkeypatch.setattr(ModelSource, "untrained", counted)
    evaluate(encoder(), DATA, ["knn", "retrieval"], settings={"knn": {"k": 5}, "retrieval": {"ks": (1,)}})
    assert len(made) == 1


def test_a_reader_of_images_that_is_killed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    monkeypatch.setattr(Loader, "epoch", killed)
    with pytest.raises(UserError, match=r"^workers: a process that reads images was killed, .*; try --workers 1$"):
        evaluate(encoder(), DATA, ["knn"])
