"""A contrastive loss in one call, for one's own training loop."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview import contrast, losses
from manyview.core.errors import UserError
from manyview.methods.contrast import total
from manyview.methods.topologies import each_copy, every_copy, view_pairs
from tests.methods.test_topologies import arranged, leaves, mask, torn, two_view_loss, views


def test_contrast_takes_a_list_or_a_tensor_a_function_or_a_name() -> None:
    z = views(2)
    raw = [3 * view for view in z]
    expected = total(arranged(every_copy, z), losses.dcl, temperature=0.1)
    torch.testing.assert_close(contrast(raw, loss="dcl", temperature=0.1), expected)
    torch.testing.assert_close(contrast(torch.stack(raw), loss=losses.dcl, temperature=0.1), expected)
    assert not torch.allclose(contrast(raw, loss="dcl", temperature=0.1, normalize=False), expected)


def test_contrast_arranges_views_as_it_is_told() -> None:
    z = views(3)
    torch.testing.assert_close(contrast(z, loss="cacr", topology=each_copy), total(arranged(each_copy, z), losses.cacr))


def test_contrast_makes_unit_length_in_float32() -> None:
    half = [view.to(torch.float16) for view in views(2)]
    half[0][0] = 0
    assert contrast(half, temperature=0.1).isfinite()
    wide = [view.float() for view in half]
    torch.testing.assert_close(contrast(half, temperature=0.005), contrast(wide, temperature=0.005))


def test_contrast_reads_nothing_of_an_absent_view() -> None:
    z = leaves(2)
    present = mask([1, 1, 1, 1, 0], [1, 1, 0, 1, 1])
    both = present[0] & present[1]
    value = contrast(torn(z, present), topology=view_pairs, present=present, temperature=0.1)
    torch.testing.assert_close(value, two_view_loss(z[0][both], z[1][both], 0.1))
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(value, z))


@pytest.mark.parametrize("loss", ["cacr", "align_uniform"])
def test_an_option_that_a_loss_does_not_take_is_one_line_with_those_it_takes(loss: str) -> None:
    with pytest.raises(UserError, match=rf"^temperature: {loss} takes none; it takes \w+, "):
        contrast(views(2), loss=loss, temperature=0.1)
    with pytest.raises(UserError, match=r"^t_neg: dcl takes none; it takes temperature, "):
        contrast(views(2), loss=partial(losses.dcl, temperature=0.1), t_neg=1.0)
