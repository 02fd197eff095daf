"""Nearest neighbours of embeddings, t-SNE maps of them, and which classes they keep together or confuse."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.diagnose.vectors import checked, same_length, unit
from manyview.features.knn import neighbours

MAPPED = 5000  # points that t-SNE is asked to place, at most; 2000 take one core about 6 seconds
PERPLEXITY = 30.0
STEPS = 500  # half of scikit-learn's, in half the time; the divergence was 2 to 4% larger on points of ten classes
ALIKE = 1e-9  # vectors nearer than this are one point, which scikit-learn does not survive: it divides by their spread
COMPONENTS = 50  # principal ones that t-SNE sees, as van der Maaten & Hinton (2008) do


@dataclass(frozen=True, eq=False)
class Nearest:
    """Nearest neighbours, the nearest first.

    rows        (m, k) of the embeddings
    similarity  (m, k) cosines
    """

    rows: Tensor
    similarity: Tensor


@torch.no_grad()
def nearest(embeddings: Tensor, k: int, *, of: Tensor | None = None) -> Nearest:
    """Finds the k nearest others, by cosine, of all rows of embeddings (n, d), or of those that `of` (m,) names.

    A row is not its own neighbour. Exact, and in pieces: beside a copy of the embeddings it takes about 150 MB.
    """
    x = unit("embeddings", embeddings, least=2)
    if not 1 <= k < len(x):
        raise UserError("k", f"expected 1 to {len(x) - 1} neighbours among {len(x)} vectors, got {k}")
    queries = torch.arange(len(x), device=x.device) if of is None else of
    similarity, rows = neighbours(x, x[queries], k, own=queries)
    return Nearest(rows, similarity)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Places in a plane whose origin is the query: positives (K, 2), negatives (M, 2)."""

    positives: Tensor
    negatives: Tensor


def neighbourhood(query: Tensor, positives: Tensor, negatives: Tensor, *, seed: int = 0) -> Neighbourhood:
    """Computes CACR's Fig. 7: t-SNE of a query (d,), its positives (K, d) and negatives (M, d), around the query.

    For a figure over epochs, call it for the same images at each snapshot. The paper shows what lies within 10 of the
    query on either axis, and a circle of radius t^-.
    """
    query = unit("query", query, dims=1)
    for name, given in (("positives", positives), ("negatives", negatives)):
        same_length(name, given, query)
    places = tsne(torch.cat([query[None], positives.to(query), negatives.to(query)]), seed=seed)
    places = places[1:] - places[0]
    return Neighbourhood(places[: len(positives)], places[len(positives) :])


def flat_map(embeddings: Tensor, *, seed: int = 0) -> Tensor:
    """Places embeddings (n, d) on a map, (n, 2) between -1 and 1: `tsne`, centred and scaled."""
    places = tsne(embeddings, seed=seed)
    places = places - (places.amax(0) + places.amin(0)) / 2
    return places / places.abs().max().clamp_min(1e-12)


def tsne(embeddings: Tensor, *, seed: int = 0) -> Tensor:
    """Places embeddings (n, d), made unit length, in a plane (n, 2) by t-SNE (van der Maaten & Hinton 2008).

    scikit-learn's, on the first 50 principal components, for 4 to `MAPPED` points. The same seed gives the same places;
    vectors that are all the same, as those of a collapsed run, are all at the origin.
    """
    from sklearn.decomposition import PCA  # here, since it takes a second to import
    from sklearn.manifold import TSNE

    x = unit("embeddings", embeddings, least=4).double().cpu().numpy()
    if len(x) > MAPPED or x.shape[1] < 2:
        raise UserError(
            "embeddings",
            f"t-SNE places up to {MAPPED} vectors of length 2 or more, got {x.shape}; give it some of them",
        )
    if (x.max(0) - x.min(0)).max() < ALIKE:
        return torch.zeros(len(x), 2)
    components = PCA(min(COMPONENTS, *x.shape), random_state=seed).fit_transform(x)
    perplexity = min(PERPLEXITY, (len(x) - 1) / 3)
    placed = TSNE(init="pca", perplexity=perplexity, max_iter=STEPS, random_state=seed).fit_transform(components)
    return torch.from_numpy(placed).float()


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
