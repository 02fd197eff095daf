"""What a training's loss did, in words."""

from __future__ import annotations

from collections.abc import Sequence

SHARE = 10  # the first and the last tenth of the losses are compared
LITTLE = 0.05  # a fall of so small a share is none
STILL = 0.02  # a fall of so much from the last tenth but one to the last: more steps would help


def loss_in_words(losses: Sequence[float]) -> str:
    """A sentence on a training's losses, in their order: whether they fell, rose, or were still falling at the end."""
    if len(losses) == 1:
        return f"the loss was {losses[0]:.3g}, and was logged once: train for longer to see what it does"
    few = max(1, len(losses) // SHARE)
    first, last = (sum(part) / len(part) for part in (losses[:few], losses[-few:]))
    moved = f"from {first:.3g} to {last:.3g}"
    if last > first * (1 + LITTLE):
        return f"the loss rose {moved}: the learning rate is too high"
    if last > first * (1 - LITTLE):
        return f"the loss hardly fell, {moved}: train for longer, or with a higher learning rate"
    before = losses[-2 * few : -few]
    if before and last < (1 - STILL) * sum(before) / len(before):
        return f"the loss fell {moved}, and was still falling at the end: more epochs would help"
    return f"the loss fell {moved}"
