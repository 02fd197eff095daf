"""The settings of a run, and the parts that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal

from manyview.config.keys import Flat
from manyview.config.sections import flat, section_of
from manyview.core.bounds import Above, AtLeast, Between, Count, NotNegative
from manyview.core.errors import UserError
from manyview.methods import METHODS

Precision = Literal["fp32", "bf16", "fp16", "fp64"]
RUNTIME_KEYS = (
    "out", "device", "workers", "loggers", "quiet", "report", "data.name", "data.root", "data.download",
    "checkpoint_minutes", "checkpoint_steps", "snapshots", "max_unreadable",
)  # fmt: skip
"""Settings that say where and how a run runs, not what it computes: a resumed run may change them."""


@dataclass(frozen=True)
class Config:
    """All settings of a run. The sections hold their part's name and its arguments.

    views               the views that the method sees, by name; by default what the method takes
    out                 the run's folder; None: runs/ and a name made of method, data and settings
    epochs, max_steps   how long; the schedule spans the epochs (2.5 is allowed), and max_steps only ends a run early
    batch_size          images a step, of all processes together
    micro_batch         images that a process embeds at a time; the gradient stays that of the whole batch
    precision           fp32; bf16 or fp16: mixed; fp64 for checks
    grad_clip           gradients are scaled down to this length, if longer
    snapshots           epochs after which a checkpoint is kept for ever
    checkpoint_minutes  a checkpoint after so many minutes, besides one an epoch
    checkpoint_steps    and after so many steps
    health_every        steps between two reports on the run's health
    evaluators          what scores the encoder during training, where labels exist: knn, or [] for nothing
    evaluate_every      epochs between two scores; 0 for none
    knn_bank            at most so many training images are the neighbours of kNN,
    knn_queries         and so many held-out images are scored
    max_unreadable      the share of unreadable images that is too much
    report              whether a page about the run is written at its end
    """

    data: dict[str, Any]
    augmentation: dict[str, Any]
    encoder: dict[str, Any]
    method: dict[str, Any]
    parts: dict[str, dict[str, Any] | None]
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    views: tuple[str, ...] | None = None
    out: str | None = None
    epochs: Annotated[int | float, Above(0)] = 100
    max_steps: Annotated[int | None, AtLeast(1)] = None
    batch_size: Annotated[int, AtLeast(2)] = 64  # with one image there is nothing to contrast it with
    micro_batch: Annotated[int | None, AtLeast(1)] = None
    seed: Annotated[int, Between(0, (1 << 63) - 1)] = 0
    precision: Precision = "fp32"
    grad_clip: Annotated[float | None, Above(0)] = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    workers: Annotated[int | None, AtLeast(0)] = None
    max_unreadable: Annotated[float, Between(0, 1, "a share")] = 0.05
    snapshots: Annotated[tuple[int, ...], AtLeast(1)] = ()
    checkpoint_minutes: NotNegative = 5.0
    checkpoint_steps: Annotated[int | None, AtLeast(1)] = None
    health_every: Count = 20
    evaluators: tuple[str, ...] = ("knn",)
    evaluate_every: Annotated[int, AtLeast(0)] = 1
    knn_bank: Count = 5000
    knn_queries: Count = 1000
    loggers: tuple[str, ...] = ("tensorboard",)
    report: bool = True
    quiet: bool = False

    def nested(self) -> dict[str, Any]:
        """The settings as a recipe has them: the method's parts beside the other sections."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            found |= value if each.name == "parts" else {each.name: value}
        return found

    def flat(self) -> Flat:
        """The settings by their keys, such as `loss.temperature`."""
        return flat(self.nested(), self.parts)


class Component(partial[Any]):
    """A function with the arguments that a section has for it; what it refuses of them, it refuses by their keys."""

    section: str

    def __call__(self, /, *positional: Any, **arguments: Any) -> Any:
        try:
            return super().__call__(*positional, **arguments)
        except UserError as error:
            raise error.within(self.section) from None


def component(config: Config, section: str) -> Component:
    """What a section names, with its arguments."""
    given = config.parts.get(section) or getattr(config, section)
    about = section_of(section, METHODS[config.method["name"]])
    arguments = {key: value for key, value in given.items() if key != "name" and key not in about.more}
    made = Component(about.table[given["name"]], **arguments)
    made.section = section
    return made


def components(config: Config) -> dict[str, Component | None]:
    """The parts of the method; None for one that the run is to do without."""
    return {name: None if part is None else component(config, name) for name, part in config.parts.items()}


def differences(old: Config, new: Config) -> list[str]:
    """The settings that make two runs other runs, `key: old -> new`."""
    before, after = ({key: plain(value) for key, value in config.flat().items()} for config in (old, new))
    keys = [key for key in {**before, **after} if key not in RUNTIME_KEYS and before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys]


def plain(value: Any) -> Any:
    """A value as YAML can write it: lists instead of tuples."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
