"""`manyview evaluate`: a table of scores, beside those of the untrained network."""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from manyview.cli.commands import Parser, shown
from manyview.config.flags import read_flags
from manyview.core.errors import UserError
from manyview.core.text import one_line
from manyview.embeddings.model_source import run_of
from manyview.evaluate.protocols import PROTOCOLS, SUPERVISED, USUAL, evaluate, known, protocol, schema
from manyview.evaluate.results import FILE, Result
from manyview.features.feature_cache import FeatureCache

SHOWN = 12  # scores of a protocol that the table has room for
ABOUT = """Judges an encoder with labels that training never saw: a run, a file of weights, or any encoder of timm and
torchvision. Scores are shares of right answers in percent, beside those of the same network untrained."""


def command(arguments: list[str]) -> int:
    """`manyview evaluate`"""
    plain, dotted = _divided(arguments)
    given = _parser().parse_args(plain)
    if given.what is None:
        raise UserError(None, "give a run's folder, or an encoder such as timm/resnet18; --help tells more")
    protocols = known(given.protocols.split(","))
    settings, options = _settings(dotted, [*protocols, *([SUPERVISED] if given.supervised else [])])
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        for data in _data(given, options):
            results = evaluate(
                given.what, data, protocols, settings=settings, size=given.size, weights=given.weights,
                pretrained=given.pretrained, stem=given.stem, seed=given.seed, device=given.device,
                workers=given.workers, batch_size=given.batch_size, out=_out(given), supervised=given.supervised,
                again=given.recompute, store=None if given.no_cache else FeatureCache(given.cache), bar=True, say=_say,
            )  # fmt: skip
            print(report(results))
    print(f"\nwrote {_out(given) / FILE}")
    return 0


def report(results: list[Result]) -> str:
    """What was judged on what, and a line for each score."""
    first, supervised = results[0], any(each.supervised for each in results)
    lines = [("protocol", "score", "trained", "untrained", "gain", *(["supervised"] if supervised else []))]
    for result in results:
        lines += _rows(result, supervised=supervised)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    table = [_aligned(line, widths) for line in lines]
    return "\n".join(["", *_heading(first), "", table[0], "-" * len(table[0]), *table[1:]])


def _heading(result: Result) -> list[str]:
    data, subject = result.data, result.subject
    kept = "kept aside" if data["aside"] else "in its test split"
    judged = f"{subject['name']}: {subject['encoder']} at {subject['size']} px, seed {result.seed}"
    counts = f"{data['train']:,} images to learn from, {data['test']:,} {kept}, {data['classes']} classes"
    blank = "its weights are drawn, not learnt: give --pretrained, or --weights FILE"
    unused = [f"its test split is not used: {data['why']}"] if "why" in data else []
    return [judged, f"{data['name']}: {counts}", *unused, *([] if subject["trained"] else [blank])]


def _rows(result: Result, *, supervised: bool) -> list[tuple[str, ...]]:
    """With a column for the supervised network, which some results have and others of the same table may not."""
    rows: list[tuple[str, ...]] = []
    for name, value in list(result.scores.items())[:SHOWN]:
        first = _named(result) if not rows else ""
        trained = bool(result.subject["trained"])
        after, before = (value, (result.untrained or {}).get(name)) if trained else (None, value)
        gain = "" if after is None or before is None or not _is_share(name) else f"{100 * (after - before):+.1f}"
        more = [_said(name, (result.supervised or {}).get(name))] if supervised else []
        rows.append((first, name, _said(name, after), _said(name, before), gain, *more))
    rest = len(result.scores) - SHOWN
    return rows if rest <= 0 else [*rows, ("", f"{rest} more in {FILE}", *[""] * (len(rows[0]) - 2))]


def _named(result: Result) -> str:
    """With the settings that a score means nothing without."""
    told = {"knn": ("k", "temperature"), "linear": ("recipe",), "finetune": ("recipe",), "semi": ("mode",)}
    settings = [f"{key} {result.settings[key]}" for key in told.get(result.protocol, ()) if key in result.settings]
    return " ".join([result.protocol, *([f"({', '.join(settings)})"] if settings else [])])


def _is_share(name: str) -> bool:
    return "chosen" not in name and not name.endswith("epoch")


def _said(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f}%" if _is_share(name) else f"{value:g}"


def _aligned(line: Iterable[str], widths: list[int]) -> str:
    cells = [f"{cell:<{w}}" if n < 2 else f"{cell:>{w}}" for n, (cell, w) in enumerate(zip(line, widths, strict=True))]
    return "  ".join(cells).rstrip()


def _parser() -> Parser:
    parser = Parser(
        "manyview evaluate",
        description=ABOUT,
        allow_abbrev=False,
        epilog="protocols and their settings:\n" + "\n".join(_about(name) for name in (*PROTOCOLS, SUPERVISED)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("what", nargs="?", metavar="RUN|ENCODER", help="a run's folder, a file of weights, a name such as "
        "timm/resnet18, or VIEW=ONE,VIEW=ANOTHER for an encoder per view")  # fmt: skip
    add("--data", metavar="PATH|NAME", help="labelled images; of a run, without it, the run's own, as it divided them")
    add("--transfer-to", metavar="PATH|NAME,...", help="judge on these data sets instead: transfer")
    add("--protocols", default=",".join(USUAL), help=f"{', '.join(PROTOCOLS)} (default {','.join(USUAL)})")
    add("--size", type=int, help="of the pictures, for an encoder by name")
    add("--weights", metavar="FILE", help="a safetensors file for an encoder by name")
    add("--pretrained", action="store_true", help="the library's published weights")
    add("--stem", choices=["cifar"], help="of a ResNet that was trained with it")
    add("--supervised", action="store_true", help="also train the network with all labels, to compare")
    add("--seed", type=int, default=0)
    add("--device", default="auto", help="auto, cpu or cuda")
    add("--workers", type=int, help="processes that read images")
    add("--batch-size", type=int, default=256, help="images that the encoder looks at at a time")
    add("--out", metavar="FOLDER", help=f"of {FILE}; by default the run's, or evaluations/ENCODER")
    add("--recompute", action="store_true", help="compute what is there already")
    add("--cache", metavar="FOLDER", help="of features; by default $MANYVIEW_CACHE or ~/.cache/manyview/features")
    add("--no-cache", action="store_true", help="keep no features on disk")
    return parser


def _about(name: str) -> str:
    """What a protocol is, and its settings as one would give them."""
    what = (inspect.getdoc(protocol(name)) or "").split("\n")[0]
    keys = [f"      --{key.replace('_', '-')} {shown(key, each, {})}" for key, each in schema(name).items()]
    return "\n".join([f"  {name}: {what}", *keys])


def _divided(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Plain arguments, and settings of protocols and data such as --knn.k 200."""
    plain: list[str] = []
    dotted: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        is_setting = word.startswith("--") and "." in word.partition("=")[0]
        (dotted if is_setting else plain).append(word)
        if is_setting and "=" not in word and rest and not rest[0].startswith("--"):
            dotted.append(rest.pop(0))
    return plain, read_flags(dotted)


def _settings(dotted: dict[str, Any], protocols: list[str]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """By protocol, and the options of the data."""
    names = {name.replace("-", "_"): name for name in protocols}
    found: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    for key, value in dotted.items():
        section, _, setting = key.partition(".")
        if section == "data":
            options[setting] = value
        elif section in names:
            found.setdefault(names[section], {})[setting] = value
        else:
            asked = f"--protocols {','.join(protocols)}"
            raise UserError(None, f"--{key}: there is no protocol {section!r} in {asked}, whose setting it could be")
    return found, options


def _data(given: argparse.Namespace, options: dict[str, Any]) -> list[Any]:
    """What to judge on, with options: those of the run's own, or as they were typed."""
    if given.transfer_to and given.data:
        raise UserError(None, "--transfer-to: is instead of --data; give one of them")
    names = given.transfer_to.split(",") if given.transfer_to else [given.data] if given.data else []
    if not names and options:
        raise UserError(None, f"--data.{next(iter(options))}: give --data too")
    if not names:
        return [None]
    return [{"name": name, **_typed_options(name, options)} for name in names]


def _typed_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    from manyview.config.keys import unknown
    from manyview.config.sections import data_keys
    from manyview.config.values import typed

    keys, given = data_keys(name), {f"data.{key}": value for key, value in options.items()}
    for key in given:
        if key not in keys:
            raise UserError(key, unknown(key, keys))
    values = typed(keys, {}, given)
    return {key: values[f"data.{key}"] for key in options}


def _out(given: argparse.Namespace) -> Path:
    run = run_of(given.what)
    if given.out or run is not None:
        return Path(given.out) if given.out else run.folder  # type: ignore[union-attr]
    name = "-".join(part for part in Path(given.what).with_suffix("").parts if part.strip("/."))
    kind = "-pretrained" if given.pretrained else f"-{Path(given.weights).stem}" if given.weights else ""
    return Path("evaluations") / f"{name}{kind}"


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """In a line, without the place in the code."""
    print(f"warning: {one_line(str(message))}", file=sys.stderr)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
