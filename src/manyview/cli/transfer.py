"""The command `manyview transfer`: an encoder on a dense task, beside the untrained network and one from scratch."""

import inspect
import sys
from functools import partial
from typing import Annotated, Any

from manyview.cli.arguments import table, usage
from manyview.cli.embed import Pretrained, Size, Stem, Weights, tell_unended
from manyview.cli.evaluate import results_folder
from manyview.cli.score_table import aligned
from manyview.config.keys import Flat, flag_name, shown, typed
from manyview.config.sections import data_keys
from manyview.core.distributed import rank
from manyview.core.errors import UserError
from manyview.core.text import one_line, printable
from manyview.evaluate.results import FILE, Result
from manyview.report.transfer_page import write_transfer_page
from manyview.transfer.records import HOME
from manyview.transfer.transfer import TASKS, schema
from manyview.transfer.transfer import transfer as transferred

COLUMNS = ("trained", "untrained", "supervised")


def transfer(
    what: Annotated[
        str | None,
        "a run's folder, a file of weights, a name such as timm/resnet18, or one per view: VIEW=ONE,VIEW=OTHER",
    ] = None,
    *,
    task: Annotated[str | None, ", ".join(TASKS)] = None,
    data: Annotated[str | None, "images with the targets of the task; by default the run's own"] = None,
    size: Size = None,
    weights: Weights = None,
    pretrained: Pretrained = False,
    stem: Stem = None,
    untrained: Annotated[bool, "also train the task from the untrained network"] = True,
    supervised: Annotated[
        bool, "also train network and task together from scratch; for detectors, from the library's published weights"
    ] = True,
    seed: int = 0,
    device: Annotated[str, "auto, cpu or cuda"] = "auto",
    workers: Annotated[int | None, "processes that read images; for detectors, threads"] = None,
    out: Annotated[
        str | None, f"the folder of {FILE} and the trainings; by default RUN/{HOME}, or transfers/ENCODER"
    ] = None,
    recompute: Annotated[bool, "compute again what results.json already holds"] = False,
    onnx: Annotated[bool, "also write the trained model as ONNX"] = False,
    quiet: Annotated[bool, "show no progress"] = False,
    help: bool = False,
    **settings: Any,
) -> int:
    """Trains a task on top of an encoder and scores it on test images, beside the same from the untrained network.

    The encoder is a run, a file of weights, or any network of timm and torchvision. The same command resumes what was
    stopped.
    """
    if help:
        about = "\n\n".join(_about(name) for name in TASKS)
        print(f"{usage(transfer)}\n\ntasks and their settings:\n\n{about}")
        return 0
    if what is None:
        raise UserError(None, "give a run's folder, or an encoder such as timm/resnet18; --help tells more")
    if task is None:
        raise UserError("task", f"is needed; give --task, one of {', '.join(TASKS)}")
    chosen, options = _divided(task, settings)
    folder = results_folder(what, out, pretrained, weights, within=HOME, others="transfers")
    say = partial(print, file=sys.stderr, flush=True)
    result = transferred(
        what, task, _data(data, options), settings=chosen, out=folder, untrained=untrained, supervised=supervised,
        recompute=recompute, onnx=onnx, seed=seed, device=device, workers=workers, quiet=quiet, say=say, size=size,
        weights=weights, pretrained=pretrained, stem=stem,
    )  # fmt: skip
    if rank():
        return 0
    print(report(result))
    tell_unended(what)
    print(f"\nwrote {printable(str(folder / FILE))}")
    try:
        print(f"report {printable(str(write_transfer_page(folder, result.model['name'])))}")
    except (UserError, OSError) as error:  # the scores are there, whatever becomes of their page
        say(f"no report was written: {one_line(str(error))}")
    return 0


def report(result: Result) -> str:
    """Writes what was transferred to what, and a line for each score."""
    data, model = result.data, result.model
    kept = "held out" if data["held_out"] else "in its test split"
    counts = f"{data['train']:,} training images, {data['test']:,} {kept}, {len(data['classes'])} classes"
    heading = [
        f"{model['name']}: {model['encoder']} at {model['size']} px, seed {result.seed}",
        f"{data['name']}: {counts}",
        *([] if model["trained"] else ["its weights are random: give --pretrained, or --weights FILE"]),
    ]
    first = {"trained" if model["trained"] else "untrained": result.scores}
    found = {"untrained": result.untrained, "supervised": result.supervised, **first}
    columns = [name for name in COLUMNS if found.get(name) is not None]
    rows = [(result.protocol, *columns)]
    for name in result.scores:
        rows.append((name, *(_said((found[column] or {}).get(name)) for column in columns)))
    return "\n".join(["", *map(printable, heading), "", *map(printable, aligned(rows, texts=1))])


def _said(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"


def _about(name: str) -> str:
    """Describes a task, with its settings as flags."""
    what = (inspect.getdoc(TASKS[name]) or "").split("\n")[0]
    rows = [(f"  --{flag_name(key)}", shown(each.default), each.about) for key, each in schema(name).items()]
    return f"  {name}: {what}\n{table(rows)}"


def _divided(task: str, given: Flat) -> tuple[Flat, Flat]:
    """Divides flags into the settings of the task and the options of the data, which begin with `data.`"""
    known = schema(task)
    chosen: Flat = {}
    options: Flat = {}
    for key, value in given.items():
        section, dot, setting = key.partition(".")
        if dot and section == "data":
            options[setting] = value
        elif key.removesuffix(".name") in known:
            chosen[key.removesuffix(".name")] = value
        else:
            raise UserError(f"--{flag_name(key)}", f"there is no such flag of {task}; --help shows all")
    return chosen, options


def _data(data: str | None, options: Flat) -> dict[str, Any] | None:
    if data is None and options:
        raise UserError(f"data.{next(iter(options))}", "give --data too")
    if data is None:
        return None
    values = typed(data_keys(data), {}, {f"data.{key}": value for key, value in options.items()})
    return {"name": data, **{key: values[f"data.{key}"] for key in options}}
