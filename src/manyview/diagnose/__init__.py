"""WHY a run does what it does: measures of the embeddings, and what they mean in plain words."""

from manyview.diagnose.health import Health, Verdict
from manyview.diagnose.measures import flat_share, measure, rankme

__all__ = ["Health", "Verdict", "flat_share", "measure", "rankme"]
