"""How bad: pure functions of a query, its positives and its negatives, one file a paper.

Every loss is `loss(query, positives, negatives, *, ..., present=None, reduction="mean", gather=no_gather)` of a query
(N, d), positives (N, K, d) and `Negatives`; `LOSSES` names them.
"""

from manyview.losses.align_uniform import align_uniform, alignment, uniformity
from manyview.losses.cacr import attraction, cacr, repulsion
from manyview.losses.dcl import dcl
from manyview.losses.hard_negative import hard_negative
from manyview.losses.info_nce import info_nce
from manyview.losses.jcl import jcl
from manyview.losses.nce import nce, nce_partition
from manyview.losses.streaming import bfloat16_matmul
from manyview.losses.traits import Loss, is_coupled, is_pooled, option

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

__all__ = [
    "LOSSES",
    "Loss",
    "align_uniform",
    "alignment",
    "attraction",
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
]
