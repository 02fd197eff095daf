"""The table of scores that `manyview evaluate` prints, and how such tables are aligned."""

from collections.abc import Sequence

from manyview.core.text import printable
from manyview.embeddings.model_source import ALL
from manyview.evaluate.results import Result
from manyview.features.gain import gain_in_points


def report(results: list[Result]) -> str:
    """Writes what was evaluated on what, and a line for each score."""
    supervised = any(each.supervised for each in results)
    lines = [("protocol", "score", "trained", "untrained", "gain", *(["supervised"] if supervised else []))]
    for result in results:
        lines += _rows(result, supervised=supervised)
    return "\n".join(["", *_heading(results), "", *aligned(lines, texts=2), *_without_error(results)])


def _without_error(results: list[Result]) -> list[str]:
    """Says why the gains of few shots have no standard error."""
    if not any(each.protocol == "fewshot" and each.untrained for each in results):
        return []
    return ["", "fewshot: scores are means over draws of labels, so that gains have no ±; std is that over the draws"]


def aligned(rows: Sequence[Sequence[str]], *, texts: int) -> list[str]:
    """Aligns the columns of a table, the first `texts` of them to the left, and rules off its first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    formats = [f"{{:{'<' if number < texts else '>'}{width}}}" for number, width in enumerate(widths)]
    lines = ["  ".join(formats).format(*row).rstrip() for row in rows]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _heading(results: list[Result]) -> list[str]:
    result = results[0]
    data, model = result.data, result.model
    joins = "views" in model and any(name.startswith(f"{ALL} ") for each in results for name in each.scores)
    kept = "held out" if data["held_out"] else "in its test split"
    judged = f"{model['name']}: {model['encoder']} at {model['size']} px, seed {result.seed}"
    classes = f", {data['classes']} classes" if data["classes"] else ", no classes"
    counts = f"{data['train']:,} training images, {data['test']:,} {kept}{classes}"
    several = [f"{ALL} is {' and '.join(model['views'])} side by side"] if joins else []
    several += [_counts(data["parts"])] if "parts" in data else []
    blank = "its weights are random: give --pretrained, or --weights FILE"
    unused = [f"its test split is not used: {data['why']}"] if "why" in data else []
    rare = [_balanced(data["imbalance"])] if "imbalance" in data else []
    lines = [judged, f"{data['name']}: {counts}", *rare, *several, *unused, *([] if model["trained"] else [blank])]
    return [printable(line) for line in lines]


def _counts(parts: dict[str, Sequence[int]]) -> str:
    """Says how many training and test images each part has, where some images lack a view."""
    told = ", ".join(f"{part} {train:,} and {test:,}" for part, (train, test) in parts.items())
    return f"some images lack a view; training and test images of each score: {told}"


def _balanced(rule: str) -> str:
    return f"classifiers learn from all training images; pre-training saw those that imbalance {rule} left"


def _rows(result: Result, *, supervised: bool) -> list[tuple[str, ...]]:
    """Makes the lines of a result; a table has the column of the supervised network for all results or for none."""
    rows: list[tuple[str, ...]] = []
    for name, value in result.scores.items():
        first = _named(result) if not rows else ""
        trained = bool(result.model["trained"])
        after, before = (value, (result.untrained or {}).get(name)) if trained else (None, value)
        gain = "" if after is None or before is None or not _can_gain(name) else _gain(result, name, after, before)
        more = [_said(name, (result.supervised or {}).get(name))] if supervised else []
        rows.append((first, name, _said(name, after), _said(name, before), gain, *more))
    return rows


def _gain(result: Result, name: str, after: float, before: float) -> str:
    """Writes the difference of the scores as they are printed, with its standard error where that is known."""
    return gain_in_points(after, before, (result.errors or {}).get(name))


def announce(result: Result) -> None:
    """Prints scores as soon as they are computed, before the table."""
    found = [f"{name} {_said(name, value)}" for name, value in result.scores.items()]
    print(f"{result.protocol}: {', '.join(found)}", flush=True)


def _named(result: Result) -> str:
    """Names the protocol with those settings that its score cannot be read without."""
    told = {"knn": ("k", "temperature"), "linear": ("recipe",), "finetune": ("recipe",), "semi": ("mode",)}
    settings = [f"{key} {result.settings[key]}" for key in told.get(result.protocol, ()) if key in result.settings]
    return " ".join([result.protocol, *([f"({', '.join(settings)})"] if settings else [])])


def _is_share(name: str) -> bool:
    return "chosen" not in name and not name.endswith("epoch")


def _can_gain(name: str) -> bool:
    """Tells whether more of a score is better, which does not hold for a standard deviation."""
    return _is_share(name) and not name.endswith(" std")


def _said(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f}%" if _is_share(name) else f"{value:g}"
