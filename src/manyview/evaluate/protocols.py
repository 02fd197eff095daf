"""The protocols by name, and `evaluate`, which runs some of them with their baselines."""

from __future__ import annotations

import os
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from manyview.config.keys import Key, keys_of, typed
from manyview.core.atomic import check_writable
from manyview.core.errors import UserError, hint
from manyview.core.text import printable
from manyview.data.factory import has_classes
from manyview.embeddings.open_model import AnyModel
from manyview.evaluate.cross_view import cross_view
from manyview.evaluate.few_labels import fewshot, semi
from manyview.evaluate.finetune import finetune
from manyview.evaluate.finetune import supervised as supervised_baseline
from manyview.evaluate.linear_fast import layers, linear_fast
from manyview.evaluate.neighbours import nearest, retrieval, sweep
from manyview.evaluate.prepare import Data, prepare
from manyview.evaluate.probe import linear, mlp
from manyview.evaluate.results import Result, find, put, read, result_without_scores
from manyview.evaluate.shot_transfer import shot_transfer
from manyview.evaluate.task import Scores, Task
from manyview.features.embedding_pass import naming_lost_worker
from manyview.features.gain import gain_errors

Protocol = Callable[..., Scores]
PROTOCOLS: dict[str, Protocol] = {
    "knn": nearest,
    "knn-sweep": sweep,
    "linear-fast": linear_fast,
    "linear": linear,
    "mlp": mlp,
    "layers": layers,
    "finetune": finetune,
    "semi": semi,
    "fewshot": fewshot,
    "shot-transfer": shot_transfer,
    "retrieval": retrieval,
    "cross-view": cross_view,
}
"""name -> a function of a task, whose keyword arguments are the protocol's settings.

It refuses wrong settings when it is called, and embeds pictures when its scores are asked for.
"""

SUPERVISED = "supervised"  # the baseline's name among results
FUNCTIONS: ChainMap[str, Protocol] = ChainMap(PROTOCOLS, {SUPERVISED: supervised_baseline})
USUAL, ACROSS = ("knn", "linear-fast"), ("cross-view",)  # with labels; of a run with several views
NO_LABELS: tuple[Protocol, ...] = (cross_view,)  # what needs none
SEVERAL_LABELS: tuple[Protocol, ...] = (shot_transfer,)  # what takes images that have several
Settings = Mapping[str, Mapping[str, Any]]


def evaluate(
    model: AnyModel,
    data: Data | None = None,
    protocols: Sequence[str] | None = None,
    *,
    settings: Settings | None = None,
    out: str | os.PathLike[str] | None = None,
    untrained: bool = True,
    supervised: bool = False,
    recompute: bool = False,
    say: Callable[[str], object] = lambda text: None,
    done: Callable[[Result], object] = lambda result: None,
    **options: Any,
) -> list[Result]:
    """Evaluates an encoder: the scores of each protocol, beside those of the same network untrained.

    model        a run, a file, an encoder or the name of one, as for `open_model`
    data         as for `prepare`; of a run, without it, the run's own
    protocols    names of `PROTOCOLS`; without, `USUAL` where there are labels, and `ACROSS` of a run with several views
    settings     of the protocols, by their names: {"knn": {"k": 200}}
    out          the folder of results.json; of a run, without it, the run's, else none is written. What is there
                 already is not computed again, unless `recompute`
    untrained    whether the untrained network is scored too
    supervised   whether the network trained with all labels is, which takes as long as training
    say          gets what is to be printed beside a progress bar
    done         gets each result as soon as the model's scores are there, before those of the untrained network are
    options      of `prepare`: seed, device, workers, batch_size, cache, show_bar, and which encoder is meant

    >>> for result in evaluate("runs/demo", protocols=["knn"]):
    ...     print(result.protocol, result.score, result.untrained)
    """
    asked = None if protocols is None else known(protocols)
    given = {name: settings_of(name, (settings or {}).get(name, {})) for name in asked or (*USUAL, *ACROSS)}
    trained = settings_of(SUPERVISED, (settings or {}).get(SUPERVISED, {})) if supervised else None
    task = prepare(model, data, **options)
    chosen = {name: given[name] for name in asked or usual_protocols(task)}
    if supervised or any(PROTOCOLS[name] not in NO_LABELS for name in chosen):
        task.check(several=not supervised and all(PROTOCOLS[name] in SEVERAL_LABELS for name in chosen))
    run = task.model.run
    folder = Path(out) if out is not None else run.folder if run is not None else None
    if folder is not None:
        read(folder)  # what cannot be added to is said before anything is computed
    for name, each in {**chosen, **({} if trained is None else {SUPERVISED: trained})}.items():
        _scores(name, task, each)  # which refuses wrong settings, and computes nothing yet
    with naming_lost_worker():
        return Evaluation(task, folder, recompute, untrained and task.model.trained, trained, say, done).run(chosen)


def usual_protocols(task: Task) -> tuple[str, ...]:
    """Gives what is of use where nobody says: classifiers where there are labels, retrieval across views where there
    are."""
    across = ACROSS if len(task.model.heads) > 1 else ()
    return (*(USUAL if has_classes(task.train) or not across else ()), *across)


def known(protocols: Iterable[str]) -> list[str]:
    """The names, each once; one line about one that there is not."""
    names = list(dict.fromkeys(protocols))
    if not "".join(names):
        raise UserError("protocols", f"none is named; there are {', '.join(PROTOCOLS)}")
    for name in names:
        if name == "transfer":
            raise UserError("protocols", "transfer is any other on other data than the run's: give --transfer-to DATA")
        if name not in PROTOCOLS:
            raise UserError("protocols", f"there is none named {name!r}; {hint(name, PROTOCOLS)}")
    return names


def settings_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a protocol, those given and the others by default; texts are read as flags are."""
    keys = schema(name)
    named = {f"{name}.{key.replace('-', '_')}": value for key, value in given.items()}
    return {key.rpartition(".")[2]: value for key, value in typed(keys, {}, named).items()}


def schema(name: str) -> dict[str, Key]:
    """The settings that a protocol has: its keyword arguments."""
    return keys_of(name, FUNCTIONS[name], hidden=("task",), part="protocol")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Runs protocols on a task, and writes down each score as soon as it is there.

    folder      of results.json, or None
    recompute   compute what is there already
    untrained   score the untrained network too
    supervised  settings of the supervised baseline, None for none
    """

    task: Task
    folder: Path | None
    recompute: bool
    untrained: bool
    supervised: dict[str, Any] | None
    say: Callable[[str], object]
    done: Callable[[Result], object]

    @cached_property
    def untrained_task(self) -> Task | None:
        """The task for the untrained network, which embeds the pictures once for all protocols.

        None where it cannot be made again: the weights that a run began with may be gone.
        """
        try:
            return self.task.for_model(self.task.model.untrained())
        except (ValueError, OSError) as error:
            self.say(f"no score of the untrained network: {error}")
            return None

    def run(self, protocols: Settings) -> list[Result]:
        found = [self._run_one(name, settings) for name, settings in protocols.items()]
        if self.supervised is None or self.untrained_task is None:
            return found
        baseline = self._score(self.untrained_task, SUPERVISED, self.supervised)
        return [self._keep(replace(result, supervised=baseline.scores)) for result in found]

    def _run_one(self, name: str, settings: Mapping[str, Any]) -> Result:
        result = self._score(self.task, name, settings)
        self.done(result)
        if self.untrained and (result.untrained is None or self.recompute) and self.untrained_task is not None:
            scores = dict(_scores(name, self.untrained_task, settings))
            errors = gain_errors(result.scores, scores)
            result = self._keep(replace(result, untrained=scores, errors=errors or None), self.untrained_task)
        self.task.release()
        return result

    def _score(self, task: Task, name: str, settings: Mapping[str, Any]) -> Result:
        """The result that is there, or a new one."""
        fresh = _without_scores(task, name, settings)
        there = find(self.folder, fresh) if self.folder is not None and not self.recompute else None
        if there is not None:
            where = printable(str(self.folder))
            self.say(f"{name}: computed on {there.when[:10]}, from {where}; --recompute computes it anew")
            return replace(there, data=fresh.data, model=fresh.model)  # they may have other names now
        if self.folder is not None:
            check_writable("out", self.folder, self.folder)
        begun = time.monotonic()
        scores = dict(_scores(name, task, settings))
        return self._keep(replace(fresh, scores=scores, seconds=round(time.monotonic() - begun, 2)), task)

    def _keep(self, result: Result, task: Task | None = None) -> Result:
        """Writes a result down; what the task has kept for a restart is then of no use."""
        if self.folder is not None:
            put(self.folder, result)
        while task is not None and task.checkpoints:
            with suppress(OSError):
                task.checkpoints.pop().unlink(missing_ok=True)
        return result


def _scores(name: str, task: Task, settings: Mapping[str, Any]) -> Scores:
    """Scores that are computed when they are read; wrong settings are refused at once, by their full names."""
    try:
        return FUNCTIONS[name](task, **settings)
    except UserError as error:
        raise (error.within(name) if error.setting in settings else error) from None


def _without_scores(task: Task, name: str, settings: Mapping[str, Any]) -> Result:
    """A result that says what its scores would depend on."""
    data = {
        "name": task.data, "train": len(task.train), "test": len(task.test), "classes": len(task.classes),
        "held_out": task.held_out, "fingerprints": {split: list(each) for split, each in task.fingerprints.items()},
        **({"why": task.why} if task.why else {}), **({"parts": counts} if (counts := task.counts) else {}),
        **({"imbalance": task.imbalance} if task.imbalance else {}),
    }  # fmt: skip
    return result_without_scores(name, settings, task.model, data, task.seed)
