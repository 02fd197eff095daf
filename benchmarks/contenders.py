"""The contenders of the training benchmarks: manyview by its settings, lightly by its examples, the encoder alone.

Each trains the same network on the same images in memory, for as long as it is told, and can go on after a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

import manyview
from manyview.config.component import component
from manyview.config.config import Config
from manyview.config.resolve import resolve
from manyview.config.sections import flat
from manyview.core.sample import Views
from manyview.data import Batch, Dataset, Loader
from manyview.encoders import Encoder, create, dense_convolutions
from manyview.methods import BatchOutputs
from manyview.training import build, pipelines, run_data, settle
from manyview.training.engine import Trainer, start_fabric

WORKERS = 2  # lightly's examples say 8; more than there are cores only costs
WARM = 2  # steps after a pause that are not counted, until workers have something ready

Schedule = Callable[[float], float]
"""Share of the training that is done -> learning rate."""


class Contender:
    """Steps without end; `train` counts those that fit into a time, or as many as asked for."""

    encoder: nn.Module

    def __init__(self) -> None:
        self.done = 0

    def steps(self) -> Iterator[None]:
        """Each next() is one step. Started anew after every pause."""
        raise NotImplementedError

    def train(self, count: int, warm: int = WARM) -> float:
        """Seconds for `count` steps."""
        endless = self.steps()
        for _ in range(warm):
            next(endless)
        start = time.perf_counter()
        for _ in range(count):
            next(endless)
        taken = time.perf_counter() - start
        self.done += warm + count
        return taken


class Ours(Contender):
    """manyview with some settings, by the parts that its training loop is made of."""

    encoder: Encoder

    def __init__(self, data: Dataset, **settings: Any) -> None:
        super().__init__()
        config = resolve({}, {"data.name": "scenes", **flat(settings)})
        views, side = run_data.views_of(config, data.modalities), config.augmentation["size"] or 32
        found = run_data.RunData(data, None, views, dict.fromkeys(views, 3), side, (0, 0), data.modalities)
        self.config: Config = settle.settled(config, found)
        self.method = build.method(self.config, found.channels, len(data))
        self.encoder = self.method.towers.encoder()
        self.trainer = Trainer(start_fabric(self.config), self.config, self.method)
        pipeline = pipelines.training(self.config, views, self.method)
        self.loader = Loader(data, pipeline, self.config.batch_size, seed=self.config.seed)
        self.progress = 0.0

    def steps(self) -> Iterator[None]:
        while True:
            epoch, start = divmod(self.done, len(self.loader))
            for batch in self.loader.epoch(epoch, start=start):
                self._step(batch)
                yield

    def _step(self, batch: Batch) -> None:
        def views(rows: slice) -> Views:
            made = batch.views(rows)
            return {name: [channels_last(copy) for copy in copies] for name, copies in made.items()}

        epochs = self.config.epochs
        share = component(self.config, "schedule")(self.progress * epochs, epochs)
        output = self.trainer.gradient(views, BatchOutputs({}, batch.ids, batch.index, step=self.done))
        self.trainer.step(self.config.optimizer["lr"] * share, self.done, measure=False)
        self.method.update(output.batch, self.done, 1 << 30)


class Pretrain(Contender):
    """`manyview.pretrain` as a person calls it, with its log and its reports on the run's health."""

    def __init__(self, data: Dataset, *, bf16: bool = False, **settings: Any) -> None:
        super().__init__()
        usual = {"evaluate_every": 0, "report": False, "quiet": True, "epochs": 1000, "loggers": ("tensorboard",)}
        self.data, self.settings = data, {**usual, "precision": "bf16" if bf16 else "fp32", **settings}

    def train(self, count: int, warm: int = WARM) -> float:
        """Seconds for `count` steps of a new run, after as many that are not counted."""
        with TemporaryDirectory() as folder:
            length: dict[str, Any] = {"max_steps": 2 * count, "health_every": count}
            run = manyview.pretrain(self.data, out=folder, **self.settings, **length)
            at = {line["step"]: line["seconds"] for line in run.metrics}
        return float(at[2 * count] - at[count])


class Lightly(Contender):
    """lightly's SimCLR and DCL examples (examples/pytorch of lightly 1.6), on this encoder and these images.

    As there: SimCLRTransform at 32 px, projection head 512-128, SGD of rate 0.06 without momentum, batch 256. Blur is
    off in both, which only the DCL example has, and makes lightly faster.
    """

    def __init__(
        self, images: Tensor, encoder: Encoder, loss: nn.Module, *, batch: int = 256, bf16: bool = False
    ) -> None:
        super().__init__()
        from lightly.models.modules import SimCLRProjectionHead
        from lightly.transforms import SimCLRTransform

        self.encoder, self.loss, self.bf16 = encoder, loss, bf16
        self.model = nn.Sequential(encoder, SimCLRProjectionHead(encoder.dim, 512, 128))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.06)
        pictures = Pictures(images, SimCLRTransform(input_size=32, gaussian_blur=0.0))
        self.loader = torch.utils.data.DataLoader(
            pictures, batch_size=batch, shuffle=True, drop_last=True, num_workers=WORKERS
        )

    def steps(self) -> Iterator[None]:
        while True:
            for first, second in self.loader:
                self._step(first, second)
                yield

    def _step(self, first: Tensor, second: Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            one, two = self.model(first), self.model(second)
        self.loss(one.float(), two.float()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Alone(Contender):
    """The encoder's forward and backward, as manyview computes them, on views that are already there: what no training
    can beat."""

    def __init__(self, encoder: Encoder, views: Tensor, *, bf16: bool = False) -> None:
        super().__init__()
        self.encoder, self.bf16 = encoder.to(memory_format=torch.channels_last), bf16
        dense_convolutions(encoder)
        self.views = channels_last(views)

    def steps(self) -> Iterator[None]:
        while True:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                embedded = self.encoder(self.views)
            embedded.float().square().mean().backward()
            self.encoder.zero_grad()
            yield


class Pictures(torch.utils.data.Dataset[list[Tensor]]):
    """Images (n, 3, H, W) uint8 in memory as Pillow's, through a transform: no decoding on the peer's bill."""

    def __init__(self, images: Tensor, transform: Callable[[Any], list[Tensor]]) -> None:
        self.images, self.transform = images.permute(0, 2, 3, 1).contiguous().numpy(), transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> list[Tensor]:
        return self.transform(Image.fromarray(self.images[index]))


def network(name: str, seed: int = 0) -> Encoder:
    torch.manual_seed(seed)
    return create(name, size=32)


def channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)
