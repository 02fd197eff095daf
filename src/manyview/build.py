"""From settings to what they name: images, views, encoder, method."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from manyview import encoders
from manyview.config import MACHINE, PARTS, Config, flat, part, resolve
from manyview.data import Dataset, Unreadable
from manyview.data.holdout import divided, only_view
from manyview.methods import Method
from manyview.views import STACKS, Sensor, Stack

OWN = "(own)"  # the name of a data set that a person made themselves
SMALL = 64  # up to this size, pictures are not blurred
SIZES = (32, 128)  # of views, where nobody says how large
LOOKED_AT = 16  # images whose size tells what the others are like


@dataclass(frozen=True, eq=False)
class Images:
    """What a run learns from, and what it is scored on; one raw view of each.

    channels  of a picture
    side      the usual length of its shorter side
    """

    train: Dataset
    test: Dataset | None
    channels: int
    side: int

    @property
    def view(self) -> str:
        return self.train.views[0]


def images(config: Config, own: Dataset | None = None) -> Images:
    """The data of a run. Of several raw views the first, the pictures."""
    options = {key: value for key, value in config.data.items() if key != "name"}
    if own is None and config.data["name"] == OWN:
        raise ValueError("data: the run was made on a data set of your own; give it: manyview.pretrain(data=...)")
    found = divided(config.data["name"] if own is None else own, **options)
    view = found.train.views[0]
    train = only_view(found.train, view)
    channels, side = _looked_at(train)
    return Images(train, None if found.test is None else only_view(found.test, view), channels, side)


def settled(config: Config, found: Images) -> Config:
    """The settings with everything decided that depends on the data: size and kind of the views, the run's folder."""
    size = config.views["size"] or min(max(SIZES[0], 32 * round(found.side / 32)), SIZES[1])
    stack = config.views["stack"]
    if stack == "auto":
        stack = "custom" if size <= SMALL else "moco-v2"
    config = resolve(flat(vars(replace(config, views={**config.views, "stack": stack, "size": size}))), {})
    return config if config.out else replace(config, out=str(Path("runs") / _name(config)))


def stack(config: Config, looks: int) -> Stack:
    """What training sees: as many looks at an image as the method wants."""
    made: Stack = part(config, "views")(config.views["size"], looks)
    return made


def picture(config: Config) -> Sensor:
    """How training normalises a picture."""
    return stack(config, 2).picture


def plain_stack(config: Config) -> Stack:
    """What evaluation sees: the middle of the picture, with training's normalisation."""
    return Stack(STACKS["probe-test"](config.views["size"]).looks, picture=picture(config))


def encoder(config: Config, channels: int) -> encoders.Encoder:
    options: dict[str, Any] = dict(config.encoder)
    more, name = options.pop("options"), options.pop("name")
    return encoders.create(name, channels=channels, size=config.views["size"], **options, **more)


def method(config: Config, channels: int) -> Method:
    """The method with its parts, drawn from the run's seed."""
    torch.manual_seed(config.seed)
    made: Method = part(config, "method")(encoder(config, channels), **{name: part(config, name) for name in PARTS})
    return made


def _looked_at(dataset: Dataset) -> tuple[int, int]:
    """Channels and usual shorter side of a few images spread over the data."""
    shapes = []
    for row in range(0, len(dataset), max(1, len(dataset) // LOOKED_AT)):
        try:
            shapes.append(next(iter(dataset[row].views.values())).shape)
        except (Unreadable, StopIteration):
            continue
    if not shapes:
        raise ValueError(f"data: of {len(dataset)} images none that was looked at can be read; try `manyview check`")
    sides = sorted(min(shape[1:]) for shape in shapes)
    return max(shape[0] for shape in shapes), sides[len(sides) // 2]


def _name(config: Config) -> str:
    """The same settings give the same folder, so that the same command goes on with the same run."""
    settings = {key: value for key, value in flat(vars(config)).items() if key not in MACHINE}
    digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()[:6]
    data = Path(config.data["name"]).name if config.data["name"] != OWN else "own"
    return f"{config.method['name']}-{data or 'data'}-{digest}"
