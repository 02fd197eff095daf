"""WHY a run does what it does: measures of its embeddings, a verdict in plain words, and the papers' figures.

The figures are functions of embeddings; `manyview.embeddings.view_embeddings` makes those of a run or an encoder.
"""

from manyview.diagnose.classes import Purity, confusion, purity
from manyview.diagnose.contrast_weights import ContrastWeights, contrast_weights
from manyview.diagnose.coupling import couplings
from manyview.diagnose.entropy import Entropies, entropies
from manyview.diagnose.health import Health, Verdict
from manyview.diagnose.measures import flat_share, measure
from manyview.diagnose.neighbourhood import Nearest, Neighbourhood, flat_map, nearest, neighbourhood, tsne
from manyview.diagnose.spectrum import Spectrum, rankme, spectrum
from manyview.diagnose.spread import Spread, spread
from manyview.diagnose.validation import validation

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
    "nearest",
    "neighbourhood",
    "purity",
    "rankme",
    "spectrum",
    "spread",
    "tsne",
    "validation",
]
