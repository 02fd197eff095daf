"""The protocols by name, and `evaluate`, which runs some of them with their baselines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from manyview import __version__
from manyview.config.keys import Key, keys_of
from manyview.config.values import typed
from manyview.core.atomic import check_writable
from manyview.core.errors import UserError
from manyview.core.names import hint
from manyview.embeddings.model_source import ModelSource, What
from manyview.encoders.encoder import Stem
from manyview.evaluate.fewshot import fewshot
from manyview.evaluate.finetune import finetune
from manyview.evaluate.knn import nearest, sweep
from manyview.evaluate.layers import layers
from manyview.evaluate.linear import linear
from manyview.evaluate.logistic import linear_fast
from manyview.evaluate.mlp import mlp
from manyview.evaluate.results import Result, find, put
from manyview.evaluate.retrieval import retrieval
from manyview.evaluate.semi import semi
from manyview.evaluate.supervised import supervised as supervised_baseline
from manyview.evaluate.task import Data, Scores, Task, prepare
from manyview.features.feature_cache import FeatureCache

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
    "retrieval": retrieval,
}
"""name -> a function of a task, whose keyword arguments are the protocol's settings.

It refuses wrong settings when it is called, and looks at pictures when its scores are asked for.
"""

SUPERVISED = "supervised"  # the baseline's name among results
USUAL = ("knn", "linear-fast")
Settings = Mapping[str, Mapping[str, Any]]


def evaluate(
    what: What | ModelSource | Mapping[str, What | ModelSource],
    data: Data | None = None,
    protocols: Sequence[str] = USUAL,
    *,
    settings: Settings | None = None,
    size: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    stem: Stem = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    workers: int | None = None,
    batch_size: int = 256,
    out: str | os.PathLike[str] | None = None,
    untrained: bool = True,
    supervised: bool = False,
    again: bool = False,
    store: FeatureCache | None = None,
    bar: bool = False,
    say: Callable[[str], object] = lambda text: None,
) -> list[Result]:
    """Judges an encoder: the scores of each protocol, beside those of the same network untrained.

    what         a run, a file, an encoder or the name of one, as for `subject`, with its options `size` to `stem`
    data         as for `prepare`; of a run, without it, the run's own
    protocols    names of `PROTOCOLS`
    settings     of the protocols, by their names: {"knn": {"k": 200}}
    out          the folder of results.json; of a run, without it, the run's, else none is written. What is there
                 already is not computed again, unless `again`
    untrained    whether the untrained network is judged too
    supervised   whether the network trained with all labels is, which takes as long as training
    store        where features are kept; None: in memory alone
    bar, say     a progress bar, and what is told beside it

    >>> for result in evaluate("runs/demo", protocols=["knn"]):
    ...     print(result.protocol, result.score, result.untrained)
    """
    chosen = {name: settings_of(name, (settings or {}).get(name, {})) for name in known(protocols)}
    trained = settings_of(SUPERVISED, (settings or {}).get(SUPERVISED, {})) if supervised else None
    task = prepare(
        what, data, size=size, weights=weights, pretrained=pretrained, stem=stem, seed=seed, device=device,
        workers=workers, batch_size=batch_size, store=store, bar=bar,
    )  # fmt: skip
    task.check()
    run = task.subject.run
    place = Path(out) if out is not None else run.folder if run is not None else None
    judge = Judge(task, place, again, untrained and task.subject.trained, trained, say)
    for name, each in chosen.items():
        _asked(name, task, each)
    if trained is not None:
        _asked(SUPERVISED, task, trained)
    return judge.all(chosen)


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


def protocol(name: str) -> Protocol:
    """The function of that name, among them the supervised baseline."""
    return supervised_baseline if name == SUPERVISED else PROTOCOLS[name]


def schema(name: str) -> dict[str, Key]:
    """The settings that a protocol has: its keyword arguments."""
    return keys_of(name, protocol(name), hidden=("task",), part="protocol")


@dataclass(frozen=True, eq=False)
class Judge:
    """Runs protocols on a task, and writes down each score as soon as it is there.

    place       the folder of results.json, or None
    again       compute what is there already
    untrained   judge the untrained network too
    supervised  settings of the supervised baseline, None for none
    """

    task: Task
    place: Path | None
    again: bool
    untrained: bool
    supervised: dict[str, Any] | None
    say: Callable[[str], object]

    @cached_property
    def blank(self) -> Task | None:
        """The task for the untrained network, which looks at the pictures once for all protocols.

        None where it cannot be made again: the weights that a run began with may be gone.
        """
        try:
            return self.task.against(self.task.subject.untrained())
        except (ValueError, OSError) as error:
            self.say(f"no score of the untrained network: {error}")
            return None

    def all(self, protocols: Settings) -> list[Result]:
        found = [self.one(name, settings) for name, settings in protocols.items()]
        if self.supervised is None or self.blank is None:
            return found
        baseline = self.scored(self.blank, SUPERVISED, self.supervised)
        return [self.kept(replace(result, supervised=baseline.scores)) for result in found]

    def one(self, name: str, settings: Mapping[str, Any]) -> Result:
        result = self.scored(self.task, name, settings)
        if self.untrained and (result.untrained is None or self.again) and self.blank is not None:
            scores = _scores(name, self.blank, settings)
            result = self.kept(replace(result, untrained=scores), self.blank)
        self.task.release()
        return result

    def scored(self, task: Task, name: str, settings: Mapping[str, Any]) -> Result:
        """The result that is there, or a new one."""
        fresh = _blank(task, name, settings)
        there = find(self.place, fresh) if self.place is not None and not self.again else None
        if there is not None:
            self.say(f"{name}: computed on {there.when[:10]}, from {self.place}; --recompute computes it anew")
            return replace(there, data=fresh.data, subject=fresh.subject)  # they may have other names now
        if self.place is not None:
            check_writable("out", self.place, self.place)
        begun = time.monotonic()
        scores = _scores(name, task, settings)
        return self.kept(replace(fresh, scores=scores, seconds=round(time.monotonic() - begun, 2)), task)

    def kept(self, result: Result, task: Task | None = None) -> Result:
        """Writes a result down; what the task has left for a restart is then of no use."""
        if self.place is not None:
            put(self.place, result)
        if task is not None:
            task.forget()
        return result


def _scores(name: str, task: Task, settings: Mapping[str, Any]) -> dict[str, float]:
    return dict(_asked(name, task, settings))


def _asked(name: str, task: Task, settings: Mapping[str, Any]) -> Scores:
    """Scores that are computed when they are read; wrong settings are refused at once, by their full names."""
    try:
        return protocol(name)(task, **settings)
    except ValueError as error:
        if str(error).partition(":")[0] not in settings:
            raise
        raise UserError(None, f"{name}.{error}") from None


def _blank(task: Task, name: str, settings: Mapping[str, Any]) -> Result:
    """A result without scores: what they would depend on."""
    subject = task.subject
    data = {
        "name": task.data, "train": len(task.train), "test": len(task.test), "classes": len(task.classes),
        "aside": task.aside, "marks": task.marks, **({"why": task.why} if task.why else {}),
    }  # fmt: skip
    judged = {
        "name": subject.name, "encoder": ", ".join(each.name for each in subject.encoders.values()),
        "size": subject.size, "trained": subject.trained, "mark": subject.mark,
    }  # fmt: skip
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return Result(name, plain, {}, data, task.seed, judged, __version__, when)
