"""What the commands of the command line do, but `check`, which is in data/."""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from manyview.config.config import Config
from manyview.config.flags import read_flags
from manyview.config.keys import REQUIRED, Flat, Key, flag_name
from manyview.config.resolve import resolve, schema
from manyview.config.sections import PARTS, SECTIONS
from manyview.config.values import choices, parse_bool
from manyview.config.yaml_file import to_yaml
from manyview.core.errors import UserError
from manyview.diagnose.health import AGAIN
from manyview.training.checkpoint import DiskFull
from manyview.training.launch import configured, resumed, start

FAILED = 1
LESS = f"{AGAIN} with --micro-batch 64, which takes less and gives the same gradient, or a smaller --batch-size"
ANY = "DIR"  # what `show` puts for data that a recipe leaves to a flag
OURS = ("recipe", "resume", "smoke", "help")  # flags of `pretrain` that are no settings

PRETRAIN = """usage: manyview pretrain --data PATH|NAME [--method NAME] [--encoder NAME] [--epochs N] [--KEY VALUE ...]

Learns an encoder from unlabelled images. The same command goes on with a run that was stopped.

  --data PATH|NAME    a folder of images, or a name of `manyview list data`
  --recipe NAME|FILE  a published setting (`manyview list recipes`), or a YAML file such as a run's config.yaml
  --resume RUN        go on with the run in this folder
  --smoke             try a recipe in seconds, on generated images, or on --data

Settings, as they are with these flags (a key that only one section has may go without it: --lr 0.1):
"""


class Parser(argparse.ArgumentParser):
    """Whose complaint is one line, like any other."""

    def error(self, message: str) -> NoReturn:
        raise UserError(None, message)


def pretrain(arguments: list[str]) -> int:
    """`manyview pretrain`"""
    arguments = ["--help" if word == "-h" else word for word in arguments]
    given = read_flags(arguments)
    ours = {name: given.pop(name) for name in OURS if name in given}
    for key in ("recipe", "resume"):
        if ours.get(key) is True:
            raise UserError(None, f"{key}: expected a value, got none; write --{key} VALUE")
    if "help" in ours:
        print(f"{PRETRAIN}{_settings(_chosen(ours.get('recipe'), given))}\n\n{_meanings()}")
        return 0
    if "resume" in ours:
        for key in ("recipe", "smoke"):
            if key in ours:
                raise UserError(None, f"{key}: cannot be given with --resume: a run that was begun has its settings")
        config = resumed(Path(ours["resume"]), given)
    else:
        config = configured(ours.get("recipe"), given, smoke=parse_bool("smoke", ours.get("smoke", False)))
    return trained(lambda: start(config))


def demo(arguments: list[str]) -> int:
    """`manyview demo`"""
    parser = Parser("manyview demo", description="Two minutes of training on generated images.")
    parser.add_argument("--out", help="the run's folder")
    out = parser.parse_args(arguments).out or str(_fresh(Path("runs") / "demo"))
    print("Learning to tell shapes apart, from 2 views of generated scenes and no labels (about two minutes).")
    code = trained(lambda: start(configured("demo", {"out": out})))
    if code == 0:
        print(NEXT.format(out=out))
    return code


NEXT = """
What to do next:
  what was learnt, as a page for a browser     {out}/report.html
  your own images, any folder of them          manyview pretrain --data FOLDER
  another objective: jcl, cacr, moco_v2, ...   manyview list methods
  how good it is, beside the untrained one     manyview evaluate {out}
  which objective is better                    manyview compare --data scenes --methods simclr,dcl,cacr --epochs 2
  the encoder for somewhere else               manyview export {out} --to onnx
  the encoder in Python                        encoder = manyview.load("{out}")
                                               encoder(encoder.preprocess("cat.jpg"))"""


def show(arguments: list[str]) -> int:
    """`manyview show`"""
    parser = Parser("manyview show", description="A recipe with all its settings.")
    parser.add_argument("recipe", nargs="?", help="a name of `manyview list recipes`, or a file; without, the defaults")
    recipe = parser.parse_args(arguments).recipe
    if recipe is None:
        print(_settings({}))
        return 0
    from manyview.config.recipes import read

    found = read(recipe)
    for name, text in found.about.items():
        print(f"# {name}: {text}")
    print(to_yaml(resolve({"data.name": ANY, **found.settings}, {})), end="")
    return 0


def listed(arguments: list[str]) -> int:
    """`manyview list`"""
    parser = Parser("manyview list", description="What there is, by name.")
    parser.add_argument("what", choices=sorted(LISTS))
    parser.add_argument("text", nargs="?", default="", help="only names with this in them")
    given = parser.parse_args(arguments)
    found = {name: text for name, text in LISTS[given.what]().items() if given.text.lower() in name.lower()}
    if not found:
        raise UserError(None, f"list {given.what}: no name has {given.text!r} in it")
    width = min(32, max(len(name) for name in found))
    print("\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in found.items()))
    return 0


def export(arguments: list[str]) -> int:
    """`manyview export`"""
    from manyview.export.export import FORMATS, export
    from manyview.training.run import ENCODER, load

    parser = Parser("manyview export", description="A run's encoder as others can load it.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("--to", required=True, choices=FORMATS)
    parser.add_argument("--out", help="the file; by default in the run's folder")
    given = parser.parse_args(arguments)
    name = "encoder.onnx" if given.to == "onnx" else f"encoder-{given.to}.safetensors"
    path = Path(given.out or Path(given.run) / name)
    encoder = load(given.run)
    text = export(encoder, given.to, path)
    if not (Path(given.run) / ENCODER).is_file():
        print(f"warning: {given.run} has not ended; this is the encoder of its last checkpoint", file=sys.stderr)
    print(f"wrote {path}\n{text}\n# what it wants of a picture: {encoder.preprocess}")
    return 0


def trained(run: Callable[[], Any]) -> int:
    """What went wrong in training is one line, and another code than wrong input."""
    import torch

    from manyview.training.failures import Diverged, Interrupted

    try:
        run()
    except Interrupted as came:
        return 128 + int(came.args[0] if came.args else signal.SIGTERM)  # as shells count
    except (Diverged, DiskFull) as error:
        print(f"manyview pretrain: {error}", file=sys.stderr)
        return FAILED
    except torch.cuda.OutOfMemoryError:
        print(f"manyview pretrain: the GPU's memory is full; {LESS}", file=sys.stderr)
        return FAILED
    return 0


def _fresh(folder: Path) -> Path:
    """The folder itself while its run can go on, else the next that is free."""
    for number in range(2, 1000):
        if not (folder / "encoder.safetensors").exists():
            return folder
        folder = folder.with_name(f"{folder.name.partition('-')[0]}-{number}")
    return folder


def _chosen(recipe: str | None, given: Flat) -> Flat:
    from manyview.config.recipes import read

    return {**(read(recipe).settings if recipe else {}), **given}


def _settings(chosen: Flat) -> str:
    """All keys with their values, a line each."""
    keys = schema(chosen)
    width = max(len(key) for key in keys) + 2
    return "\n".join(
        f"  --{flag_name(key):<{width}} {shown(key, each, chosen)}{_among(each)}" for key, each in keys.items()
    )


def shown(key: str, each: Key, chosen: Flat) -> str:
    """As one would give it."""
    value = chosen.get(key, each.default)
    if value is REQUIRED or value is None:
        return "needed" if value is REQUIRED else "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _among(each: Key) -> str:
    there = choices(each.type)
    return f"  ({'|'.join(there)})" if there and each.type is not bool else ""


def _meanings() -> str:
    """What the settings of no section mean, as `Config` says it; a section's are explained where its part is."""
    lines = (inspect.getdoc(Config) or "").split("\n")[2:]
    return "\n".join(f"  {line}" for line in lines)


def _first_sentences(table: Mapping[str, Any]) -> dict[str, str]:
    return {name: (inspect.getdoc(each) or "").split("\n")[0] for name, each in table.items()}


def _encoders() -> dict[str, str]:
    import timm
    import torchvision

    own = {
        "patchnet": "a small residual network that two cores can train",
        "small_alexnet": "CACR's, for CIFAR and STL-10",
    }
    libraries = [f"torchvision/{name}" for name in torchvision.models.list_models(module=torchvision.models)]
    libraries += [f"timm/{name}" for name in timm.list_models()]
    return own | dict.fromkeys(libraries, "")


def _data() -> dict[str, str]:
    from manyview.data import NAMED

    generated = {
        "scenes": "generated as they are asked for: solids on a stage, ten classes",
        "PATH": "any folder of images",
    }
    return generated | dict.fromkeys(NAMED, "")


def _recipes() -> dict[str, str]:
    from manyview.config.recipes import read, recipes

    return {name: str(read(path).about.get("title", "")) for name, path in recipes().items()}


LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "methods": lambda: _first_sentences(SECTIONS["method"].table),
    "losses": lambda: _first_sentences(PARTS["loss"].table),
    "memories": lambda: _first_sentences(PARTS["memory"].table),
    "heads": lambda: _first_sentences(PARTS["head"].table),
    "momentum": lambda: _first_sentences(PARTS["momentum"].table),
    "augmentations": lambda: _first_sentences(SECTIONS["augmentation"].table),
    "optimizers": lambda: _first_sentences(SECTIONS["optimizer"].table),
    "schedules": lambda: _first_sentences(SECTIONS["schedule"].table),
    "encoders": _encoders,
    "data": _data,
    "recipes": _recipes,
}
