"""Whatever a task gives can be run: data, and a training of any encoders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from manyview.core.bounds import Count
from manyview.data import open_data
from manyview.encoders import create
from manyview.transfer.fit import Training
from manyview.transfer.prepared import DataSource, Prepared, Start
from manyview.transfer.transfer import TASKS, schema, transfer


def brightness(data: DataSource, *, steps: Count = 3) -> Prepared:
    """Predicts the mean of a picture."""
    train, test = (open_data(data.name, split=split, **data.options) for split in ("train", "test"))

    def training(start: Start) -> Training:
        model = nn.Sequential(start.model.encoder, nn.Linear(start.model.encoder.dim, 1))
        pictures = torch.stack([train[row].modalities["image"] for row in range(4)]) / 255

        def batches(epoch: int, begin: int) -> Iterator[Tensor]:
            yield pictures

        def losses(x: Tensor) -> dict[str, Tensor]:
            return {"square": (model(x)[:, 0] - x.mean((1, 2, 3))).square().mean()}

        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return Training(
            model, optimizer, steps, 1, batches, losses, lambda: {"error": losses(pictures)["square"].item()}
        )

    return Prepared(data.name, train, test, (), training, notes=("a toy",))


def test_a_task_is_a_row_of_the_table_and_its_signature_are_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "brightness", brightness)
    assert set(schema("brightness")) == {"steps"}
    told: list[str] = []
    encoder = create("patchnet", size=16, widths=(8, 16), blocks=(1, 1))
    found = transfer(
        encoder, "brightness", {"name": "scenes", "count": 8, "size": 16}, settings={"steps": "2"}, out=tmp_path,
        say=told.append,
    )  # fmt: skip
    assert list(found.scores) == ["error"]
    assert found.untrained is not None
    assert found.supervised is None  # it trains the encoder anyway
    assert found.settings == {"steps": 2}
    assert told[0] == "a toy"
