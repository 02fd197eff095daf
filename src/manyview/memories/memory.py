"""What a term contrasts with besides its positives: the batch's other images, and keys kept from earlier steps."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives


class Memory(nn.Module):
    """Keeps keys between steps; this one keeps none, so that the batch's other images are the only negatives.

    within_batch  how often each of the batch's other images counts beside what is kept; 0 leaves them out

    A step reads the memory, computes the loss, steps the optimiser, and only then updates the memory.
    """

    def __init__(self, within_batch: float = 1.0) -> None:
        super().__init__()
        if not 0 <= within_batch < float("inf"):
            raise UserError("within_batch", f"expected a weight of at least 0, got {within_batch}")
        self.within_batch = within_batch

    per_image = False  # whether it holds something for each training image, and so knows no other images

    @property
    def size(self) -> int | None:
        """Says how many keys it holds; None where it holds none, or one for each image of the data."""
        return None

    def start(self, instances: int, *, present: Tensor | None = None, terms: Sequence[str] = ()) -> None:
        """Makes room for this many images of the data, once, before the first step.

        present  (instances,) which images have the view that is kept, as far as that is known; without, all
        terms    the names of those that read it
        """

    def negatives(self, ids: Tensor, index: Tensor, *, step: int) -> Negatives | None:
        """Returns what queries of these images meet besides the batch.

        ids (N,), their rows in the data (N,), and the number of the step, which draws depend on.
        """
        return None

    def positives(self, index: Tensor) -> Tensor | None:
        """Returns kept positives (N, 1, d) of these images, where the memory has them instead of the step's keys."""
        return None

    def update(self, keys: Sequence[Tensor], ids: Tensor, index: Tensor) -> None:
        """Takes in the step's keys, K copies of (N, d), of all processes."""


def batch(dim: int) -> Memory:
    """The other images of the batch, of all processes."""
    return Memory()
