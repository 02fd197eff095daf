"""Which classes have their images together, and which are confused with one another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.diagnose.neighbourhood import nearest
from manyview.diagnose.vectors import checked


@dataclass(frozen=True, eq=False)
class Purity:
    """Nearest-neighbour purity of C classes; NaN where a class has no image.

    classes  (C,) the share of an image's nearest neighbours that are of its class, mean over the class's images
    chance   (C,) what it would be if neighbours were drawn at random
    count    (C,) images
    mean     over all images
    """

    classes: Tensor
    chance: Tensor
    count: Tensor
    mean: float


@torch.no_grad()
def purity(bank: Tensor, labels: Tensor, *, k: int = 20, classes: int | None = None) -> Purity:
    """Measures the nearest-neighbour purity of embeddings (n, d) with labels (n,) int64.

    An image is not its own neighbour. Images without a label (-1) are left out. `classes` is how many there are, one
    more than the largest label by default. Exact, by cosine, in bounded memory; the time grows with n^2.
    """
    bank, labels = checked("bank", bank, least=2), _labels("labels", labels, len(bank), classes)
    here = labels >= 0
    if int(here.sum()) < 2:
        raise UserError("labels", f"expected 2 or more that are not -1, got {int(here.sum())}; name labelled images")
    bank, labels = (bank, labels) if bool(here.all()) else (bank[here], labels[here])
    count = labels.bincount(minlength=classes or 0)
    same = (labels[nearest(bank, min(k, len(bank) - 1)).rows] == labels[:, None]).double().mean(1)
    share = torch.zeros(len(count), dtype=torch.float64, device=same.device).index_add_(0, labels, same) / count
    chance = ((count - 1) / (len(bank) - 1)).masked_fill(count == 0, torch.nan)
    return Purity(share, chance.double(), count, float(same.mean()))


def confusion(truth: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Counts, (classes, classes) int64, how many images of class r, the row, were taken for class c, the column.

    truth and predicted (n,) int64; images without a label (-1) are left out.
    """
    truth = _labels("truth", truth, len(predicted), classes)
    predicted = _labels("predicted", predicted, len(truth), classes)
    here = (truth >= 0) & (predicted >= 0)
    return (truth[here] * classes + predicted[here]).bincount(minlength=classes**2).view(classes, classes)


def _labels(name: str, labels: Tensor, count: int, classes: int | None) -> Tensor:
    if labels.shape != (count,) or labels.dtype != torch.long:
        raise UserError(name, f"expected int64 ({count},), got {labels.dtype} {tuple(labels.shape)}")
    if classes is not None and count and int(labels.max()) >= classes:
        raise UserError(name, f"class {int(labels.max())} is beyond the {classes} that there are")
    return labels
