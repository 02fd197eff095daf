"""Describes what a run gained over its start and, where that was weights, over an untrained encoder."""

from __future__ import annotations

from manyview.core.text import counted
from manyview.features.gain import gain_in_points
from manyview.training.state import RunState

FEW_STEPS = 20  # fewer say nothing of a gain; reasoned
SURE = 2.0  # standard errors from which on a gain is taken for one
NO_GAIN = (
    "no gain in {title}: the weights that it started from are {how}. Use those as they are, or try a lower "
    "--lr, more epochs, more images, or --encoder.freeze-below"
)
NO_BETTER = "{found} than before training: train longer, or with milder augmentation"
BEFORE = "(before training)"  # behind a score in the line of progress, until there is a newer one
FOUND = {"instance": "augmented views find their own image no more often"}
"""What came of a score that gained nothing, where its title does not read on: "own image first is no better"."""


def gain_lines(name: str, title: str, state: RunState) -> list[str]:
    """Describes a score at the end of a run and its gain, in plain words where that is nothing or may be chance.

    name   of the score
    title  its name for readers
    """
    after, start, error = state.scores[name], state.untrained_scores[name], state.gain_error(name)
    over = "" if error is None else f" (standard error over the same {len(state.answers[name]):,} held-out images)"
    gained, before = gain_in_points(after, start, error), state.random_scores.get(name)
    if not state.random_scores:
        no_better = NO_BETTER.format(found=FOUND.get(name, f"{title} is no better"))
        return [
            f"{title} {after:.1%}, untrained {start:.1%}: {gained} points{over}",
            *_doubts(state, title, after, start, error, no_better),
        ]
    said = f"{title} {after:.1%}: {gained} points over the weights that it started from, {start:.1%}"
    if before is not None:
        points = gain_in_points(after, before, state.gain_error_over_random(name))
        said += f"; {points} over an untrained encoder, {before:.1%}"
    how = "better" if error is not None and start - after >= SURE * error > 0 else "as good"
    return [f"{said}{over}", *_doubts(state, title, after, start, error, NO_GAIN.format(title=title, how=how))]


def start_line(name: str, title: str, state: RunState) -> str:
    """Describes a score before the first step."""
    start, before = state.untrained_scores[name], state.random_scores.get(name)
    if not state.random_scores:
        return f"{title} of the untrained encoder {start:.1%}"
    of_random = "" if before is None else f", of an untrained encoder {before:.1%}"
    return f"{title} of the weights that it starts from {start:.1%}{of_random}"


def live_gain(name: str, title: str, state: RunState) -> str:
    """Describes a score in the line of progress, with its gain so far."""
    now, start, before = state.scores[name], state.untrained_scores.get(name), state.random_scores.get(name)
    if not state.scored_since(name):
        return f"{title} {now:.1%} {BEFORE}"
    if start is None:
        return f"{title} {now:.1%}"
    whose = "its start" if state.random_scores else "untrained"
    said = [f"{gain_in_points(now, start, state.gain_error(name))} over {whose}"]
    said += [] if before is None else [f"{gain_in_points(now, before)} over untrained"]
    return f"{title} {now:.1%} ({', '.join(said)})"


def _doubts(state: RunState, title: str, after: float, start: float, error: float | None, no_gain: str) -> list[str]:
    """Qualifies a gain that is none, or too small to be sure of."""
    if state.step < FEW_STEPS:
        return [f"{counted(state.step, 'step')} {'is' if state.step == 1 else 'are'} too few to tell a gain in {title}"]
    if after <= start:
        return [no_gain]
    if error is not None and after - start < SURE * error:
        return [
            f"the gain in {title} is less than {SURE:g} standard errors: it may be chance; train longer, "
            "or hold out more images"
        ]
    return []
