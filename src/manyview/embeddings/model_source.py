"""Who is judged: the encoder of a run, one of timm or torchvision by name, one from a file, or one per view."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyview import encoders
from manyview.core.errors import UserError
from manyview.data import Dataset, Unreadable
from manyview.data.dataset import Batched
from manyview.encoders import Encoder
from manyview.encoders.encoder import FAMILIES, Stem
from manyview.encoders.weights import normalisation
from manyview.training import build
from manyview.training.run import CONFIG, ENCODER, Run, load
from manyview.views import AUGMENTATIONS, PICTURE, Modality, ViewPipeline

REFERENCE = ""  # stands for the data's reference view, whatever that is called
ALL = "all"  # what the encoders of several views see together
USUAL = 224  # pixels, where a library does not say
LOOKED_AT = 16  # images that tell what the others are like

What = str | os.PathLike[str] | Run | Encoder


@dataclass(frozen=True, eq=False)
class ModelSource:
    """Encoders to be judged, and how they want to see pictures.

    name      what a person called it
    encoders  by the raw view that each looks at; `REFERENCE` for the data's first
    picture   the normalisation of a picture
    seed      of the weights that `untrained` draws
    run       whose encoder it is, if it is a run's
    trained   whether its weights come from anywhere but the seed
    sensors   the normalisation of views whose encoder wants another than `picture`
    each      with an encoder per view, the subjects that it was joined from, by view
    """

    name: str
    encoders: Mapping[str, Encoder]
    picture: Modality = PICTURE
    seed: int = 0
    run: Run | None = None
    trained: bool = True
    modalities: Mapping[str, Modality] = field(default_factory=dict)
    each: Mapping[str, ModelSource] = field(default_factory=dict)

    @property
    def encoder(self) -> Encoder:
        """The only one, or the first."""
        return next(iter(self.encoders.values()))

    @property
    def size(self) -> int:
        """Of the pictures that it looks at, in pixels."""
        size: int = self.encoder.options["size"]
        return size

    @cached_property
    def marks(self) -> dict[str, str]:
        """A check sum of each encoder: which network it is, and every weight of it."""
        return {view: weights_of(each) for view, each in self.encoders.items()}

    @property
    def mark(self) -> str:
        """A check sum of all that a score of it depends on: networks, weights, size and normalisation."""
        return digest([self.marks, repr(self.picture), repr(sorted(self.modalities.items()))])

    def stack(self, kind: str = "probe-test", *, view: str | None = None, **options: Any) -> ViewPipeline:
        """What it sees: "probe-test" is the middle of a picture, "probe-train" a crop and a flip.

        view: for data of this view alone.
        """
        modalities = {name: each for name, each in self.modalities.items() if view in (None, name)}
        return ViewPipeline(AUGMENTATIONS[kind](self.size, **options).augmentations, modalities, picture=self.picture)

    def untrained(self) -> ModelSource:
        """The same networks as they are before any training: those of a run as it began, those of a seed again.

        What a run began with need not be drawn: it may have been given weights. It is itself if it is untrained.
        """
        if not self.trained:
            return self
        each = {view: one.untrained() for view, one in self.each.items()}
        fresh = {view: one.encoder for view, one in each.items()} or self._drawn()
        return replace(self, name=f"{self.name}, untrained", encoders=fresh, run=None, trained=False, each=each)

    def _drawn(self) -> dict[str, Encoder]:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return {view: self._begun(each) for view, each in self.encoders.items()}

    def _begun(self, encoder: Encoder) -> Encoder:
        if self.run is not None:
            return build.encoder(self.run.config, encoder.options["channels"])
        return encoders.create(encoder.name, **encoder.options)


def subject(
    what: What | ModelSource | Mapping[str, What | ModelSource],
    *,
    size: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    stem: Stem = None,
    seed: int = 0,
    like: Dataset | None = None,
) -> ModelSource:
    """A run's folder, a file that `encoders.save` wrote, an encoder or the name of one; for an encoder per view a table
    of those by view, or "rgb=A,depth=B".

    size        of the pictures, for an encoder by name; without, that of its published weights, or of the data `like`
    weights     a safetensors file for it: a plain state dict of its library, or one of ours
    pretrained  take the library's published weights
    stem        "cifar" for ResNets that were trained so
    seed        of the weights, where neither is given
    like        the data that it will look at

    >>> subject("runs/demo"), subject("timm/resnet18", pretrained=True), subject({"rgb": "runs/a", "depth": "runs/b"})
    """
    given = Given(size, None if weights is None else Path(weights), pretrained, stem, seed, like)
    what = _divided(what)
    if isinstance(what, Mapping):
        return _joined({view: _one(each, view, given) for view, each in what.items()}, given)
    return _one(what, REFERENCE, given)


def check_named(what: What | ModelSource | Mapping[str, What | ModelSource]) -> None:
    """Refuses what is neither a run nor a file nor the name of an encoder; nothing is opened."""
    what = _divided(what)
    for each in what.values() if isinstance(what, Mapping) else [what]:
        if isinstance(each, str | os.PathLike) and run_of(each) is None and not Path(each).is_file():
            _check_name(os.fspath(each))


def run_of(what: object) -> Run | None:
    """The run that is meant, by its folder or by the encoder that it has written there; None for anything else."""
    if isinstance(what, ModelSource | Run):
        return what if isinstance(what, Run) else what.run
    if not isinstance(what, str | os.PathLike):
        return None
    path = Path(what)
    folder = path.parent if path.name == ENCODER else path
    return Run(folder) if (folder / CONFIG).is_file() else None


def a_few(data: Dataset) -> Iterator[dict[str, Tensor]]:
    """The raw views of some samples spread over the data, those that can be read."""
    rows = range(0, len(data), max(1, len(data) // LOOKED_AT))
    if isinstance(data, Batched):
        together = data.batch(torch.tensor(rows))
        yield from ({name: view[row] for name, view in together.items()} for row in range(len(rows)))
        return
    for row in rows:
        with suppress(Unreadable):
            yield data[row].modalities


def digest(content: Any) -> str:
    """32 hexadecimal figures that stand for something that JSON can hold."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def weights_of(encoder: Encoder) -> str:
    """A check sum of the network's name and options, and of every weight."""
    recipe = json.dumps([encoder.name, encoder.options], sort_keys=True, default=repr)  # as a file would have it
    total = hashlib.blake2b(recipe.encode(), digest_size=16)
    for name, value in sorted(encoder.network.state_dict().items()):
        plain = value.detach().cpu().contiguous()
        total.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        total.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


class Given(NamedTuple):
    """The arguments of `subject`."""

    size: int | None
    weights: Path | None
    pretrained: bool
    stem: Stem
    seed: int
    like: Dataset | None


class Habits(NamedTuple):
    """What the published weights of a network want of a picture.

    bound  the network is made for one size
    """

    picture: Modality = PICTURE
    size: int = USUAL
    bound: bool = False


def _one(what: What | ModelSource, view: str, given: Given) -> ModelSource:
    if isinstance(what, ModelSource):
        return what
    if isinstance(what, Encoder):
        return ModelSource(what.name, {view: what}, _picture(what), given.seed)
    run = run_of(what)
    if run is not None:
        return _of_run(run, view, given)
    assert not isinstance(what, Run)
    if Path(what).is_file():
        return _of_file(Path(what), view, given)
    return _of_name(os.fspath(what), view, given)


def _of_run(run: Run, view: str, given: Given) -> ModelSource:
    config, encoder = run.config, load(run)
    _refuse(given, encoder, f"{run.folder} is a run")
    return ModelSource(str(run.folder), {view: encoder}, build.picture(config), config.seed, run)


def _of_file(path: Path, view: str, given: Given) -> ModelSource:
    try:
        encoder = encoders.load(path)
    except ValueError as error:
        if "which network it is for" not in str(error):
            raise
        raise UserError(
            None, f"{path}: does not say which network it is for; give that, and --weights {path}"
        ) from None
    _refuse(given, encoder, f"{path} is a file that knows its network")
    return ModelSource(str(path), {view: encoder}, _picture(encoder), given.seed)


def _of_name(name: str, view: str, given: Given) -> ModelSource:
    _check_name(name)
    if given.pretrained and given.weights is not None:
        raise UserError("weights", f"give {given.weights} or --pretrained, not both")
    habits, (channels, side) = _habits(name), _form(given.like, view)
    size = _size(habits, side, given) if given.size is None else given.size
    start = given.weights or given.pretrained
    with torch.random.fork_rng():
        torch.manual_seed(given.seed)
        made = encoders.create(name, channels=channels, size=size, stem=given.stem, pretrained=start)
    return ModelSource(name, {view: made}, _picture(made), given.seed, trained=bool(start))


def _joined(each: Mapping[str, ModelSource], given: Given) -> ModelSource:
    """An encoder per view as one subject."""
    if not each or any(not view or view == ALL for view in each):
        raise UserError("encoders", f"expected names of views, other than {ALL!r}, got {', '.join(each) or 'none'}")
    if given.weights is not None:
        raise UserError("weights", "one file cannot be for several encoders; write each with manyview.encoders.save")
    sizes = {view: one.size for view, one in each.items()}
    if len(set(sizes.values())) > 1:
        raise UserError("size", f"the encoders look at pictures of different sizes, {sizes}; all must be alike")
    first = next(iter(each.values()))
    coloured = [view for view, one in each.items() if one.encoder.options["channels"] == 3]
    return ModelSource(
        ",".join(f"{view}={one.name}" for view, one in each.items()),
        {view: one.encoder for view, one in each.items()},
        first.picture,
        first.seed,
        trained=any(one.trained for one in each.values()),
        modalities={view: each[view].picture for view in coloured if each[view].picture != first.picture},
        each=each,
    )


def _divided(
    what: What | ModelSource | Mapping[str, What | ModelSource],
) -> What | ModelSource | Mapping[str, What | ModelSource]:
    return _per_view(what) if isinstance(what, str) and "=" in what and not os.path.exists(what) else what


def _per_view(text: str) -> dict[str, str]:
    """rgb=A,depth=B"""
    parts = [part.partition("=") for part in text.split(",")]
    if any(not (view and equals and name) for view, equals, name in parts):
        raise UserError("encoders", f"expected VIEW=ENCODER,VIEW=ENCODER, got {text!r}")
    return {view.strip(): name.strip() for view, _, name in parts}


def _refuse(given: Given, encoder: Encoder, why: str) -> None:
    """Options that are for encoders by name alone."""
    size = encoder.options["size"]
    if given.size not in (None, size):
        raise UserError("size", f"{why}, whose encoder looks at {size} px; leave out the size {given.size}")
    for option in ("weights", "pretrained", "stem"):
        if getattr(given, option):
            raise UserError(None, f"{option}: {why}, which has its weights; leave it out, or name a network")


def _check_name(name: str) -> None:
    if os.path.isdir(name):
        raise UserError("run", f"{name} is no run's folder, it has no {CONFIG}")
    try:
        encoders.check_name(name)
    except ValueError as error:
        looks_like_path = os.path.dirname(name) and name.partition("/")[0] not in FAMILIES
        near = "" if name.endswith(".safetensors") or looks_like_path else str(error).rpartition("; ")[2]
        missing = f"encoder: there is no run, file or encoder named {name!r}"
        raise UserError(None, f"{missing}; {near or 'give the folder of a run that is there'}") from None


def _picture(encoder: Encoder) -> Modality:
    """The normalisation that it was trained with, where that is known, or else its library's."""
    known = normalisation(encoder)
    return _habits(encoder.name).picture if known is None else Modality(*known, colour=True)


def _habits(name: str) -> Habits:
    family, _, model = name.partition("/")
    if family == "timm":
        import timm

        told = timm.get_pretrained_cfg(model)
        if told is None:
            return Habits()
        return Habits(Modality(tuple(told.mean), tuple(told.std), True), told.input_size[-1], told.fixed_input_size)
    if family == "torchvision":
        import torchvision.models as zoo

        preset = zoo.get_model_weights(model).DEFAULT.transforms()
        return Habits(Modality(tuple(preset.mean), tuple(preset.std), True), preset.crop_size[0], model[:4] == "vit_")
    return Habits()


def _size(habits: Habits, side: int | None, given: Given) -> int:
    """The usual one for weights that were learnt at it, and for want of data; else the data's, as a run would have it,
    though weights of a file may have been learnt at more than runs take by default."""
    started = given.pretrained or given.weights is not None
    if side is None or given.pretrained or (started and habits.bound):
        return habits.size
    least, most = build.SIZES
    return min(max(least, 32 * round(side / 32)), habits.size if started else most)


def _form(data: Dataset | None, view: str) -> tuple[int, int | None]:
    """Channels and usual shorter side of the pictures of a view."""
    if data is None:
        return 3, None
    name = view or data.modalities[0]
    if name not in data.modalities:
        only = "only the view" if len(data.modalities) == 1 else "the views"
        raise UserError("data", f"there is no view {name!r} in it; it has {only} {', '.join(data.modalities)}")
    shapes = [views[name].shape for views in a_few(data) if name in views]
    if not shapes:
        raise UserError("data", f"no image of view {name!r} that was looked at can be read; try `manyview check`")
    sides = sorted(min(shape[1:]) for shape in shapes)
    return max(shape[0] for shape in shapes), sides[len(sides) // 2]
