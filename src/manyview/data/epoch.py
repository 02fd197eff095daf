"""How the samples of a data set fall into batches, epoch after epoch."""

from typing import NamedTuple


class Epoch(NamedTuple):
    """An epoch of so many samples in batches.

    drop_last  leave out a last batch that is not full
    """

    samples: int
    batch_size: int
    drop_last: bool

    @property
    def batches(self) -> int:
        """The number of batches."""
        return (self.samples + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size

    @property
    def seen(self) -> int:
        """How many samples are in one of the batches."""
        return min(self.batches * self.batch_size, self.samples)

    def seen_in(self, batches: int) -> int:
        """How many samples so many batches hold, over all epochs, counted from the beginning of one."""
        epochs, more = divmod(batches, self.batches)
        return epochs * self.seen + more * self.batch_size
