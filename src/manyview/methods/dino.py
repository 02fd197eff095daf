"""DINO: a student's copies predict what its teacher, which follows it slowly, says of the large ones."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from manyview.core.bounds import Between, Positive
from manyview.encoders import Encoder, Towers, heads, prototypes
from manyview.encoders.momentum import cosine
from manyview.encoders.tower import MakePrototypes
from manyview.memories import Centre
from manyview.methods.assignment import Assignment, CentredCodes
from manyview.methods.method import VIEW, Head, Method, Momentum, Small
from manyview.methods.swav import LARGE, Steps
from manyview.methods.terms import keys, queries

Share = Annotated[float, Between(0, 1, "a share")]


def dino(
    encoder: Encoder,
    *,
    small: Small = 8,
    temperature: Positive = 0.1,
    teacher_temperature: Positive = 0.04,
    warmup_temperature: Positive = 0.04,
    warmup: Share = 0.0,
    centre_momentum: Share = 0.9,
    frozen: Steps = 1251,
    momentum: Momentum = partial(cosine, start=0.996),
    head: Head = partial(heads.dino, dim_out=256, hidden=2048, layers=3),
    prototypes: MakePrototypes = partial(prototypes.weight_norm, count=65536),
) -> Method:
    """DINO (Caron et al., ICCV 2021), Eq. 1 to 4: the mean over pairs of crops of -sum_k P_t^(k) log P_s^(k).

    P_t = softmax( (g_t - c) / tau_t ) of a large crop by the teacher, the momentum encoder; P_s = softmax(g_s / tau_s)
    of another crop, large or small, by the student; g are scores by the prototypes, the last layer. The mean over
    images. Eq. 3 sums over pairs, the code averages, as this does.

    small                small crops besides the two large ones, for the student alone
    temperature          tau_s, of the student
    teacher_temperature  tau_t
    warmup_temperature   tau_t at first
    warmup               the share of the run in which tau_t goes from one to the other, a step each epoch, the first
                         included (in the authors' code the first epoch still has the first value)
    centre_momentum      of the centre c, the running mean of the teacher's scores over all processes (Eq. 4)
    frozen               steps at first in which the student's prototypes do not learn; an epoch in the authors' code
    """
    towers = Towers(encoder, head, momentum=momentum, prototypes=prototypes, frozen=frozen)
    centre = Centre(len(towers.prototypes()[0].weight), centre_momentum)
    codes = CentredCodes(
        keys(VIEW, LARGE, "scores"), centre, temperature=teacher_temperature, start=warmup_temperature, warmup=warmup
    )
    copies = len(LARGE) + small
    first, second = queries(VIEW, LARGE, "projection")
    term = Assignment(queries(VIEW, range(copies), "scores"), codes, (first, second), temperature=temperature)
    return Method(views={VIEW: copies}, towers=towers, terms=[term], memories={"centre": centre}, small=small)
