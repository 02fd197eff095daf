"""A tower by itself; with views, branches and momentum it is tested in test_towers.py."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from manyview.encoders import Tower, heads
from manyview.encoders.prototypes import unit
from tests.methods.small import DIM, images, plain

HEAD = partial(heads.mlp, dim_out=DIM)


def test_outputs_are_those_that_are_asked_for_of_one_pass() -> None:
    tower = Tower(plain(), HEAD, {"second": partial(heads.linear, dim_out=4)}, partial(unit, count=5)).double()
    (x,) = images(1)
    found = tower(x, ("features", "scores", "second"))
    assert {name: tuple(each.shape) for name, each in found.items()} == {
        "features": (6, 9), "scores": (6, 5), "second": (6, 4)
    }  # fmt: skip
    assert tower.prototypes is not None
    expected = F.normalize(tower(x)["projection"], dim=1) @ tower.prototypes.weight.T
    torch.testing.assert_close(found["scores"], expected)
    assert tower.length() == DIM


def test_without_prototypes_there_are_no_scores() -> None:
    with pytest.raises(ValueError, match="no output is called 'scores'; there are embedding, projection, features"):
        Tower(plain(), HEAD, {}).double()(images(1)[0], ("scores",))
    with pytest.raises(ValueError, match="heads: 'scores' is already the name of an output"):
        Tower(plain(), HEAD, {"scores": HEAD})
