"""What the towers answered for a batch, and which images these are: all that terms and memories are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from manyview.core.distributed import gather, gather_all, rank
from manyview.encoders.towers import Outputs, Slot
from manyview.methods.embeddings import Embeddings


@dataclass(frozen=True, eq=False)
class BatchOutputs:
    """What the towers answered for a batch, and which images these are: all that terms and memories are given.

    outputs   by slot, a row for each of the N images of this process; none yet before the towers have seen it
    ids       (N,) what the images are
    index     (N,) their rows in the data
    present   masks (N,) by view: which images have it; of all views, or empty where no image can lack any
    counts    how many images each process has; empty where the batch is of this process alone
    step      the number of the training step
    progress  the share of the run that is done after this epoch, which a loss may depend on
    labels    (N,) the images' classes, -1 where there is none, for terms that go by them
    """

    outputs: Outputs
    ids: Tensor
    index: Tensor
    present: Mapping[str, Tensor] = field(default_factory=dict)
    counts: Sequence[int] = ()
    step: int = 0
    progress: float = 1.0
    labels: Tensor | None = None
    everywhere: dict[int, Tensor] = field(default_factory=dict)

    @property
    def processes(self) -> int:
        """Says how many processes the batch is spread over."""
        return max(1, len(self.counts))

    @property
    def total(self) -> int:
        """Says how many images all processes have."""
        return sum(self.counts) or len(self.ids)

    @property
    def mine(self) -> slice:
        """Says where this process's rows are among those of all."""
        start = sum(self.counts[: rank()])
        return slice(start, start + len(self.ids)) if self.counts else slice(None)

    def gathered(self, slots: Iterable[Slot]) -> BatchOutputs:
        """Joins the named outputs, ids, index and presence of all processes, in one collective."""
        if self.processes == 1:
            return self
        labels = [] if self.labels is None else [self.labels]
        here = [self.ids, self.index, *labels, *self.present.values(), *(self.outputs[slot] for slot in slots)]
        everywhere = gather_all(here, self.counts)
        self.everywhere.update((id(rows), far) for rows, far in zip(here, everywhere, strict=True))
        return self

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes: those of `gathered` are known, others, of any number, cost a collective."""
        if self.processes == 1:
            return rows
        known = self.everywhere.get(id(rows))
        return gather(rows) if known is None else known

    def embeddings(self, queries: Sequence[Slot], keys: Sequence[Slot] = ()) -> Embeddings:
        return Embeddings(
            [self.outputs[slot] for slot in queries],
            self.ids,
            [self.outputs[slot] for slot in keys],
            self.index,
            self._present(queries),
            self._present(keys),
            self.gather,
            self.step,
            self.labels,
        )

    def _present(self, slots: Sequence[Slot]) -> list[Tensor] | None:
        return [self.present[slot.view] for slot in slots] if self.present else None
