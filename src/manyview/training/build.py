"""From settings to what they name: images, views, encoder, method."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from manyview import encoders
from manyview.config.config import MACHINE, PARTS, Config, flat, part, resolve
from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data import NAMED, Dataset, Unreadable
from manyview.data.factory import SCENES
from manyview.data.holdout import divided, only_view
from manyview.methods import Method
from manyview.views import AUGMENTATIONS, Modality, ViewPipeline

OWN = "(own)"  # the name of a data set that a person made themselves
SMALL = 64  # up to this size, pictures are not blurred
SIZES = (32, 128)  # of views, where nobody says how large
LOOKED_AT = 16  # images whose size tells what the others are like


@dataclass(frozen=True, eq=False)
class Images:
    """What a run learns from, and what it is scored on; one raw view of each.

    channels     of a picture
    side         the usual length of its shorter side
    fingerprint  how many images are learnt from, and a check sum of which
    raw          all raw views that the data has; the first is learnt from
    aside        whether the images to score on were kept aside, and are no test split
    why          why the test split is not used, where there is one
    """

    train: Dataset
    test: Dataset | None
    channels: int
    side: int
    fingerprint: tuple[int, int]
    raw: tuple[str, ...]
    aside: bool = False
    why: str | None = None

    @property
    def view(self) -> str:
        return self.train.modalities[0]


def images(config: Config, own: Dataset | None = None) -> Images:
    """The data of a run. Of several raw views the first, the pictures."""
    options = {key: value for key, value in config.data.items() if key != "name"}
    if own is None and config.data["name"] == OWN:
        raise UserError("data", "the run was made on a data set of your own; give it: manyview.pretrain(data=...)")
    found = divided(config.data["name"] if own is None else own, **options)
    view = found.train.modalities[0]
    train = only_view(found.train, view)
    few = _looked_at(train)
    channels, side = _usual(few)
    test = None if found.test is None else only_view(found.test, view)
    mark = _fingerprint(train, few if own is not None else [])
    return Images(train, test, channels, side, mark, found.train.modalities, found.aside, found.why)


def settled(config: Config, found: Images) -> Config:
    """The settings with everything decided that depends on the data: size and kind of the views, the run's folder."""
    size = config.views["size"] or min(max(SIZES[0], 32 * round(found.side / 32)), SIZES[1])
    stack = config.views["stack"]
    if stack == "auto":
        stack = "custom" if size <= SMALL else "moco-v2"
    views, data = {**config.views, "stack": stack, "size": size}, _absolute(config.data)
    encoder = {**config.encoder}
    if isinstance(encoder["pretrained"], str):
        encoder["pretrained"] = os.path.abspath(encoder["pretrained"])
    config = resolve(flat(vars(replace(config, views=views, data=data, encoder=encoder))), {})
    if config.out and os.path.isabs(data["name"]) and os.path.realpath(config.out) == os.path.realpath(data["name"]):
        raise UserError("out", f"{config.out} is the folder of the images; give another, which is made")
    return config if config.out else replace(config, out=str(Path("runs") / _name(config, found)))


def check(config: Config) -> None:
    """What can be refused before anyone waits for the data."""
    device(config)
    try:
        encoders.known(config.encoder["name"])
    except ValueError as error:
        raise UserError(None, f"encoder.{error}") from None


def device(config: Config) -> str:
    """cpu or cuda, as there is."""
    found = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if found == "cuda" and not torch.cuda.is_available():
        raise UserError("device", "cuda was asked for and there is none here; leave it out, or give cpu")
    if config.precision == "fp16" and found == "cpu":
        raise UserError("precision", "fp16 needs a GPU; on a CPU give fp32 or bf16")
    return found


def stack(config: Config, looks: int) -> ViewPipeline:
    """What training sees: as many looks at an image as the method wants."""
    made: ViewPipeline = part(config, "views")(config.views["size"], looks)
    return made


def picture(config: Config) -> Modality:
    """How training normalises a picture."""
    return stack(config, 2).picture


def plain_stack(config: Config) -> ViewPipeline:
    """What evaluation sees: the middle of the picture, with training's normalisation."""
    return ViewPipeline(AUGMENTATIONS["probe-test"](config.views["size"]).augmentations, picture=picture(config))


def encoder(config: Config, channels: int, *, begun: bool = False) -> encoders.Encoder:
    """begun: its weights come from a checkpoint, and not from wherever the run first had them."""
    options: dict[str, Any] = {**config.encoder, **({"pretrained": False} if begun else {})}
    more, name = options.pop("options"), options.pop("name")
    try:
        return encoders.create(name, channels=channels, size=config.views["size"], **options, **more)
    except ValueError as error:  # begins with the name of the argument
        section = "views" if str(error).startswith("size:") else "encoder"
        raise UserError(None, f"{section}.{error}") from None


def method(config: Config, channels: int, *, begun: bool = False) -> Method:
    """The method with its parts, drawn from the run's seed."""
    torch.manual_seed(config.seed)
    parts = {name: part(config, name) for name in PARTS}
    made: Method = part(config, "method")(encoder(config, channels, begun=begun), **parts)
    return made


def _looked_at(dataset: Dataset) -> list[Sample]:
    """A few images spread over the data."""
    found = []
    for row in range(0, len(dataset), max(1, len(dataset) // LOOKED_AT)):
        try:
            found.append(dataset[row])
        except Unreadable:
            continue
    if not any(sample.modalities for sample in found):
        raise UserError("data", f"of {len(dataset)} images none that was looked at can be read; try `manyview check`")
    return [sample for sample in found if sample.modalities]


def _usual(few: list[Sample]) -> tuple[int, int]:
    """Channels and usual shorter side."""
    shapes = [next(iter(sample.modalities.values())).shape for sample in few]
    sides = sorted(min(shape[1:]) for shape in shapes)
    return max(shape[0] for shape in shapes), sides[len(sides) // 2]


def _fingerprint(dataset: Dataset, few: list[Sample]) -> tuple[int, int]:
    """By the ids, and by the pixels of a few, where ids may be mere numbers."""
    total = zlib.crc32(dataset.ids.numpy().tobytes())
    for sample in few:
        for view in sample.modalities.values():
            total = zlib.crc32(view.contiguous().numpy().tobytes(), total)
    return len(dataset), total


def _absolute(data: dict[str, Any]) -> dict[str, Any]:
    """With folders that are the same from everywhere, however they were typed."""
    found = dict(data)
    if data["name"] not in (OWN, SCENES, *NAMED):
        found["name"] = os.path.abspath(data["name"])
    if data.get("root"):
        found["root"] = os.path.abspath(os.path.expanduser(data["root"]))
    return found


def _name(config: Config, found: Images) -> str:
    """The same settings and data give the same folder, so that the same command goes on with the same run."""
    settings = {key: value for key, value in flat(vars(config)).items() if key not in MACHINE}
    own = config.data["name"] == OWN
    settings["data.name"] = found.fingerprint if own else config.data["name"]
    digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()[:6]
    data = "own" if own else Path(config.data["name"]).name
    return f"{config.method['name']}-{data or 'data'}-{digest}"
