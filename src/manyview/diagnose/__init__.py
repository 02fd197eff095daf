"""WHY a run does what it does: measures of the embeddings, what they mean in plain words, and what figures show.

The figures' functions take embeddings, of whatever encoder; `manyview.embeddings.view_embeddings` gets them from a run.
"""

from manyview.diagnose.augmentations import Spread, spread
from manyview.diagnose.batches import couplings
from manyview.diagnose.classes import Purity, confusion, purity
from manyview.diagnose.contrast import Contrasted, contrasted
from manyview.diagnose.entropy import Entropies, entropies
from manyview.diagnose.health import Health, Verdict
from manyview.diagnose.measures import flat_share, measure, rankme
from manyview.diagnose.neighbourhood import Nearest, Neighbourhood, flat_map, nearest, neighbourhood, tsne
from manyview.diagnose.spectrum import Spectrum, spectrum
from manyview.diagnose.validation import validation

__all__ = [
    "Contrasted",
    "Entropies",
    "Health",
    "Nearest",
    "Neighbourhood",
    "Purity",
    "Spectrum",
    "Spread",
    "Verdict",
    "confusion",
    "contrasted",
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
