"""A run's folder as training leaves it, without the training."""

from __future__ import annotations

from pathlib import Path

import torch

from manyview import encoders
from manyview.config.recipes import to_yaml
from manyview.config.resolve import resolve
from manyview.config.sections import flat
from manyview.training import build, run_data, settle
from manyview.training.run import CONFIG, ENCODER, Run
from tests import tiny
from tests.config.small import read_flags


def made(folder: Path, **settings: object) -> Run:
    """Makes a run of `tiny.flags`; its encoder's weights are no longer those that it began with."""
    config = resolve({}, flat(read_flags(tiny.flags(out=folder, **settings))))
    data = run_data.open_data(config)
    config = settle.settled(config, data)
    with torch.random.fork_rng([]):
        encoder = build.method(config, data.channels, len(data.train)).towers.encoder()
        size = config.augmentation["size"]
        encoder(torch.randn(64, encoder.options["channels"], size, size))
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    folder.mkdir(parents=True, exist_ok=True)
    encoders.save(encoder, folder / ENCODER)
    (folder / CONFIG).write_text(to_yaml(config), encoding="utf-8")
    return Run(folder)
