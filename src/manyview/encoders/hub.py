"""A trained encoder as a folder in the layout of model hubs, which timm loads: weights, config.json, a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from manyview.core.atomic import atomic_write, check_own
from manyview.core.errors import UserError
from manyview.encoders.encoder import Encoder
from manyview.encoders.export import EXPORTED, check_library, is_export, timm_settings, write_state

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
MARK = "<!-- written by manyview export; yours to edit -->"  # in a card, by which it is known to be ours
LINES = """\
import timm
model = timm.create_model({name!r}, pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)"""


def export_hub(encoder: Encoder, folder: str | Path, card: str, preprocessing: Mapping[str, Any]) -> str:
    """Writes an encoder of timm's to a folder that timm loads, and returns the Python that does so.

    card           text of the model card, in Markdown
    preprocessing  what timm's transforms need to know: input_size, mean, std, crop_pct, interpolation

    Of what is there already, only an export is written over. The configuration is written after the weights, and
    without it timm loads nothing: a folder that was left half written is no model. What was written is then loaded
    once by timm, whose loaders convert the weights of some networks.
    """
    folder = Path(folder)
    _check(encoder, folder)
    try:
        text = json.dumps(_config(encoder, preprocessing), indent=2, sort_keys=True)
    except TypeError as error:
        raise UserError("options", f"{encoder.name} was created with what JSON cannot hold: {error}") from None
    try:
        folder.mkdir(exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)
        write_state(encoder, folder / WEIGHTS)
        _write(folder / CARD, f"{card.rstrip()}\n\n{MARK}\n")
        _write(folder / CONFIG, f"{text}\n")
    except (OSError, SafetensorError) as error:
        raise UserError("path", f"cannot write {folder}: {error}") from None
    if not _loads(encoder, folder):
        for name in (CONFIG, CARD, WEIGHTS):
            (folder / name).unlink()
        converts = f"timm's own loader changes the weights of {encoder.name} where they have no classifier"
        raise UserError("to", f"{converts}; --to timm writes them with the lines that load them as they are")
    return LINES.format(name=f"local-dir:{folder}")


def _loads(encoder: Encoder, folder: Path) -> bool:
    """Says whether timm gives back the very weights that were written."""
    import timm

    try:
        with torch.random.fork_rng(devices=[]):
            found = timm.create_model(f"local-dir:{folder}", pretrained=True).state_dict()
    except (RuntimeError, KeyError):
        return False
    own = encoder.network.state_dict()
    return found.keys() == own.keys() and all(torch.equal(found[key], own[key].cpu()) for key in own)


def _check(encoder: Encoder, folder: Path) -> None:
    check_library(encoder, "timm", "hub")
    if encoder.options["stem"]:
        layers = f"timm cannot make {encoder.name} with stem={encoder.options['stem']!r} of a configuration alone"
        raise UserError("to", f"{layers}; --to timm writes the weights, with the lines that make it")
    if not folder.parent.is_dir():
        raise UserError("path", f"there is no folder {folder.parent}; make it first")
    if folder.exists() and not folder.is_dir():
        raise UserError("path", f"{folder} is a file, and hub is a folder; give another")
    check_own("path", folder / WEIGHTS, is_export)
    check_own("path", folder / CONFIG, lambda beginning: b'"manyview_export"' in beginning)
    check_own("path", folder / CARD, lambda beginning: MARK.encode() in beginning)


def _config(encoder: Encoder, preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    """Gives what timm makes the network of, in the words of its own configurations."""
    settings = timm_settings(encoder)
    classes = settings.pop("num_classes")  # not fixed, so that whoever loads it may ask for a classifier
    known = getattr(encoder.network, "pretrained_cfg", None) or {}
    named = {name: known[name] for name in ("first_conv", "classifier") if known.get(name)}
    if settings["in_chans"] != 3:
        named.pop("first_conv", None)  # which timm would convert from three channels once more
    return {
        **EXPORTED,
        "architecture": encoder.name.partition("/")[2].partition(".")[0],
        "num_classes": classes,
        "num_features": encoder.dim,
        "model_args": settings,
        "pretrained_cfg": {"num_classes": classes, **named, **preprocessing},
    }


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as draft:
        draft.write_bytes(text.encode("utf-8", "backslashreplace"))
