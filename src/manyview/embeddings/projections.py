"""Held-out samples of a run as the head of each view sees them: what is compared across views.

>>> found = project_run(run)
>>> recalls(found.vectors, found.present)["thermal", "rgb"][1]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.data import Dataset, Loader
from manyview.data.factory import some
from manyview.embeddings.model_source import open_model
from manyview.features.embedding_pass import embedding, forward, on_device, project
from manyview.training import build
from manyview.training.run import Run

BATCH = 128


@dataclass(frozen=True, eq=False)
class Projections:
    """Some samples, projected in each view.

    vectors   (n, p) by view, of unit length, float32 on the CPU; row i of each is sample i
    present   (n,) by view, whether the sample has it and could be read
    ids       (n,) of the samples
    labels    (n,) -1 where there is none
    data      the samples, in this order
    held_out  whether training has not seen them
    """

    vectors: dict[str, Tensor]
    present: dict[str, Tensor]
    ids: Tensor
    labels: Tensor
    data: Dataset
    held_out: bool


def project_run(
    run: Run,
    *,
    samples: int = 512,
    own: Dataset | None = None,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> Projections:
    """Projects held-out samples, or training samples where none are held out, chosen by their ids alone.

    own  the data set of a run on one's own
    """
    source, data = open_model(run), build.data(run.config, own)
    if not source.heads:
        raise UserError("run", f"{run.folder} has no encoder a view with a head, and nothing to compare across views")
    chosen = some(data.train if data.test is None else data.test, samples, labelled=False)
    loader = Loader(
        chosen, build.test_pipeline(run.config, data.views), min(BATCH, len(chosen)), shuffle=False, drop_last=False,
        device=device, workers=workers, max_unreadable=1.0,
    )  # fmt: skip
    vectors: dict[str, list[Tensor]] = {view: [] for view in source.heads}
    present: dict[str, list[Tensor]] = {view: [] for view in source.heads}
    start = 0
    for batch in loader.epoch(0):
        read = batch.index.cpu() == torch.arange(start, start + len(batch))  # else another stands in for it
        start, views = start + len(batch), batch.views()
        for view, head in source.heads.items():
            with torch.no_grad(), on_device(source.encoders[view], torch.device(device)):
                embedded = forward(source.encoders[view], views[view][0], read=embedding).cpu()
                vectors[view].append(project(head, embedded))
            present[view].append(read & batch.present[view].cpu() if batch.present else read)
    return Projections(
        {view: torch.cat(parts) for view, parts in vectors.items()},
        {view: torch.cat(parts) for view, parts in present.items()},
        chosen.ids, loader.labels, chosen, data.test is not None,
    )  # fmt: skip
