"""Loads what a run has learnt, encoders with their preprocessing and heads, from its files or its last checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from manyview import encoders
from manyview.config.config import Config
from manyview.config.recipes import from_yaml
from manyview.core.errors import UserError
from manyview.data.normals import NORMALS
from manyview.encoders.map_heads import UnknownLayer
from manyview.encoders.towers import SHARED
from manyview.encoders.weights import fill_head, load_head, read_metadata
from manyview.features.preprocess import EncoderInput, Preprocess
from manyview.methods.method import VIEW, Method
from manyview.training import build, normalisation, pipelines
from manyview.training.run import CONFIG, ENCODER, Run, checkpoints, encoder_file
from manyview.views.view import view_named

INPUT = "input"  # of the metadata beside an encoder's weights: what it was given


def save(method: Method, view: str, path: Path, input: EncoderInput) -> None:
    """Writes the encoder of a view with the description of its input.

    Where views are contrasted with each other its head is written too, since embeddings are comparable behind it alone.
    """
    tower = method.towers.query[view]
    assert isinstance(tower, encoders.Tower)
    noted = {} if view == SHARED and input.is_plain else {INPUT: input.to_json()}
    head = tower.head if view in method.contrasted else None
    encoders.save(tower.encoder, path, picture=input.normalisation, head=head, metadata=noted)


def load(run: Run | str | Path, view: str | None = None) -> encoders.Encoder:
    """Loads the encoder of a run, in eval mode, with the preprocessing it was trained with.

    view  whose encoder, where the run has one per view; by default the first

    >>> encoder = manyview.load("runs/dcl-photos-1a2b3c")
    >>> encoder(encoder.preprocess("cat.jpg"))                # (1, dim)

    Of a run that has not ended, it is the encoder of the last checkpoint.
    """
    folder, config = _opened(run)
    views = run_views(run)
    if view is not None and views and view not in views:
        raise UserError("view", f"{folder} has an encoder a view; give one of {', '.join(views)}, got {view!r}")
    view = view or next(iter(views), None)
    path, noted = folder / (encoder_file(view) if views and view else ENCODER), None
    if path.is_file():
        encoder, noted = encoders.load(path), read_metadata(path).get(INPUT)
    else:
        state = _checkpoint(folder)
        with torch.random.fork_rng():  # a method is drawn from its seed, which is no business of who loads one
            method = build.method(config, state["channels"], state["data"][0], begun=True)
        method.load_state_dict(state["method"])
        encoder = encoders.merged(method.towers.encoder(view))
        noted = state.get("inputs", {}).get(view or VIEW)
    if noted is not None:
        encoder.preprocess = Preprocess(encoder.options["size"], input=EncoderInput.from_json(noted, path))
    else:
        seen = view_named(view or next(iter(config.views or ()), VIEW), VIEW)
        channels = 3 if seen.space is not None else encoder.options["channels"]
        encoder.preprocess = Preprocess(encoder.options["size"], channels, pipelines.picture(config), seen)
    return encoder.eval()


def load_projector(run: Run | str | Path, view: str) -> nn.Module | None:
    """Loads the head of a view, in eval mode, behind which its embeddings are comparable with other views'.

    None for a method that does not contrast projections of this view with those of others.
    """
    folder, config = _opened(run)
    if view not in _contrasted(config, config.views or run_views(run)):
        return None
    path = folder / encoder_file(view)
    found = path.is_file()
    with torch.random.fork_rng():
        head = build.head(config, (encoders.load(path) if found else load(run, view)).dim)
    if head is None or not head.state_dict() or (found and load_head(head, path)):
        return None if head is None else head.eval()
    saved, start = checkpoints(folder).latest(), f"towers.query.{view}.head."  # of an unfinished run, or an older one
    state = {} if saved is None else saved[0]["method"]
    stored = {key.removeprefix(start): each for key, each in state.items() if key.startswith(start)}
    if not stored:  # the method has its heads elsewhere
        return None
    fill_head(head, stored, folder)
    return head.eval()


def untrained(run: Run | str | Path) -> Method:
    """Builds the method of a run as it began, without memories: random from its seed, or with its initial weights."""
    folder, config = _opened(run)
    saved = checkpoints(folder).latest()
    with torch.random.fork_rng():
        return build.unstarted(config, saved[0]["channels"] if saved else _channels(run, config))


def _channels(run: Run | str | Path, config: Config) -> dict[str, int]:
    """Reads the channels of each view from the files of a run; a view that is only predicted has no encoder."""
    views, measured, found = run_views(run), normalisation.known(config), {}
    if not views:
        return {VIEW: load(run).options["channels"]}
    for view in config.views or views:
        seen = view_named(view, VIEW)
        raw = len(measured[seen.modality].mean) if seen.modality in measured else 3
        found[view] = load(run, view).options["channels"] if view in views else seen.width(raw)
    return found


def run_views(run: Run | str | Path) -> tuple[str, ...]:
    """Lists the views of a run with an encoder per view, in their order; none where all views share one.

    A view that is only predicted has no encoder and is left out.
    """
    folder, config = _opened(run)
    if not build.takes_many(config):
        return ()
    there = [file.name for file in sorted(folder.glob(encoder_file("*")))]
    if config.views and all(encoder_file(view) in there for view in config.views):
        return config.views
    saved = checkpoints(folder).latest()
    names = config.views or tuple(saved[0]["channels"] if saved else (_view(name) for name in there))
    written = saved[0]["encoders"] if saved else there
    return tuple(view for view in names if encoder_file(view) in written) or names


def _contrasted(config: Config, views: Sequence[str]) -> list[str]:
    """Lists the views that a run's method contrasts with each other; none where it takes a layer by its name."""
    try:
        return build.small_method(config, views).contrasted
    except UnknownLayer:
        return []


def _view(file: str) -> str:
    """Reads the view that the file of an encoder is for."""
    return file.removeprefix("encoder-").removesuffix(".safetensors")


def normals_options(run: Run, views: Collection[str]) -> dict[str, Any]:
    """Returns how a run computes normals from depth, to open other data for its views."""
    options = run.config.data_options if NORMALS in views else {}
    return {key: options[key] for key in ("camera", "nodata") if options.get(key) is not None}


def has_ended(folder: Path) -> bool:
    """Tells whether a run has written its encoders, which it does last."""
    if not (folder / CONFIG).is_file():
        return False
    return all((folder / encoder_file(view)).is_file() for view in run_views(folder) or (SHARED,))


def _opened(run: Run | str | Path) -> tuple[Path, Config]:
    folder = run.folder if isinstance(run, Run) else Path(run)
    if not (folder / CONFIG).is_file():
        hint = "; a file of weights is for manyview.encoders.load" if folder.is_file() else ""
        raise UserError("run", f"{folder} is no run's folder, it has no {CONFIG}{hint}")
    return folder, from_yaml(folder / CONFIG)


def _checkpoint(folder: Path) -> dict[str, Any]:
    found = checkpoints(folder).latest()
    if found is None:
        raise UserError("run", f"{folder} has no encoder and no checkpoint yet; train it first")
    return found[0]
