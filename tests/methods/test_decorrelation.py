from __future__ import annotations

from typing import Any

import pytest
import torch

from manyview import losses
from manyview.encoders import Slot
from manyview.methods import BatchOutputs, Decorrelation, barlow_twins, vicreg
from manyview.methods.method import VIEW
from tests.methods.small import IDS, Rows, doubled, images, outputs_of, plain

FIRST, SECOND = Slot("query", "a", 0), Slot("query", "b", 0)


def given(count: int = 6, **options: Any) -> BatchOutputs:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    ids = torch.arange(6)[:count]
    return BatchOutputs({FIRST: x[:count], SECOND: y[:count]}, ids, ids, **options)


@pytest.mark.parametrize(("make", "loss"), [(barlow_twins, losses.barlow_twins), (vicreg, losses.vicreg)])
def test_a_method_is_the_loss_of_its_two_copies_as_the_head_gives_them(make: Any, loss: Any) -> None:
    encoder = plain()
    method, rows = doubled(make, encoder), Rows(encoder)
    batch = outputs_of(method, images(2))
    assert rows.calls == [6, 6]
    first, second = batch.outputs.values()
    assert not torch.allclose(first.norm(dim=1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(method.objective(batch).loss, loss(first, second))
    assert method.views == {VIEW: 2}


def test_all_processes_rows_are_asked_for() -> None:
    term = Decorrelation(FIRST, SECOND, losses.vicreg)
    assert term.asks == term.gathers == (FIRST, SECOND)


def test_an_image_that_lacks_a_view_takes_no_part() -> None:
    present = {"a": torch.tensor([1, 1, 1, 1, 0, 1]).bool(), "b": torch.tensor([1, 1, 1, 1, 1, 0]).bool()}
    term = Decorrelation(FIRST, SECOND, losses.vicreg)
    found = term(given(present=present))
    torch.testing.assert_close(found.loss, term(given(4)).loss)
    assert found.watched is not None
    assert found.watched.rows().ids.tolist() == [0, 1, 2, 3]


def test_where_fewer_than_two_images_have_both_views_nothing_is_said() -> None:
    present = {"a": IDS == 0, "b": IDS == 0}
    found = Decorrelation(FIRST, SECOND, losses.barlow_twins)(given(present=present))
    assert (found.skipped, float(found.loss)) == (True, 0.0)
