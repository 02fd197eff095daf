"""Retrieval across views: does a sample, seen in one view, find itself among all samples seen in another?"""

from __future__ import annotations

from manyview.core.errors import UserError
from manyview.evaluate.task import Scores, Task
from manyview.features.retrieval import KS, recalls


def cross_view(task: Task, *, ks: tuple[int, ...] | None = None) -> Scores:
    """Recall@k of every ordered pair of views among the test samples, by cosine behind the heads; without labels.

    "rgb to thermal recall@1" is the share of samples whose RGB picture is nearer to their own thermal picture than to
    any other one. Of two views those samples count that have both, and chance is k in their number.

    ks  recall@k is the share of queries whose own sample is among the k nearest. Without, those of 1, 5 and 10 that
        there are samples for
    """
    views = list(task.model.heads)
    if len(views) < 2:
        what = f"{task.model.name} has {len(views) or 'none'}"
        raise UserError("protocols", f"cross-view compares views behind the heads of a run with one a view; {what}")
    ks = tuple(k for k in KS if k <= len(task.test)) if ks is None else ks
    if not ks or not 1 <= min(ks) <= max(ks) <= len(task.test):
        raise UserError("ks", f"expected numbers from 1 to the {len(task.test)} test samples, got {ks or 'none'}")
    return _scores(task, ks)


def _scores(task: Task, ks: tuple[int, ...]) -> Scores:
    for (query, searched), found in recalls(*task.projections("test"), ks).items():
        yield from ((f"{query} to {searched} recall@{k}", value) for k, value in found.items())
