from __future__ import annotations

import torch

from manyview.core.sample import Batch, Sample


def test_a_sample_has_no_targets_unless_the_data_knows_some() -> None:
    assert Sample(1, 0, {}).targets == {}


def test_a_batch_makes_the_views_of_some_rows_anew_each_time() -> None:
    asked = []

    def make(rows: slice) -> dict[str, list[torch.Tensor]]:
        asked.append(rows)
        return {"image": [torch.arange(4)[rows]]}

    ids = torch.arange(4)
    batch = Batch(ids, ids, ids, {"image": ids >= 0}, make)
    assert len(batch) == 4
    assert batch.views(slice(1, 3))["image"][0].tolist() == [1, 2]
    assert len(batch.views()["image"][0]) == 4
    assert asked == [slice(1, 3), slice(None)]
