"""Terms by prototypes: each copy of an image predicts to which of them another copy is assigned. SwAV, DINO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.encoders import Slot
from manyview.encoders.prototypes import Prototypes
from manyview.losses.assignment import centred_codes, cross_entropy, sinkhorn
from manyview.memories import Centre, Memory, QueueMemory
from manyview.methods.batch_outputs import BatchOutputs
from manyview.methods.term import Term, TermOutput, mean_of_present, watched


class Codes(ABC):
    """Codes say to which prototypes the first copies of images belong; `codes(batch)` gives (N, P) for each of them.

    asks      the outputs that it needs
    gathers   those of them that it needs of all processes
    memories  what it keeps between steps
    """

    def __init__(self, asks: Iterable[Slot], gathers: Iterable[Slot] = (), memories: Sequence[Memory] = ()) -> None:
        self.asks, self.gathers, self.memories = tuple(asks), tuple(gathers), tuple(memories)

    @abstractmethod
    def __call__(self, batch: BatchOutputs) -> list[Tensor]: ...

    @abstractmethod
    def remember(self, batch: BatchOutputs) -> None:
        """Gives the memories what they keep of a batch, after the optimiser's step."""


class Assignment(Term):
    """The cross-entropy of each copy's prediction and another copy's codes, the mean over all pairs of two copies.

    scores       the slots of all copies' scores; codes are of the first of them
    projections  the slots of two copies' embeddings, which are watched
    temperature  of the predictions
    """

    def __init__(
        self,
        scores: Sequence[Slot],
        codes: Codes,
        projections: tuple[Slot, Slot],
        *,
        temperature: float = 0.1,
        name: str = "assignment",
    ) -> None:
        super().__init__(name, dict.fromkeys([*scores, *projections, *codes.asks]), codes.gathers)
        self.scores, self.codes, self.projections, self.temperature = tuple(scores), codes, projections, temperature

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        codes, parts = self.codes(batch), []
        for number, slot in enumerate(self.scores):
            others = torch.stack([each for place, each in enumerate(codes) if place != number]).sum(0)
            values = cross_entropy(others, batch.outputs[slot], temperature=self.temperature)  # linear in the codes
            parts.append(mean_of_present(batch, values, [slot]))
        pairs = len(codes) * (len(self.scores) - 1)
        given = F.softmax(batch.outputs[self.scores[0]].detach() / self.temperature, dim=1)
        seen = watched(batch, *self.projections, given)
        return TermOutput(torch.stack(parts).sum() / pairs, [], watched=seen)

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """Each copy with those whose codes it predicts."""
        return list(product(self.scores, self.codes.asks))

    @property
    def memories(self) -> tuple[Memory, ...]:
        return self.codes.memories

    def remember(self, batch: BatchOutputs) -> None:
        self.codes.remember(batch)

    def option(self, name: str) -> Any:
        return self.temperature if name == "temperature" else None


class SinkhornCodes(Codes):
    """SwAV's codes: embeddings of all processes, and of a queue, spread evenly over the prototypes.

    embeddings  the slots of the copies that are assigned
    prototypes  what they are scored by
    queues      one a copy, of earlier embeddings; used once full. Empty: none
    start       the step from which on the queues are filled
    """

    def __init__(
        self,
        embeddings: Sequence[Slot],
        prototypes: Prototypes,
        queues: Sequence[QueueMemory] = (),
        *,
        start: int = 0,
        epsilon: float = 0.05,
        iterations: int = 3,
    ) -> None:
        super().__init__(embeddings, embeddings, queues)
        self.prototypes, self.queues, self.start = prototypes, tuple(queues), start
        self.epsilon, self.iterations = epsilon, iterations

    @torch.no_grad()
    def __call__(self, batch: BatchOutputs) -> list[Tensor]:
        found = []
        for number, slot in enumerate(self.asks):
            here = batch.gather(batch.outputs[slot])
            kept = [each.queue.keys for each in self.queues[number : number + 1] if each.queue.ready]
            scores = self.prototypes(torch.cat([*kept, here]))
            codes = sinkhorn(scores, epsilon=self.epsilon, iterations=self.iterations)
            found.append(codes[-len(here) :][batch.mine])
        return found

    def remember(self, batch: BatchOutputs) -> None:
        if batch.step >= self.start:
            ids, index = batch.gather(batch.ids), batch.gather(batch.index)
            for slot, queue in zip(self.asks, self.queues, strict=True):
                queue.update([batch.gather(batch.outputs[slot]).detach()], ids, index)


class CentredCodes(Codes):
    """DINO's codes: the teacher's scores, centred and sharpened.

    scores       the slots of the teacher's scores
    centre       their running mean
    temperature  of the teacher, after the warm-up
    start        the same at first
    warmup       the share of the run over which it goes from one to the other, epoch by epoch
    """

    def __init__(
        self, scores: Sequence[Slot], centre: Centre, *, temperature: float, start: float, warmup: float
    ) -> None:
        super().__init__(scores, memories=[centre])
        self.centre, self.temperature, self.start, self.warmup = centre, temperature, start, warmup

    def __call__(self, batch: BatchOutputs) -> list[Tensor]:
        temperature = self.temperature_at(batch.progress)
        return [centred_codes(batch.outputs[slot], self.centre.vector, temperature=temperature) for slot in self.asks]

    def temperature_at(self, progress: float) -> float:
        """The teacher's temperature in a run of which this share will be done after this epoch."""
        done = min(1.0, progress / self.warmup) if self.warmup else 1.0
        return self.start + done * (self.temperature - self.start)

    def remember(self, batch: BatchOutputs) -> None:
        """Lets the centre follow: processes exchange their sums alone, which are small beside the scores."""
        total = torch.stack([batch.outputs[slot].sum(0) for slot in self.asks]).sum(0, keepdim=True)
        self.centre.follow(batch.gather(total).sum(0) / (len(self.asks) * batch.total))
