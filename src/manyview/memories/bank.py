"""The memory bank of CMC and instance discrimination: one vector per image, on its own and as the memory of a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.bounds import Between, Count
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.core.rng import key, uniform
from manyview.memories.memory import Memory


class MemoryBank(nn.Module):
    """A unit vector for each of `instances` images, by dense index, moving towards what the encoder says.

    CMC section 3.4, and its code for what the paper leaves open: momentum 0.5, negatives drawn uniformly with
    replacement. The start is Gaussian noise of unit length (CMC's own code does not normalise it), and an image is
    never drawn as its own negative (CMC's code may). dtype=torch.float16 halves the memory. All of it, with NCE's Z, is
    in the state dict.

    >>> negatives = bank.negatives(index, 16384)
    >>> loss = info_nce(z1, bank.read(index)[:, None], negatives, temperature=0.07)
    >>> loss.backward(); optimizer.step(); bank.update(index, z2)
    """

    vectors: Tensor
    log_partition: Tensor

    def __init__(
        self,
        instances: int,
        dim: int,
        momentum: float = 0.5,
        *,
        partitions: int = 1,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if instances < 2 or dim < 1:
            raise UserError("instances and dim", f"expected at least 2 and 1, got {instances} and {dim}")
        if not 0 <= momentum < 1:
            raise UserError("momentum", f"expected a share from 0 up to below 1, got {momentum}")
        self.momentum = momentum
        start = torch.randn(instances, dim, generator=generator)
        self.register_buffer("vectors", F.normalize(start, dim=1).to(dtype))
        # ln Z of NCE, since Z itself has no room in float16; -inf before the first estimate
        self.register_buffer("log_partition", torch.full((partitions,), -torch.inf, dtype=torch.float64))
        self._estimated: set[int] = set()  # for which that is known to be over: nobody waits for a GPU to tell

    def extra_repr(self) -> str:
        instances, dim = self.vectors.shape
        return f"instances={instances}, dim={dim}, momentum={self.momentum}, dtype={self.vectors.dtype}"

    @property
    def partition(self) -> Tensor:
        """NCE's Z, a float64 number; 0 before the first estimate. Of several, the first."""
        return self.partition_of(0)

    def partition_of(self, number: int) -> Tensor:
        """One of several Z: CMC's code has one for each direction of an edge."""
        return self.log_partition[number].double().exp()

    def has_partition(self, number: int = 0) -> bool:
        """Says whether a Z has been estimated."""
        if number not in self._estimated and bool(self.log_partition[number] > -torch.inf):
            self._estimated.add(number)
        return number in self._estimated

    def read(self, index: Tensor) -> Tensor:
        """The vectors (N, dim) of images (N,)."""
        vectors = self.vectors[self._checked(index)]
        return vectors.to(torch.promote_types(vectors.dtype, torch.float32))

    @torch.no_grad()
    def draw(self, index: Tensor, m: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draws m others (N, m) for each image (N,), uniformly and with replacement."""
        if m < 1:
            raise UserError("m", f"expected at least 1 negative, got {m}")
        own = self._checked(index)[:, None]
        others = torch.randint(len(self.vectors) - 1, (len(index), m), device=own.device, generator=generator)
        return others.add_(others >= own)  # skips the own index, all others stay equally likely

    def negatives(
        self, index: Tensor, m: int, *, shared: bool = False, generator: torch.Generator | None = None
    ) -> Negatives:
        """m drawn images for each of the N; the bank itself is not copied.

        shared=True draws m images once for the whole batch: many times cheaper, and other semantics than the paper's. A
        query whose own image is among them does not meet it.
        """
        if not shared:
            return Negatives(self.vectors, index=self.draw(index, m, generator=generator))
        drawn = torch.randint(len(self.vectors), (m,), device=self.vectors.device, generator=generator)
        return Negatives(self.vectors[drawn], drawn, self._checked(index))

    @torch.no_grad()
    def update(self, index: Tensor, features: Tensor) -> None:
        """vector <- unit(momentum * vector + (1 - momentum) * feature), after the loss has been computed.

        With several processes give the gathered index and features, so that all banks stay the same, and start them
        with the same generator.
        """
        if features.shape != (len(index), self.vectors.shape[1]):
            expected = (len(index), self.vectors.shape[1])
            raise UserError(
                "features", f"expected {expected} for index {tuple(index.shape)}, got {tuple(features.shape)}"
            )
        mixed = self.momentum * self.read(index) + (1 - self.momentum) * features.float()
        self.vectors[index] = F.normalize(mixed, dim=1).to(self.vectors.dtype)

    @torch.no_grad()
    def update_partition(self, estimate: Tensor, *, decay: float | None = None, number: int = 0) -> Tensor:
        """Keeps NCE's Z and gives it: the first batch's estimate for ever, as published, or its running mean with
        `decay`.

        Estimates come from `manyview.losses.nce_partition`. A constant Z goes stale when the bank is no longer noise
        (CMC issue 23): decay=0.99 follows it.
        """
        if not self.has_partition(number):
            self.log_partition[number] = estimate.double().log()
        elif decay is not None:
            self.log_partition[number] = (decay * self.partition_of(number) + (1 - decay) * estimate).log()
        return self.partition_of(number)

    def _checked(self, index: Tensor) -> Tensor:
        if index.dim() != 1 or index.dtype != torch.long:
            raise UserError("index", f"expected int64 (N,), got {index.dtype} {tuple(index.shape)}")
        if index.device.type == "cpu" and len(index):  # a GPU would have to wait for the answer
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= len(self.vectors):
                raise UserError("index", f"expected 0 to {len(self.vectors) - 1}, got {low} to {high}")
        return index


class BankMemory(Memory):
    """A memory bank of one view: negatives are m drawn images, positives the image's own vector or the step's key.

    m       negatives that each query draws among the images that have the view, by a seed, the step and the image alone
    stored  positives come from the bank, as in CMC's code, which is steadier (CMC issue 13); else they are the step's
            keys, as Eq. 2 prints
    decay   of NCE's partition: None keeps the first batch's estimate, as published; 0.99 follows it

    The bank has a vector for each image of the data: `start` makes it, and draws the seed from torch's generator, so
    that a run's seed decides which negatives are met. Each term that reads the bank has a Z of its own.
    """

    per_image = True
    rows: Tensor
    population: Tensor
    seed: Tensor

    def __init__(
        self,
        dim: int,
        *,
        m: int,
        momentum: float = 0.5,
        stored: bool = True,
        decay: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(within_batch=0.0)
        if m < 1:
            raise UserError("m", f"expected at least 1 negative, got {m}")
        self.dim, self.m, self.momentum, self.stored, self.decay = dim, m, momentum, stored, decay
        self._generator = generator
        self.register_load_state_dict_post_hook(_count_again)  # type: ignore[no-untyped-call]

    def start(self, instances: int, *, present: Tensor | None = None, terms: Sequence[str] = ()) -> None:
        there = torch.ones(instances, dtype=torch.bool) if present is None else present.cpu()
        if (count := int(there.sum())) < 2:
            raise UserError("memory", f"a bank needs two or more images that have its view, got {count}")
        self._terms = {name: number for number, name in enumerate(terms)}
        self.bank = MemoryBank(
            instances, self.dim, self.momentum, partitions=max(1, len(terms)), generator=self._generator
        )
        self.register_buffer("rows", (~there).byte().argsort(stable=True))  # those that have the view come first
        self.register_buffer("population", torch.tensor(count))  # so many
        self._population = count  # the same, for which nobody waits for a GPU
        self.register_buffer("seed", torch.randint(2**62, (), generator=self._generator))

    def negatives(self, ids: Tensor, index: Tensor, *, step: int) -> Negatives:
        place = uniform(key(self.seed, step, index), self.m).mul_(self.population - 1).long()
        if self._population == len(self.rows):  # all have the view: places are rows
            return Negatives(self.bank.vectors, index=place.add_(place >= index[:, None]))  # skips the own vector
        place += self.rows[place] >= index[:, None]
        return Negatives(self.bank.vectors, index=self.rows[place])

    def positives(self, index: Tensor) -> Tensor | None:
        return self.bank.read(index)[:, None] if self.stored else None

    def partition(self, estimate: Callable[[int], Tensor], term: str = "") -> dict[str, Any]:
        """Returns what NCE needs to know of the noise: `population` and `partition`, its Z.

        estimate  computes Z from this batch, given the population
        term      the term that asks: each term that the bank was started for has a Z of its own
        """
        population, number = self._population, self._terms.get(term, 0)
        if self.bank.has_partition(number) and (self.decay is None or not self.training):
            return {"population": population, "partition": self.bank.partition_of(number)}
        found = estimate(population)
        found = self.bank.update_partition(found, decay=self.decay, number=number) if self.training else found
        return {"population": population, "partition": found}

    def update(self, keys: Sequence[Tensor], ids: Tensor, index: Tensor) -> None:
        self.bank.update(index, torch.stack(list(keys)).mean(0))


def _count_again(memory: nn.Module, _: object) -> None:
    memory._population = int(memory.population)  # type: ignore[assignment, arg-type]


def bank(
    dim: int,
    *,
    m: Count = 4096,
    momentum: Annotated[float, Between(0, 1, "a share")] = 0.5,
    stored: bool = True,
    decay: Annotated[float | None, Between(0, 1, "a share")] = None,
    generator: torch.Generator | None = None,
) -> Memory:
    """One vector for each image of the data, as in instance discrimination and CMC; `m` of them are drawn a query.

    m         negatives a query, drawn with replacement, so that there may be more than images: 16384 in CMC section
              4.1, 4096 for its AlexNets
    momentum  of a vector towards what the encoder says of its image
    stored    true: positives are the bank's own vectors, as in CMC's code, which is steadier; false: they are the
              step's embeddings of the other view, as Eq. 2 prints, with gradient to both encoders
    decay     of NCE's Z: null keeps the first batch's estimate, as published; 0.99 follows it (CMC issue 23)
    """
    return BankMemory(dim, m=m, momentum=momentum, stored=stored, decay=decay, generator=generator)
