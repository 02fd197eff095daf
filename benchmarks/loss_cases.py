"""The cases of `losses.py`: each loss of ours, the same loss of somebody else, the inputs, the sizes and the bars."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import literal
import torch
import torch.nn.functional as F
from measure import available_bytes, version
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import cacr, info_nce, jcl, nce
from manyview.memories import Memory
from manyview.methods.contrast import contrast, total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import each_copy, each_copy_against_keys

D = 128
IN_BATCH_TEMPERATURE = 0.1
JCL_TEMPERATURE, JCL_STRENGTH = 0.2, 4.0  # JCL section 4.1
CACR_T_POS, CACR_T_NEG = 1.0, 2.0
BANK_TEMPERATURE = 0.07  # CMC
LARGEST = 65536  # images, in less than 1 GB


@dataclass(frozen=True)
class Size:
    images: int  # N
    keys: int = 0  # rows of the queue or of the bank
    drawn: int = 0  # m, the rows of the bank that each query meets

    @property
    def tiny(self) -> Size:
        """The smallest size that takes the same path through the code: as many rows of the bank for each row drawn."""
        return Size(4, 4 * self.keys // self.drawn if self.drawn else min(self.keys, 64), min(self.drawn, 4))


NOTHING = torch.empty(0)


@dataclass(frozen=True)
class Inputs:
    """What both sides are given. Gradient ends in `raw`; the rest is unit vectors without gradient."""

    raw: list[Tensor]  # (N, d) each, one a view
    keys: list[Tensor] = field(default_factory=list)  # (N, d) each, from a momentum encoder
    rows: Tensor = NOTHING  # (M, d) of the queue or of the bank
    own: Tensor = NOTHING  # (N,) each query's row of the bank
    drawn: Tensor = NOTHING  # (N, m) rows of the bank

    def units(self) -> list[Tensor]:
        return [F.normalize(view, dim=1) for view in self.raw]


Make = Callable[[Size], Inputs]
Loss = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class Case:
    """A loss of ours and the same loss of somebody else, at a size and at a small one for checks and --quick."""

    name: str
    title: str  # formatted with the fields of Size
    against: str
    make: Make
    theirs: Loss
    ours: Loss
    full: Size
    small: Size
    time_bar: float
    memory_bar: float
    package: str | None = None  # that `theirs` needs
    their_rounds: int | None = None  # where more would take too long
    their_bytes: float = 0  # that `theirs` is known to need, where that is a large part of a machine

    def size(self, quick: bool) -> Size:
        return self.small if quick else self.full

    def label(self, size: Size) -> str:
        return self.title.format(**{name: f"{number:,}" for name, number in asdict(size).items()})

    def lacks(self, quick: bool) -> str | None:
        """Why `theirs` cannot run here, if it cannot."""
        if self.package and version(self.package) is None:
            return f"{self.package} is not installed: `pip install manyview[bench]`"
        free = available_bytes()
        if not quick and free is not None and free < 1.1 * self.their_bytes:
            return f"needs {self.their_bytes / 1e9:.0f} GB, {free / 1e9:.0f} are free"
        return None


@dataclass(frozen=True)
class Curve:
    """A loss of ours over the size of the batch, and the multiplications that it cannot do without."""

    name: str
    ours: Loss
    flop: Callable[[int], float]  # of N images
    images: tuple[int, ...] = (256, 1024, 4096, 16384, LARGEST)
    quick_images: tuple[int, ...] = (256, 1024)

    def sizes(self, quick: bool) -> list[Size]:
        return [Size(n) for n in (self.quick_images if quick else self.images)]

    def row_name(self, size: Size) -> str:
        return f"scaling-{self.name}-{size.images}"


def unit_vectors(rows: int) -> Tensor:
    x = torch.randn(rows, D)
    return x.div_(x.norm(dim=1, keepdim=True))  # in place: a bank is large


def raw_views(views: int, images: int) -> list[Tensor]:
    return [torch.randn(images, D).requires_grad_() for _ in range(views)]


def two_views(size: Size) -> Inputs:
    return Inputs(raw_views(2, size.images))


def one_query_five_keys(size: Size) -> Inputs:
    return Inputs(raw_views(1, size.images), [unit_vectors(size.images) for _ in range(5)], unit_vectors(size.keys))


def five_views_five_keys(size: Size) -> Inputs:
    return Inputs(raw_views(5, size.images), [unit_vectors(size.images) for _ in range(5)], unit_vectors(size.keys))


def one_query_with_bank(size: Size) -> Inputs:
    own = torch.randint(size.keys, (size.images,))
    drawn = torch.randint(size.keys, (size.images, size.drawn))
    return Inputs(raw_views(1, size.images), rows=unit_vectors(size.keys), own=own, drawn=drawn)


def partition(inputs: Inputs) -> float:
    """NCE's Z for unit vectors in random directions: rows times the mean of exp(q.v / t), q.v being N(0, 1/d)."""
    return len(inputs.rows) * math.exp(1 / (2 * D * BANK_TEMPERATURE**2))


class Kept(Memory):
    """A queue whose keys show no image of the batch, as in the papers' algorithms, which know no ids."""

    def __init__(self, keys: Tensor) -> None:
        super().__init__(within_batch=1.0)
        self.keys = keys

    def negatives(self, ids: Tensor, index: Tensor, *, step: int) -> Negatives:
        return Negatives(self.keys)


def our_info_nce(inputs: Inputs) -> Tensor:
    return contrast(inputs.raw, loss="info_nce", temperature=IN_BATCH_TEMPERATURE)


def our_dcl(inputs: Inputs) -> Tensor:
    return contrast(inputs.raw, loss="dcl", temperature=IN_BATCH_TEMPERATURE)


def our_cacr(inputs: Inputs) -> Tensor:
    return contrast(inputs.raw, loss="cacr", topology=each_copy, t_pos=CACR_T_POS, t_neg=CACR_T_NEG)


def our_jcl(inputs: Inputs) -> Tensor:
    positives = torch.stack(inputs.keys, 1)
    return jcl(inputs.units()[0], positives, Negatives(inputs.rows), temperature=JCL_TEMPERATURE, strength=JCL_STRENGTH)


def our_cacr_with_queue(inputs: Inputs) -> Tensor:
    triples = each_copy_against_keys(Embeddings(inputs.units(), keys=inputs.keys), Kept(inputs.rows))
    return total(triples, cacr, t_pos=CACR_T_POS, t_neg=CACR_T_NEG, detach_weights="positives")


def our_bank_softmax(inputs: Inputs) -> Tensor:
    negatives = Negatives(inputs.rows, index=inputs.drawn)
    return info_nce(inputs.units()[0], inputs.rows[inputs.own][:, None], negatives, temperature=BANK_TEMPERATURE)


def our_bank_nce(inputs: Inputs) -> Tensor:
    return nce(
        inputs.units()[0], inputs.rows[inputs.own][:, None], Negatives(inputs.rows, index=inputs.drawn),
        population=len(inputs.rows), partition=partition(inputs), temperature=BANK_TEMPERATURE,
    )  # fmt: skip


def lightly_ntxent(inputs: Inputs) -> Tensor:
    """lightly's losses make their inputs unit length themselves."""
    from lightly.loss import NTXentLoss

    loss: Tensor = NTXentLoss(temperature=IN_BATCH_TEMPERATURE)(*inputs.raw)
    return loss


def lightly_dcl(inputs: Inputs) -> Tensor:
    from lightly.loss import DCLLoss

    loss: Tensor = DCLLoss(temperature=IN_BATCH_TEMPERATURE)(*inputs.raw)
    return loss


def dense_info_nce(inputs: Inputs) -> Tensor:
    return literal.dense_info_nce(inputs.units(), IN_BATCH_TEMPERATURE)


def literal_jcl(inputs: Inputs) -> Tensor:
    positives = torch.stack(inputs.keys, 1)
    return literal.jcl_algorithm_1(inputs.units()[0], positives, inputs.rows, JCL_TEMPERATURE, JCL_STRENGTH)


def literal_cacr(inputs: Inputs) -> Tensor:
    return literal.cacr_algorithm_3(inputs.units(), inputs.keys, inputs.rows, CACR_T_POS, CACR_T_NEG)


def literal_bank_softmax(inputs: Inputs) -> Tensor:
    return literal.bank_softmax(inputs.units()[0], inputs.rows, inputs.own, inputs.drawn, BANK_TEMPERATURE)


def literal_bank_nce(inputs: Inputs) -> Tensor:
    return literal.bank_nce(
        inputs.units()[0], inputs.rows, inputs.own, inputs.drawn, BANK_TEMPERATURE, partition(inputs)
    )  # fmt: skip


LIGHTLY = f"lightly {version('lightly') or ''}".strip()
TORCH = f"torch {torch.__version__}"

CASES = [
    Case(
        "info_nce-4096", "in-batch `info_nce`, N={images}", f"{LIGHTLY} NTXentLoss",
        two_views, lightly_ntxent, our_info_nce, Size(4096), Size(768), 0.4, 0.05, package="lightly",
    ),
    Case(
        "dcl-4096", "in-batch `dcl`, N={images}", f"{LIGHTLY} DCLLoss",
        two_views, lightly_dcl, our_dcl, Size(4096), Size(768), 0.4, 0.05, package="lightly",
    ),
    Case(
        "info_nce-16384", "in-batch `info_nce`, N={images}", f"{LIGHTLY} NTXentLoss",
        two_views, lightly_ntxent, our_info_nce, Size(16384), Size(1024), 0.25, 0.02, package="lightly",
        their_rounds=1, their_bytes=17.5e9,
    ),
    Case(
        "info_nce-256", "in-batch `info_nce`, N={images}", f"dense formula, {TORCH}",
        two_views, dense_info_nce, our_info_nce, Size(256), Size(128), 1.1, 1.5,
    ),
    Case(
        "jcl", "`jcl`, N={images}, M'=5, queue {keys}", f"Algorithm 1 taken literally, {TORCH}",
        one_query_five_keys, literal_jcl, our_jcl, Size(512, 65536), Size(128, 8192), 0.35, 0.05,
    ),
    Case(
        "cacr", "`cacr`, K=4, N={images}, queue {keys} and within-batch", f"Algorithm 3 taken literally, {TORCH}",
        five_views_five_keys, literal_cacr, our_cacr_with_queue, Size(256, 65536), Size(64, 8192), 0.3, 0.05,
    ),
    Case(
        "bank-softmax-1.28M", "bank `info_nce`, N={images}, m={drawn} of {keys}", f"gather + bmm, {TORCH}",
        one_query_with_bank, literal_bank_softmax, our_bank_softmax,
        Size(128, 1_280_000, 16384), Size(32, 80_000, 1024), 0.3, 0.05,
    ),
    Case(
        "bank-softmax-50k", "bank `info_nce`, N={images}, m={drawn} of {keys}", f"gather + bmm, {TORCH}",
        one_query_with_bank, literal_bank_softmax, our_bank_softmax,
        Size(128, 50_000, 16384), Size(32, 4000, 1024), 0.1, 0.05,
    ),
    Case(
        "bank-nce-1.28M", "bank `nce`, N={images}, m={drawn} of {keys}", f"gather + bmm + Eq. 10-11, {TORCH}",
        one_query_with_bank, literal_bank_nce, our_bank_nce,
        Size(128, 1_280_000, 16384), Size(32, 80_000, 1024), 0.3, 0.05,
    ),
    Case(
        "bank-nce-50k", "bank `nce`, N={images}, m={drawn} of {keys}", f"gather + bmm + Eq. 10-11, {TORCH}",
        one_query_with_bank, literal_bank_nce, our_bank_nce,
        Size(128, 50_000, 16384), Size(32, 4000, 1024), 0.1, 0.05,
    ),
]  # fmt: skip

# A batch of n against itself: its n x n scores are symmetric. Half of them once forward and once more backward, and
# from each half the gradient of both its ends: 1/2 + 1/2 + 1 = 2 units of n^2 d multiplications and additions.
CURVES = [
    Curve("info_nce", our_info_nce, lambda n: 2 * (2 * n) ** 2 * D * 2),
    Curve("cacr", our_cacr, lambda n: 2 * (2 * n**2) * D * 2),  # two views, each against itself
]
