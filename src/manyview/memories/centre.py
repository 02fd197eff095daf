"""The centre of DINO: the running mean of the teacher's scores, which is taken off them."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.bounds import Between, check_bounds
from manyview.memories.memory import Memory


class Centre(Memory):
    """The running mean of scores by P prototypes (DINO, Eq. 4): c <- m c + (1 - m) mean. It is in the state dict.

    A step reads it, computes the loss, steps the optimiser, and only then lets it follow the step's mean.
    """

    vector: Tensor

    def __init__(self, prototypes: int, momentum: float = 0.9) -> None:
        super().__init__()
        check_bounds("momentum", momentum, [Between(0, 1, "a share")])
        self.momentum = momentum
        self.register_buffer("vector", torch.zeros(prototypes))

    @torch.no_grad()
    def follow(self, mean: Tensor) -> None:
        """Moves towards the mean (P,) of a batch's scores, of all processes."""
        self.vector.lerp_(mean.to(self.vector.dtype), 1 - self.momentum)
