"""How bad: pure functions of a query, its positives and its negatives, one file a paper; or of two copies alone.

Every loss is `loss(query, positives, negatives, *, ..., present=None, reduction="mean", gather=no_gather)` of a query
(N, d), positives (N, K, d) and `Negatives`; `LOSSES` names them.
"""

from collections.abc import Callable

from torch import Tensor

from manyview.losses.align_uniform import align_uniform, alignment, uniformity
from manyview.losses.barlow_twins import barlow_twins
from manyview.losses.cacr import attraction, cacr, repulsion
from manyview.losses.dcl import dcl
from manyview.losses.hard_negative import hard_negative
from manyview.losses.info_nce import info_nce
from manyview.losses.jcl import jcl
from manyview.losses.nce import nce, nce_partition
from manyview.losses.streaming import bfloat16_matmul
from manyview.losses.traits import Loss, is_coupled, is_pooled, option
from manyview.losses.vicreg import vicreg

LOSSES: dict[str, Loss] = {
    "info_nce": info_nce,
    "dcl": dcl,
    "jcl": jcl,
    "cacr": cacr,
    "attraction": attraction,
    "repulsion": repulsion,
    "hard_negative": hard_negative,
    "nce": nce,
    "align_uniform": align_uniform,
}
DECORRELATIONS: dict[str, Callable[..., Tensor]] = {"barlow_twins": barlow_twins, "vicreg": vicreg}

__all__ = [
    "DECORRELATIONS",
    "LOSSES",
    "Loss",
    "align_uniform",
    "alignment",
    "attraction",
    "barlow_twins",
    "bfloat16_matmul",
    "cacr",
    "dcl",
    "hard_negative",
    "info_nce",
    "is_coupled",
    "is_pooled",
    "jcl",
    "nce",
    "nce_partition",
    "option",
    "repulsion",
    "uniformity",
    "vicreg",
]
