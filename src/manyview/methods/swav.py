"""SwAV: copies of an image predict each other's place among prototypes, over which all images are spread evenly."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from manyview.core.bounds import MOST, AtLeast, AtMost, Count, Positive
from manyview.encoders import Encoder, Towers, heads, prototypes
from manyview.encoders.tower import MakePrototypes
from manyview.memories import Queue, QueueMemory
from manyview.methods.assignment import Assignment, SinkhornCodes
from manyview.methods.method import VIEW, Head, Method, Small
from manyview.methods.terms import queries

Steps = Annotated[int, AtLeast(0), AtMost(MOST)]
LARGE = range(2)  # the copies that are assigned


def swav(
    encoder: Encoder,
    *,
    small: Small = 6,
    temperature: Positive = 0.1,
    epsilon: Positive = 0.05,
    iterations: Count = 3,
    frozen: Steps = 313,
    queue: Steps = 0,
    queue_start: Steps = 0,
    head: Head = partial(heads.bn_mlp, dim_out=128, hidden=2048, bias=True),
    prototypes: MakePrototypes = partial(prototypes.unit, count=3000),
) -> Method:
    """SwAV (Caron et al., NeurIPS 2020), Eq. 1 to 6: every crop predicts the codes of the two large ones.

    L = 1/2 sum_{i in 1, 2} 1/(V - 1) sum_{v != i} - sum_k q_i^(k) log p_v^(k)

    q_i are the codes of large crop i, by Sinkhorn's algorithm over the batch of all processes and a queue; p_v is the
    softmax of crop v's scores by the prototypes. The mean over images. Eq. 6 sums over pairs, the code averages, as
    this does. Crops of one size go through encoder and head in one pass; in the code all crops go through the head
    together, so that its batch norm sees large and small ones at once.

    small        small crops besides the two large ones: they predict, and are not predicted
    temperature  of the predictions
    epsilon      of Sinkhorn's algorithm: less is sharper
    iterations   of Sinkhorn's algorithm
    frozen       steps at first in which the prototypes do not learn
    queue        embeddings of earlier batches, of all processes, that are spread over the prototypes together with the
                 batch, for each large crop; for batches with fewer images than prototypes. 0: none
    queue_start  the step from which on the queue is filled; it is used once it is full
    """
    towers = Towers(encoder, head, prototypes=prototypes, frozen=frozen)
    first, second = queries(VIEW, LARGE, "projection")
    queues = [QueueMemory(Queue(queue, towers.dim, start="empty"), "each") for _ in LARGE] if queue else []
    (scored_by,) = towers.prototypes()
    codes = SinkhornCodes((first, second), scored_by, queues, start=queue_start, epsilon=epsilon, iterations=iterations)
    copies = len(LARGE) + small
    term = Assignment(queries(VIEW, range(copies), "scores"), codes, (first, second), temperature=temperature)
    kept = {f"queue of copy {number}": each for number, each in enumerate(queues)}
    return Method(views={VIEW: copies}, towers=towers, terms=[term], memories=kept, small=small)
