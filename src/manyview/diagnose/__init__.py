"""WHY a run does what it does: measures of its embeddings, a verdict in plain words, and the papers' figures.

The figures are functions of embeddings; `manyview.embeddings.view_embeddings` makes those of a run or an encoder.
"""

from manyview.diagnose.health import Health
from manyview.diagnose.measures import flat_share, measure, validation
from manyview.diagnose.mine import mine
from manyview.diagnose.negatives import ContrastWeights, Entropies, contrast_weights, couplings, entropies
from manyview.diagnose.neighbourhood import (
    Nearest,
    Neighbourhood,
    Purity,
    confusion,
    flat_map,
    nearest,
    neighbourhood,
    purity,
    tsne,
)
from manyview.diagnose.variance import Spectrum, Spread, rankme, spectrum, spread
from manyview.diagnose.verdict import Verdict

__all__ = [
    "ContrastWeights",
    "Entropies",
    "Health",
    "Nearest",
    "Neighbourhood",
    "Purity",
    "Spectrum",
    "Spread",
    "Verdict",
    "confusion",
    "contrast_weights",
    "couplings",
    "entropies",
    "flat_map",
    "flat_share",
    "measure",
    "mine",
    "nearest",
    "neighbourhood",
    "purity",
    "rankme",
    "spectrum",
    "spread",
    "tsne",
    "validation",
]
