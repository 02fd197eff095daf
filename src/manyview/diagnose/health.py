"""The traffic light of a run: from the measures of its steps to one plain sentence.

The thresholds come from runs of 100 to 1000 steps of a PatchNet of half width on 5,000 procedural scenes of 32 px, most
with batches of 64 and SGD at 0.06. The usual ones ("usual" below: InfoNCE, DCL, CACR, UAUR, AU-CL, HN-CL, with a batch
or a queue) were, but for one, too short to show in nearest neighbours that they learn; what sets them apart from the
runs made to fail are the measures themselves. Where a number was reasoned and not measured, it says so.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manyview.core.errors import UserError
from manyview.diagnose.verdict import Sign, Verdict, Word, of_view, states

STATE = ("measured", "first", "recent", "since", "scores")
STARTING = 6  # measurements before embeddings are judged: an untrained network's all look alike
WINDOW = 5  # measurements that are averaged, since one batch tells little; the first is then no longer among them

# Similarity of different images: at most 0.84 in usual runs, 0.96 for a while with batches of 8; above 0.995 after 20
# steps of attraction alone or of a temperature of 0.005.
ALIKE = 0.97
# Of what was left to a similarity of 1 at first: a network may begin at 0.98, and is then not at fault. Reasoned.
NARROWED = 0.5
# Dimensions in use, by RankMe: at least 4.6 (UAUR) in usual runs, 2 to 3 with learning rates of 1 and 10. AdamW at 0.1
# had about 4, and passes.
DIMENSIONS = 3.5
ENOUGH = 32  # dimensions that must be possible: a batch of 4 has 8 at most, and 2 in use mean nothing
# q_B, the factor of the gradient. Reasoned: below 0.1 nine tenths of the gradient are gone. None of those runs came
# near (0.64 and more, even with batches of 4, which had not learnt enough); small networks on easy points fall to 0.01.
SATURATED = 0.1
EXPLODED = 10.0  # times the first loss, or 10 if that is below 1, by which a loss may grow; reasoned
ONE_COLOUR = 0.1  # share of pictures: crops of sound scenes had none; the limit is reasoned
UNREADABLE = 0.01  # share of the files; reasoned
MOST = 0.5  # a share of the data that is no longer a warning
AGAIN = "start again (another --out)"  # what was begun keeps its settings and its data
# Whatever it was at first: after LATE steps different images should not look this much alike. Reasoned.
THE_SAME = 0.995
# What the loss, in relation to the first one, and the gap of similarities move by where nothing is learnt: 0.05 and
# 0.01, from batch to batch. Usual runs of all methods moved further in one of the two, by 0.07 and more in the gap.
STILL_LOSS, STILL_GAP = 0.06, 0.03
# Prototypes in use, exp of the entropy of the mean assignment, and what single assignments lack to giving every
# prototype the same, in nats. Reasoned: the scores of an untrained network lack more, 0.2 in 256 dimensions.
ONE_PROTOTYPE, EVEN = 1.5, 0.02
# The std of a dimension that VICReg holds at 1: 0.34 in an untrained small head, 0.02 after 60 steps without its
# variance. The limit is reasoned.
SHRUNK = 0.1
LATE = 1000  # steps by which neighbours should be better than before training; reasoned: after 200 they were not yet


SCORES = {"knn": "kNN", "instance": "own image first"}
"""Scores that tell whether a run learns, and how they are called; the first that is measured counts."""
OF_VIEW = "query_similarity/"  # what the names of a measure of one of several views begin with


class Health:
    """Fed with the measures of a step now and then, says how the run is doing.

    coupled  whether the loss's gradient is scaled by q_B: info_nce, jcl, hard_negative

    >>> health = Health(coupled=True)
    >>> health.update(step, measure(...), loss=2.3, gradient=0.8)     # every 20 steps
    >>> health.verdict().text
    """

    def __init__(self, *, coupled: bool) -> None:
        self.coupled = coupled
        self.measured = 0  # times
        self.first: dict[str, float] = {}
        self.recent: list[dict[str, float]] = []
        self.since: dict[str, int] = {}  # word: the step from which on it has been true
        self.scores: dict[str, dict[str, float]] = {}  # by name: untrained, best, last, its step and gain's error

    def update(
        self,
        step: int,
        measures: Mapping[str, float],
        *,
        loss: float,
        gradient: float,
        unreadable: float = 0.0,
        flat: float = 0.0,
        scores: Mapping[str, float] | None = None,
        untrained: Mapping[str, float] | None = None,
        errors: Mapping[str, float] | None = None,
    ) -> None:
        """One measurement.

        measures          of `manyview.diagnose.measure`; none where nothing is contrasted. With several views those of
                          each are named "rank/VIEW" and so on, and each is judged by itself
        gradient          its norm over all parameters
        unreadable        share of the data's files
        flat              `flat_share` of the pictures
        scores            of held-out images, where they were just scored; those of `SCORES` are read
        untrained         the same before training; once is enough
        errors            by score, the standard error of its gain over the untrained one, where that is known
        """
        data = {"unreadable": unreadable, "flat": flat}
        record = {"step": float(step), "loss": loss, "gradient": gradient, **data, **measures}
        self.measured += 1
        self.first = self.first or record
        self.recent = [*self.recent, record][-WINDOW:]
        for name in SCORES:
            if (value := (untrained or {}).get(name)) is not None:
                self.scores.setdefault(name, {})["untrained"] = value
            if (value := (scores or {}).get(name)) is not None:
                told = self.scores.setdefault(name, {})
                told |= {"step": float(step), "last": value, "best": max(value, told.get("best", value))}
                told["error"] = (errors or {}).get(name, 0.0)
        self.since = {sign.name: self.since.get(sign.name, step) for sign in self._signs()}

    def verdict(self) -> Verdict:
        signs = list(self._signs())
        views = self._words(signs)
        if signs:
            sign, since = signs[0], f"since step {self.since[signs[0].name]}"
            text = f"{sign.word} {since}: {sign.seen}: {sign.advice}"
            alike = ", ".join(view for view, word in views.items() if sign.view and word == sign.word)
            if sign.view:
                text = f"{states(views)}: {since}, in {sign.view}, {sign.seen}: {sign.advice}"
            return Verdict(sign.level, sign.word, text, views, f"{alike} {sign.word}".strip())
        if self.measured < STARTING:
            return Verdict("unknown", "starting", f"starting: {self.measured} of {STARTING} measurements made", views)
        if self._learns():
            return Verdict("healthy", "healthy", f"healthy: {self._praise('learning')}", views)
        return Verdict("unknown", "not learning yet", f"not learning yet: {self._praise('but')}", views)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts."""
        return {name: copy.deepcopy(getattr(self, name)) for name in STATE}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        state = {"scores": {"knn": state["knn"]}, **state} if "knn" in state else state  # of an earlier version
        missing = sorted(set(STATE) - set(state))
        if missing:
            raise UserError("state", f"{', '.join(missing)} is missing; give what state_dict() gave")
        for name in STATE:
            setattr(self, name, copy.deepcopy(state[name]))

    def _signs(self) -> Iterator[Sign]:
        """Says what is wrong, the gravest first."""
        if not self.recent:
            return
        yield from self._diverging()
        if self.measured >= WINDOW // 2 + 1:
            yield from self._broken_data()
        if self.measured >= STARTING:
            views = self._views()
            for signs in (
                self._collapsing, self._shrinking, self._one_prototype_or_all, self._collapsed_dimensions,
                self._saturated,
            ):  # fmt: skip
                yield from (sign for view in views for sign in signs(view))
            yield from self._worse_score()
            yield from (sign for view in views for sign in self._nothing_moves(view))

    def _views(self) -> list[str]:
        """The views that were measured one by one; one without a name where there is one only."""
        named = [name for record in (self.first, *self.recent) for name in record if name.startswith(OF_VIEW)]
        return list(dict.fromkeys(name.removeprefix(OF_VIEW) for name in named)) or [""]

    def _words(self, signs: Sequence[Sign]) -> dict[str, Word]:
        """The gravest word about each of several views: bad ones first, as they are told."""
        gravest = {sign.view: sign.word for sign in reversed(signs) if sign.view}
        told = dict.fromkeys(sign.view for sign in signs if sign.view)
        otherwise: Word = "healthy" if self._learns() else "not learning yet"
        otherwise = "starting" if self.measured < STARTING else otherwise
        return {view: gravest.get(view, otherwise) for view in (*told, *self._views()) if view}

    def _mean(self, name: str, view: str = "") -> float:
        """The mean of a measure over the window; NaN where no step had one, as a step of one image has no pairs."""
        name = of_view(name, view)
        values = [record[name] for record in self.recent if not math.isnan(record.get(name, math.nan))]
        return sum(values) / len(values) if values else math.nan

    def _diverging(self) -> Iterator[Sign]:
        first, last = self.first["loss"], self.recent[-1]["loss"]
        advice = f"{AGAIN} with a lower --lr, or with --grad-clip 1"
        if not math.isfinite(last):
            yield Sign("bad", "diverging", f"the loss is {last}, which is no number", advice)
        elif len(self.recent) > 2 and not any(math.isfinite(record["gradient"]) for record in self.recent[-3:]):
            yield Sign("bad", "diverging", f"the gradient's norm is {self.recent[-1]['gradient']}", advice)
        elif last - first > EXPLODED * max(1.0, abs(first)):
            yield Sign("bad", "diverging", f"the loss has grown from {first:.3g} to {last:.3g}", advice)

    def _broken_data(self) -> Iterator[Sign]:
        faults = {
            "unreadable": (UNREADABLE, "of the files cannot be read", f"mend them, or {AGAIN} without them"),
            "flat": (ONE_COLOUR, "of the pictures have one single colour", f"{AGAIN} with other files or larger crops"),
        }
        for name, (limit, seen, advice) in faults.items():
            share = self._mean(name)
            if share > limit:
                yield Sign("bad" if share > MOST else "warning", "broken data", f"{share:.0%} {seen}", advice)

    def _collapsing(self, view: str) -> Iterator[Sign]:
        name = "query_similarity"
        alike, at_first = self._mean(name, view), self.first.get(of_view(name, view), math.nan)
        narrowed = alike > ALIKE and 1 - alike < NARROWED * (1 - at_first)
        if narrowed or (alike > THE_SAME and self._late()):
            seen = f"all images are becoming the same vector (similarity of different images {alike:.3f})"
            without = "a longer warm-up or a larger batch"
            more = "a higher temperature or more negatives" if self._contrasts(view) else without
            yield Sign("bad", "collapsing", seen, f"{AGAIN} with a lower --lr, {more}", view)

    def _shrinking(self, view: str) -> Iterator[Sign]:
        """Says whether vectors become one point by their length, which nobody sees who looks at directions alone."""
        name = "dimension_std"
        std, at_first = self._mean(name, view), self.first.get(of_view(name, view), math.nan)
        if std < SHRUNK and (std < NARROWED * at_first or self._late()):
            seen = f"all images are becoming the same vector (std of a dimension {std:.2g}, and the loss wants 1)"
            advice = f"{AGAIN} with a lower --lr, or a higher --decorrelation.variance"
            yield Sign("bad", "collapsing", seen, advice, view)

    def _one_prototype_or_all(self, view: str) -> Iterator[Sign]:
        """Says whether all images are assigned to one prototype, or each to all: how a method with prototypes
        collapses."""
        count, used = self._mean("prototypes", view), self._mean("prototypes_in_use", view)
        lacks = self._mean("assignment_entropy_limit", view) - self._mean("assignment_entropy", view)
        if used < ONE_PROTOTYPE:
            seen = f"all images are assigned to the same prototype ({used:.1f} of {count:.0f} in use)"
            yield Sign("bad", "collapsing", seen, f"{AGAIN} with a lower --lr or a higher teacher temperature", view)
        elif lacks < EVEN:
            seen = f"every image is assigned to all {count:.0f} prototypes alike ({lacks:.2g} nats from an even share)"
            yield Sign("bad", "collapsing", seen, f"{AGAIN} with a lower --lr or a lower teacher temperature", view)

    def _contrasts(self, view: str) -> bool:
        """Says whether there are negatives, so that more of them can help."""
        return any(of_view("negatives", view) in record for record in self.recent)

    def _collapsed_dimensions(self, view: str) -> Iterator[Sign]:
        rank, limit = self._mean("rank", view), self._mean("rank_limit", view)
        if limit >= ENOUGH and rank < DIMENSIONS and self._mean("query_similarity", view) <= ALIKE:
            seen = f"the vectors use about {rank:.1f} of {limit:.0f} possible dimensions"
            without = "a longer warm-up or a larger head"
            more = "a lower temperature or a higher t_neg" if self._contrasts(view) else without
            yield Sign("warning", "collapsed dimensions", seen, f"{AGAIN} with a lower --lr, {more}", view)

    def _saturated(self, view: str) -> Iterator[Sign]:
        factor, negatives = self._mean("coupling", view), self._mean("negatives", view)
        if self.coupled and factor < SATURATED:
            seen = f"the positive is already told apart from its {negatives:.0f} negatives (q_B {factor:.2g})"
            advice = f"{AGAIN} with dcl, more negatives (a larger batch, a queue) or a higher temperature"
            yield Sign("warning", "saturated", seen, advice, view)

    def _late(self) -> bool:
        return self.recent[-1]["step"] >= self.first["step"] + LATE

    def _nothing_moves(self, view: str) -> Iterator[Sign]:
        """Says whether loss and similarities are what they were at first."""
        loss, before = self._mean("loss"), self.first["loss"]
        still = abs(loss - before) < STILL_LOSS * max(1.0, abs(before)) and abs(self._gap_change(view)) < STILL_GAP
        learns = any(each.get("best", 0.0) > each.get("untrained", 1.0) for each in self.scores.values())
        if still and self._late() and not learns:
            one_loss = self.coupled and not view  # with several views it is a sum over their edges
            chance = f", {math.log1p(self._mean('negatives')):.3g} tells nothing apart" if one_loss else ""
            seen = f"the loss is {loss:.3g}{chance}, and {before:.3g} at first; positives are no nearer than then"
            more = ", or another temperature" if self._contrasts(view) else ", or more epochs"
            yield Sign("warning", "not learning", seen, f"{AGAIN} with a higher --lr{more}", view)

    def _worse_score(self) -> Iterator[Sign]:
        name, told = self._score()
        untrained, best = told.get("untrained", math.nan), told.get("best", math.nan)
        if best < untrained and told["step"] >= self.first["step"] + LATE:
            seen = f"{SCORES[name]} {best:.1%} at best, and {untrained:.1%} before training"
            advice = f"{AGAIN} with milder augmentation, another --lr, or more epochs"
            yield Sign("warning", "not learning", seen, advice)

    def _score(self) -> tuple[str, dict[str, float]]:
        """The score that tells whether the run learns, the first of `SCORES` that was measured; or nothing."""
        found = ((name, self.scores.get(name, {})) for name in SCORES)
        return next(((name, told) for name, told in found if {"last", "untrained"} <= set(told)), ("", {}))

    def _learns(self) -> bool:
        """Says whether the run is seen to learn: its score is above the untrained one by more than the gain's error.

        Without a score, the loss has fallen, or positives have come nearer than other images while it has not risen;
        against more or nearer negatives than at first, as while a queue fills, whose keys begin as noise, a loss rises
        by itself and says nothing.
        """
        name, told = self._score()
        if name:
            return told["last"] - told["untrained"] > told["error"]
        if not self.recent:
            return False
        loss, first = self._mean("loss"), self.first["loss"]
        margin = STILL_LOSS * max(1.0, abs(first))
        more = self._mean("negatives") > 1.1 * self.first.get("negatives", math.nan)
        may_rise = loss < first + margin or more or self._nearer_negatives() > STILL_GAP
        nearer = any(self._gap_change(view) > STILL_GAP for view in self._views())
        return loss < first - margin or (may_rise and nearer)

    def _nearer_negatives(self) -> float:
        """Measures how much nearer negatives have come than a batch's other images; 0 where they are the same."""
        before = self.first.get("negative_similarity", math.nan) - self.first.get("query_similarity", math.nan)
        return self._mean("negative_similarity") - self._mean("query_similarity") - before

    def _gap_change(self, view: str) -> float:
        """Measures how much nearer positives have come than other images since the start; NaN without pairs."""
        positive, alike = (of_view(name, view) for name in ("positive_similarity", "query_similarity"))
        before = self.first.get(positive, math.nan) - self.first.get(alike, math.nan)
        return self._mean("positive_similarity", view) - self._mean("query_similarity", view) - before

    def _praise(self, learning: str) -> str:
        """Gives what is known of collapse, and of learning: after the word "learning", or "but" where there is no
        sign."""
        name, told = self._score()
        score = [f"{SCORES[name]} {told['last']:.1%}, untrained {told['untrained']:.1%}"] if name else []
        seen = ", ".join([*score, f"the loss is {self._mean('loss'):.3g}, and {self.first['loss']:.3g} at first"])
        if "rank" not in self.recent[-1]:  # nothing is contrasted
            return seen
        collapse = "; ".join(f"{view} {self._praise_of(view)}".strip() for view in self._views())
        return f"not collapsed ({collapse}), {learning}: {seen}"

    def _praise_of(self, view: str) -> str:
        # with several views a query's positives and negatives are of another view, where all may be far away
        others = ("negative_similarity", "negatives") if view else ("query_similarity", "different images")
        rank, limit = self._mean("rank", view), self._mean("rank_limit", view)
        used = f"{rank:.0f} of {limit:.0f} dimensions in use"
        if limit < self._mean("dim", view):
            used = f"{rank:.0f} dimensions in use of at most {limit:.0f}, the vectors measured in a batch"
        apart = self._mean(others[0], view)
        compared = "" if math.isnan(apart) else f" and {apart:.2f} of {others[1]}"
        return f"similarity {self._mean('positive_similarity', view):.2f} of positives{compared}, {used}"
