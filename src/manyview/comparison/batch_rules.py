"""Rules, by name, for the batch size of methods that take different numbers of copies of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from manyview.comparison.plan import PlannedRun
from manyview.core.errors import UserError, hint
from manyview.methods import Method
from manyview.training.build import small_method

COPIES = 2  # of an image, that a batch size is meant for
SAME = "same"


@dataclass(frozen=True)
class BatchRule:
    """A rule for a method's batch size in images, given the one for a method with two copies and one positive.

    meaning  a sentence for readers of the table
    batch    (batch, method) -> images a step
    """

    meaning: str
    batch: Callable[[int, Method], int]


BATCH_RULES: dict[str, BatchRule] = {
    SAME: BatchRule(
        "every method takes as many images a step, however many copies of each it takes", lambda batch, method: batch
    ),
    "copies": BatchRule(
        "every method takes as many augmented copies a step: batch x 2 / copies",
        lambda batch, method: COPIES * batch // method.copies,
    ),
    "positives": BatchRule(
        "every method takes as many positives a step: batch / K for K positives a query, as in CACR, section 5",
        lambda batch, method: batch // method.positives,
    ),
}
"""What the texts say. `same`: JCL's batch "remains the same as the conventional contrastive learning" (appendix B), and
CACR's in ImageNet's set-up is 256 for K = 1 and K = 4 (Table 4, C.2). `positives`: CACR divides the batch by 4 for
K = 4 (section 5), and its Table 17 counts K x M samples a step: 256 x 1, 128 x 2, 64 x 4 (and 64 x 3, which is fewer).
On CIFAR it has 768 for K = 1 and 128 for K = 4 (C.1), a sixth, which follows from none of these: give it by recipes.
`copies` is of no paper: it is the rule under which a step costs each method as many passes through its encoder."""


def with_batches(runs: Sequence[PlannedRun], rule: str, views: Sequence[str]) -> list[PlannedRun]:
    """Gives each run the batch size of the rule, computed from the one that all runs were planned with.

    views  names of the views that the data has for the methods, where no setting names them

    Under any rule but `same`, recipes with batches of their own are refused: they may have been divided already.
    """
    check_rule(rule)
    batches = {run.method: run.config.batch_size for run in runs}
    if rule != SAME and len(set(batches.values())) > 1:
        own = ", ".join(f"{method} {batch}" for method, batch in batches.items())
        raise UserError(
            "batch_rule",
            f"{rule} divides one batch, and the recipes set several ({own}); give --batch-size, that of a method with "
            f"one positive, or --batch-rule {SAME}, which leaves the recipes' own",
        )
    return [_with_batch(run, rule, views) for run in runs]


def check_rule(rule: str) -> None:
    if rule not in BATCH_RULES:
        raise UserError("batch_rule", f"there is none named {rule!r}; {hint(rule, BATCH_RULES)}")


def describe_rule(rule: str, batches: Mapping[str, int]) -> str:
    """Writes a sentence about the batch sizes that methods had under a rule."""
    if rule == SAME and len(set(batches.values())) > 1:
        return "Batches are those that the recipes set."
    return f"Batches by the rule {rule}: {BATCH_RULES[rule].meaning}."


def _with_batch(run: PlannedRun, rule: str, views: Sequence[str]) -> PlannedRun:
    config = run.config
    method = small_method(config, config.views or views)
    batch, groups = BATCH_RULES[rule].batch(config.batch_size, method), method.towers.bn_splits
    if batch == config.batch_size:
        return run
    batch = batch // groups * groups  # of batch norm
    if batch < 2:
        raise UserError(
            "batch_size",
            f"{config.batch_size} images are {batch} of {run.method} by the rule {rule}, which takes {method.copies} "
            f"copies of each; give a larger one, or --batch-rule {SAME}",
        )
    return replace(run, config=replace(config, batch_size=batch))
