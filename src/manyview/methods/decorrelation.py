"""Methods whose dimensions, and not whose images, are kept apart: Barlow Twins and VICReg."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from manyview import losses
from manyview.encoders import Encoder, Slot, Towers, heads
from manyview.losses.traits import holds_std
from manyview.methods.batch_outputs import BatchOutputs
from manyview.methods.method import VIEW, Head, Method
from manyview.methods.term import Term, TermOutput, nothing, watched
from manyview.methods.terms import queries

Decorrelate = Callable[[Tensor, Tensor], Tensor]


class Decorrelation(Term):
    """A loss of two embeddings of the whole batch, of all processes, that compares dimensions with one another.

    loss  of two (N, d), such as `barlow_twins` or `vicreg`

    An image that lacks one of the two takes no part. Every process computes the loss of the whole batch.
    """

    def __init__(self, first: Slot, second: Slot, loss: Decorrelate, *, name: str = "decorrelation") -> None:
        super().__init__(name, (first, second), (first, second))
        self.first, self.second, self.loss = first, second, loss

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        both = [batch.gather(batch.outputs[slot]) for slot in self.asks]
        if batch.present:
            here = torch.stack([batch.gather(batch.present[slot.view]) for slot in self.asks]).all(0)
            both = [each[here] for each in both]
        if len(both[0]) < 2:
            return TermOutput(nothing(batch, self.asks), [], skipped=True)
        seen = watched(batch, self.first, self.second)
        if holds_std(self.loss):
            seen = seen._replace(std=both[0].detach().float().std(0))
        return TermOutput(self.loss(*both), [], watched=seen)


def barlow_twins(
    encoder: Encoder,
    *,
    head: Head = partial(heads.bn_mlp, dim_out=8192, hidden=8192, layers=3),
    decorrelation: Decorrelate = partial(losses.barlow_twins, off_diagonal=0.0051),
) -> Method:
    """Barlow Twins (Zbontar et al., ICML 2021): the cross-correlation of two copies is drawn to the identity.

    It is that of the whole batch, of all processes. Copies go through the encoder one after the other.
    """
    towers = Towers(encoder, head, joint=False, normalize=False)
    first, second = queries(VIEW, range(2))
    return Method(views={VIEW: 2}, towers=towers, terms=[Decorrelation(first, second, decorrelation)])


def vicreg(
    encoder: Encoder,
    *,
    head: Head = partial(heads.bn_mlp, dim_out=2048, hidden=2048, layers=3),
    decorrelation: Decorrelate = partial(losses.vicreg, invariance=25.0, variance=25.0, covariance=1.0),
) -> Method:
    """VICReg (Bardes et al., ICLR 2022): copies agree, every dimension varies, no two dimensions vary together.

    Variances and covariances are those of the whole batch, of all processes. The paper's head has 8192 units, for LARS
    and batches of 2048; with AdamW and a batch of 64 the loss of such a head can grow without bound, so that fewer are
    the default here.
    """
    return barlow_twins(encoder, head=head, decorrelation=decorrelation)
