"""The settings of a run as one frozen dataclass, and what makes two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from manyview.config.keys import Flat, flag_name
from manyview.config.sections import flat
from manyview.core.bounds import MOST, MOST_WORKERS, Above, AtLeast, AtMost, Between, Count, NotNegative

RUNTIME_KEYS = (
    "out", "device", "workers", "loggers", "quiet", "report", "data.name", "data.root", "data.download",
    "checkpoint_minutes", "checkpoint_steps", "snapshots", "max_unreadable", "grad_checkpoint",
    "wait_minutes",
)  # fmt: skip
"""Settings that say where and how a run runs, not what it computes: a resumed run may change them."""
MOST_MINUTES = 60 * 24 * 365
OWN = "(own)"  # the name of a data set that a person made themselves
MAY_CHANGE = ", ".join(f"--{flag_name(key)}" for key in RUNTIME_KEYS if key != "out")


@dataclass(frozen=True)
class Config:
    """All settings of a run. A section holds the name of its part and that part's arguments.

    views               the views that the method sees: modalities, or names of `manyview list views`; by default what
                        the method takes
    out                 the run's folder; None: runs/ and a name made of method, data and settings
    schedule            per: epoch holds the rate for an epoch; epochs count from first_epoch, 1 in MoCo's CIFAR-10
                        notebook, where the last one has the rate 0; keep_predictor holds the predictor's rate for ever
    minutes             how long, from the command to the report, instead of epochs; what is chosen for it, from a few
                        timed steps, is written into the run's settings
    epochs, max_steps   how long; the schedule spans the epochs (2.5 is allowed), and max_steps only ends a run early
    batch_size          images a step, of all processes together
    drop_last           an epoch leaves out a last batch that is not full; false: that is trained on too, unless it is a
                        single image, which has nothing to be contrasted with
    micro_batch         images that a process embeds at a time; the gradient stays that of the whole batch
    grad_checkpoint     blocks of the encoders compute their activations again for the gradient instead of keeping them:
                        less memory, more time, the same gradient
    precision           fp32; bf16 or fp16: mixed; fp64 for checks
    grad_clip           gradients are scaled down to this length, if longer
    snapshots           epochs after which a checkpoint is kept for ever
    checkpoint_minutes  a checkpoint after so many minutes, besides one an epoch
    checkpoint_steps    and after so many steps
    health_every        steps between two reports on the run's health
    evaluators          what scores during training: knn where labels exist, retrieval where a method contrasts several
                        views, else instance, which needs no labels; [] for nothing
    evaluate_every      epochs between two scores; 0 for none
    probe_every         epochs between two linear probes on frozen features, a multiple of evaluate_every; 0 for none
    knn_bank            at most so many training images are the neighbours of kNN, and train the probe,
    knn_queries         and so many held-out images are scored, by retrieval too
    validation_images   held-out images that the loss is asked about beside each score, in batches; None for all
    wait_minutes        how long processes wait for one another, while one of them downloads, scores or writes the page
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
    minutes: Annotated[float | None, Above(0), AtMost(MOST_MINUTES)] = None
    epochs: Annotated[int | float, Above(0), AtMost(MOST)] = 100
    max_steps: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
    batch_size: Annotated[int, AtLeast(2), AtMost(MOST)] = 64  # with one image there is nothing to contrast it with
    drop_last: bool = True
    micro_batch: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
    grad_checkpoint: bool = False
    seed: Annotated[int, Between(0, (1 << 63) - 1)] = 0
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    grad_clip: Annotated[float | None, Above(0)] = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    workers: Annotated[int | None, AtLeast(0), AtMost(MOST_WORKERS)] = None
    wait_minutes: Annotated[float, Above(0), AtMost(MOST_MINUTES)] = 60.0
    max_unreadable: Annotated[float, Between(0, 1, "a share")] = 0.05
    snapshots: Annotated[tuple[int, ...], AtLeast(1), AtMost(MOST)] = ()
    checkpoint_minutes: NotNegative = 5.0
    checkpoint_steps: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
    health_every: Count = 20
    evaluators: tuple[str, ...] = ("knn", "retrieval", "instance")
    evaluate_every: Annotated[int, AtLeast(0), AtMost(MOST)] = 1
    probe_every: Annotated[int, AtLeast(0), AtMost(MOST)] = 0
    knn_bank: Count = 5000
    knn_queries: Count = 1000
    validation_images: Annotated[int | None, AtLeast(2), AtMost(MOST)] = None
    loggers: tuple[str, ...] = ("tensorboard",)
    report: bool = True
    quiet: bool = False
    auto: tuple[str, ...] = ()  # in code alone: keys that are left to the data, the machine and the time

    def nested(self) -> dict[str, Any]:
        """Returns the settings as a recipe has them: the method's parts beside the other sections."""
        found: dict[str, Any] = {}
        for each in fields(self):
            if each.name == "auto":
                continue
            value = getattr(self, each.name)
            found |= value if each.name == "parts" else {each.name: value}
        return found

    def flat(self) -> Flat:
        """Returns the settings by their keys, such as `loss.temperature`."""
        return flat(self.nested(), self.parts)

    @property
    def data_options(self) -> dict[str, Any]:
        """The options that the data is opened and split with."""
        return {key: value for key, value in self.data.items() if key not in ("name", "statistics")}

    @property
    def own_data(self) -> bool:
        """Whether the data set is an object that the caller passed, which no setting can open again."""
        return bool(self.data["name"] == OWN)

    def fixed(self) -> Flat:
        """Returns the settings that cannot change once the run has begun."""
        return {key: value for key, value in self.flat().items() if key not in RUNTIME_KEYS}


def differences(old: Config | Flat, new: Config | Flat) -> list[str]:
    """Lists the settings that make two runs different, as `key: old -> new`."""
    before, after = (plain(each.fixed() if isinstance(each, Config) else each) for each in (old, new))
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys]


def plain(value: Any) -> Any:
    """Converts a value to what YAML can write: lists instead of tuples."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
