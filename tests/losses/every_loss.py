"""Each loss, in each of its forms that takes another way through the engine, with numbers for random small vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from torch import Tensor

from manyview.losses import align_uniform, cacr, dcl, hard_negative, info_nce, jcl, nce, repulsion

Loss = Callable[..., Tensor]

EVERY_LOSS: dict[str, Loss] = {
    "info_nce": partial(info_nce, temperature=0.3),
    "dcl": partial(dcl, temperature=0.3),
    "dclw": partial(dcl, temperature=0.3, sigma=0.7),
    "jcl": partial(jcl, temperature=0.4, strength=1.7),
    "cacr": partial(cacr, t_pos=0.7, t_neg=1.3),
    "cacr, weights detached": partial(cacr, t_pos=0.7, t_neg=1.3, detach_weights=True),
    "cacr, inner cost": partial(cacr, t_pos=0.7, t_neg=1.3, cost="inner"),
    "cacr, rbf cost": partial(cacr, t_pos=0.7, t_neg=1.3, cost="rbf", t_rbf=0.9),
    "cacr, uniform": partial(cacr, attract="uniform", repel="uniform"),
    "repulsion": partial(repulsion, t_neg=1.3),
    "hard_negative": partial(hard_negative, temperature=0.6, beta=0.8, tau_plus=0.0),
    "nce": partial(nce, temperature=0.4, population=40, partition=55.0),
    "align_uniform": partial(align_uniform, alpha=1.5, t=1.2),
}

for_every_loss = pytest.mark.parametrize("loss", EVERY_LOSS.values(), ids=EVERY_LOSS.keys())
