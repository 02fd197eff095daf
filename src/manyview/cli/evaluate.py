"""The command `manyview evaluate`: a table of scores, beside those of the untrained network."""

import inspect
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from manyview.cli.arguments import usage
from manyview.cli.embed import Pretrained, Size, Stem, Weights, tell_unended
from manyview.cli.score_table import announce, report
from manyview.cli.suite import PROTOCOL, run_suite
from manyview.config.keys import Flat, flag_name, shown, typed
from manyview.config.sections import data_keys
from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.embeddings.open_model import run_of
from manyview.evaluate.protocols import ACROSS, FUNCTIONS, PROTOCOLS, SUPERVISED, USUAL, known, schema
from manyview.evaluate.protocols import evaluate as judged
from manyview.evaluate.results import FILE
from manyview.features.feature_cache import FeatureCache


def evaluate(
    what: Annotated[
        str | None,
        "a run's folder, a file of weights, a name such as timm/resnet18, or one per view: VIEW=ONE,VIEW=OTHER",
    ] = None,
    *,
    data: Annotated[str | None, "labelled images; by default the run's own, split as the run split them"] = None,
    transfer_to: Annotated[tuple[str, ...], "evaluate on these data sets instead (transfer)"] = (),
    protocols: Annotated[
        tuple[str, ...] | None,
        f"{', '.join(PROTOCOLS)}; by default {' and '.join(USUAL)}, and {ACROSS[0]} with one encoder per view",
    ] = None,
    suite: Annotated[
        Literal["elevater"] | None,
        "shot-transfer on those of ELEVATER's 20 data sets that are in --data.root, as in CACR's Table 6",
    ] = None,
    against: Annotated[str | None, "with --suite: another run or file to compare with"] = None,
    size: Size = None,
    weights: Weights = None,
    pretrained: Pretrained = False,
    stem: Stem = None,
    supervised: Annotated[bool, "also train the network with all labels, for comparison"] = False,
    seed: int = 0,
    device: Annotated[str, "auto, cpu or cuda"] = "auto",
    workers: Annotated[int | None, "processes that read images"] = None,
    batch_size: Annotated[Count, "images per forward pass of the encoder"] = 256,
    out: Annotated[str | None, f"the folder of {FILE}; by default the run's, or evaluations/ENCODER"] = None,
    recompute: Annotated[bool, "compute again what results.json already holds"] = False,
    cache: Annotated[
        str | None, "the folder of cached features; by default $MANYVIEW_CACHE or ~/.cache/manyview/features"
    ] = None,
    no_cache: Annotated[bool, "cache no features on disk"] = False,
    help: bool = False,
    **settings: Any,
) -> int:
    """Evaluates an encoder on labels that its training did not use, beside the same network untrained.

    The encoder is a run, a file of weights, or any network of timm and torchvision. Scores are shares of right answers
    in percent.
    """
    if help:
        about = "\n".join(_about(name) for name in (*PROTOCOLS, SUPERVISED))
        print(f"{usage(evaluate)}\n\nprotocols and their settings:\n{about}")
        return 0
    if what is None:
        raise UserError(None, "give a run's folder, or an encoder such as timm/resnet18; --help tells more")
    if suite is not None:
        protocols = _suite_alone(protocols, data, transfer_to, supervised)
    elif against is not None:
        raise UserError("against", "is for --suite; give that too")
    names = None if protocols is None else known(protocols)
    by_protocol, options = _divided(settings, [*(names or (*USUAL, *ACROSS)), *([SUPERVISED] if supervised else [])])
    folder = results_folder(what, out, pretrained, weights)
    say = partial(print, file=sys.stderr)
    kept = None if no_cache else FeatureCache(cache)
    if suite is not None:
        own = {"size": size, "weights": weights, "pretrained": pretrained, "stem": stem}
        other = {} if against is None else {against: results_folder(against, None, False, None)}
        common = {"seed": seed, "device": device, "workers": workers, "batch_size": batch_size,
                  "recompute": recompute, "cache": kept, "show_bar": True}  # fmt: skip
        lies, chosen = _suite_data(options), by_protocol.get(PROTOCOL, {})
        return run_suite(suite, {**other, what: folder}, lies, chosen, {what: own}, say, common)
    for each in _data(what, data, transfer_to, options):
        results = judged(
            what, each, names, settings=by_protocol, size=size, weights=weights, pretrained=pretrained, stem=stem,
            seed=seed, device=device, workers=workers, batch_size=batch_size, out=folder, supervised=supervised,
            recompute=recompute, cache=kept, show_bar=True, say=say, done=announce,
        )  # fmt: skip
        print(report(results))
    tell_unended(what)
    print(f"\nwrote {printable(str(folder / FILE))}")
    return 0


def _suite_alone(
    protocols: tuple[str, ...] | None, data: str | None, transfer_to: Sequence[str], supervised: bool
) -> tuple[str, ...]:
    """Returns the protocol of suites; a suite has data of its own, and nothing else is computed with it."""
    others = {"protocols": protocols not in (None, (PROTOCOL,)), "data": data, "transfer-to": transfer_to,
              "supervised": supervised}  # fmt: skip
    for name, given in others.items():
        if given:
            raise UserError(name, f"a suite is {PROTOCOL} on data sets of its own; leave it out")
    return (PROTOCOL,)


def _suite_data(options: Flat) -> Flat:
    """Reads where the data sets of a suite are, and whether they may be downloaded."""
    for name in options:
        if name not in ("root", "download"):
            raise UserError(f"--data.{flag_name(name)}", "a suite takes --data.root and --data.download alone")
    given = typed(data_keys("cifar10"), {}, {f"data.{key}": value for key, value in options.items()})
    return {name: given[f"data.{name}"] for name in options}


def _about(name: str) -> str:
    """Describes a protocol, with its settings as flags."""
    what = (inspect.getdoc(FUNCTIONS[name]) or "").split("\n")[0]
    keys = [f"      --{flag_name(key)} {shown(each.default)}" for key, each in schema(name).items()]
    return "\n".join([f"  {name}: {what}", *keys])


def _divided(given: Flat, protocols: list[str]) -> tuple[dict[str, Flat], Flat]:
    """Divides settings such as --knn.k 200 by protocol, apart from the options of the data."""
    names = {name.replace("-", "_"): name for name in protocols}
    found: dict[str, Flat] = {}
    options: Flat = {}
    for key, value in given.items():
        section, dot, setting = key.partition(".")
        if not dot:
            raise UserError(f"--{flag_name(key)}", "there is no such flag; --help shows all")
        if section == "data":
            options[setting] = value
        elif section in names:
            found.setdefault(names[section], {})[setting] = value
        else:
            asked = f"--protocols {','.join(protocols)}"
            raise UserError(f"--{key}", f"there is no protocol {section!r} in {asked}, whose setting it could be")
    return found, options


def _data(what: str, data: str | None, transfer_to: Sequence[str], options: Flat) -> list[Any]:
    """Lists the data sets to evaluate on with their options: the run's own where none is given."""
    if transfer_to and data:
        raise UserError("transfer-to", "is instead of --data; give one of them")
    names, own = [*transfer_to, *([data] if data else [])], {}
    if not names and options:
        run = run_of(what)
        if run is None or run.config.own_data:
            raise UserError(f"data.{next(iter(options))}", "give --data too")
        names, own = [run.config.data["name"]], {**run.config.data_options, "imbalance": None}
    given = {f"data.{key}": value for key, value in options.items()}
    values = {name: typed(data_keys(name), {}, given) for name in names}
    return [{"name": name, **own, **{key: values[name][f"data.{key}"] for key in options}} for name in names] or [None]


def results_folder(
    what: str, out: str | None, pretrained: bool, weights: str | None, *, within: str = "", others: str = "evaluations"
) -> Path:
    """Chooses the folder of results: the given one, the run's (or one `within` it), else one of `others` by name."""
    run = run_of(what)
    if out or run is not None:
        return Path(out) if out else run.folder / within  # type: ignore[union-attr]
    name = "-".join(part for part in Path(what).with_suffix("").parts if part.strip("/."))
    kind = "-pretrained" if pretrained else f"-{Path(weights).stem}" if weights else ""
    return Path(others) / f"{name}{kind}"
