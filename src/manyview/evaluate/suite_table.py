"""The scores of a suite as in CACR's Table 6: encoders, gains, the mean over data sets and the number of wins."""

from __future__ import annotations

from collections.abc import Mapping

from manyview.evaluate.suite import SuiteScores

MEAN, WINS = "Mean", "# Wins"


def shown(value: float) -> float:
    """Writes a share in percent with one digit. Gains, means and wins are computed from such numbers, so that they add
    up."""
    return round(100 * value, 1)


def kinds(scores: SuiteScores) -> list[str]:
    """Names the scores that sets have in common, without their stds: "5-shot finetune", "5-shot linear"."""
    named = [list(found) for sets in scores.by_model.values() for found in sets.values()]
    return [name for name in (named[0] if named else []) if not name.endswith(" std")]


def values(scores: SuiteScores, model: str, kind: str) -> dict[str, float]:
    """Returns the scores in percent by data set, as they are printed."""
    return {each.name: shown(scores.by_model[model][each.name][kind]) for each in scores.scored}


def wins(ours: Mapping[str, float], theirs: Mapping[str, float]) -> int:
    """Counts the data sets on which a score is higher than the other's; equal scores are no win for either."""
    return sum(ours[name] > theirs[name] for name in ours)


def mean(found: Mapping[str, float]) -> float:
    return round(sum(found.values()) / len(found), 1)


def rows(scores: SuiteScores) -> list[list[str]]:
    """Makes the table's cells, the header first: for each kind of score a line per encoder and one of gains."""
    models = list(scores.by_model)
    table = [["", "", *(each.title for each in scores.scored), MEAN, *([WINS] if len(models) == 2 else [])]]
    if not scores.scored:
        return table
    for kind in kinds(scores):
        found = {model: values(scores, model, kind) for model in models}
        for place, model in enumerate(models):
            ends = [f"{mean(found[model]):.1f}"]
            ends += [str(wins(found[model], found[models[1 - place]]))] if len(models) == 2 else []
            first = kind if not place else ""
            table.append([first, model, *(f"{each:.1f}" for each in found[model].values()), *ends])
        if len(models) == 2:
            before, after = (found[model] for model in models)
            gains = [f"{after[name] - before[name]:+.1f}" for name in after]
            table.append(["", "Gains", *gains, f"{mean(after) - mean(before):+.1f}", ""])
    return table


def markdown(scores: SuiteScores) -> str:
    """Writes the table as in the paper, with data sets side by side, and what is missing from it."""
    head, *body = rows(scores)
    lines = [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *body)]
    return "\n".join([*lines, "", *notes(scores), ""])


def upright(scores: SuiteScores) -> str:
    """Writes the table for a terminal, with data sets one below the other."""
    columns = list(zip(*rows(scores), strict=True))
    widths = [max(len(column[place]) for column in columns) for place in range(len(columns[0]))]
    formats = "  ".join([f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])])
    return "\n".join([*(formats.format(*column).rstrip() for column in columns), "", *notes(scores)])


def notes(scores: SuiteScores) -> list[str]:
    """Lists how many data sets the mean is over, which are missing, and which failed with what error."""
    said = [f"The mean is over {len(scores.scored)} of {len(scores.sets)} sets."]
    if scores.missing:
        said.append(f"Left out: {', '.join(scores.missing)}.")
    return said + [f"Failed and left out, {name}: {why}." for name, why in scores.failed.items()]
