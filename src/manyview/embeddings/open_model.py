"""Opens the model that a user names: a run by its folder, an encoder by name or from a file, or one per view."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from manyview import encoders
from manyview.core.errors import UserError
from manyview.data import Dataset
from manyview.data.dataset import few_samples, usual_shape
from manyview.embeddings.model_source import ALL, REFERENCE, ModelSource, modality_of
from manyview.embeddings.published import published, usual_picture, usual_side
from manyview.encoders import Encoder
from manyview.encoders.encoder import FAMILIES, Stem, nearest_names
from manyview.encoders.weights import UnknownNetwork, read_metadata
from manyview.features.preprocess import EncoderInput, Preprocess
from manyview.training import pipelines
from manyview.training.load import INPUT, load, load_projector, run_views
from manyview.training.run import CONFIG, ENCODER, Run
from manyview.views import PICTURE
from manyview.views.view import view_named

OneModel = str | os.PathLike[str] | Run | Encoder | ModelSource
AnyModel = OneModel | Mapping[str, OneModel]


class Options(NamedTuple):
    """The options of `open_model` for an encoder by name.

    size        of the input pictures; by default that of its published weights, or of the data `like`
    weights     a file of weights (safetensors, .pt, .pth): a state dict of its library, or one of ours
    pretrained  take the library's published weights
    stem        "cifar" for ResNets that were trained so
    seed        of random weights, where neither is given
    like        the data that it will embed
    """

    size: int | None = None
    weights: str | Path | None = None
    pretrained: bool = False
    stem: Stem = None
    seed: int = 0
    like: Dataset | None = None


def open_model(model: AnyModel, **given: Any) -> ModelSource:
    """Opens a run's folder, a file that `encoders.save` wrote, or an encoder or its name, with `Options`.

    An encoder per view is given as a table of those by view, or as "rgb=A,depth=B".

    >>> open_model("runs/demo"), open_model("timm/resnet18", pretrained=True)
    >>> open_model({"rgb": "runs/a", "depth": "runs/b"})
    """
    model, options = _parsed(model), Options(**given)
    if isinstance(model, Mapping):
        return _joined({view: _open(each, view, options) for view, each in model.items()}, options)
    return _open(model, REFERENCE, options)


def check_named(model: AnyModel) -> None:
    """Refuses what is neither a run nor a file nor the name of an encoder, without opening anything."""
    model = _parsed(model)
    for each in model.values() if isinstance(model, Mapping) else [model]:
        if isinstance(each, str | os.PathLike) and run_of(each) is None and not Path(each).is_file():
            _check_name(os.fspath(each))


def run_of(model: object) -> Run | None:
    """Returns the run that is meant, by its folder or by the encoder file in it; None for anything else."""
    if isinstance(model, ModelSource | Run):
        return model if isinstance(model, Run) else model.run
    if not isinstance(model, str | os.PathLike):
        return None
    path = Path(model)
    folder = path.parent if path.name == ENCODER else path  # that of one view is a file like any other
    return Run(folder) if (folder / CONFIG).is_file() else None


def _open(model: OneModel, view: str, options: Options) -> ModelSource:
    if isinstance(model, ModelSource):
        return model
    if isinstance(model, Encoder):
        return ModelSource(model.name, {view: model}, usual_picture(model), options.seed, inputs=_inputs({view: model}))
    run = run_of(model)
    if run is not None:
        return _from_run(run, view, options)
    assert not isinstance(model, Run)
    if Path(model).is_file():
        return _from_file(Path(model), view, options)
    return _from_name(os.fspath(model), view, options)


def _from_run(run: Run, view: str, options: Options) -> ModelSource:
    config, views = run.config, run_views(run)
    if views:
        made = {each: load(run, each) for each in views if view in (each, REFERENCE)} or {view: load(run)}
        heads = {each: head for each in made if each in views and (head := load_projector(run, each)) is not None}
    else:
        made, heads = {view or next(iter(config.views or ()), REFERENCE): load(run)}, {}
    for encoder in made.values():
        _refuse(options, encoder, f"{run.folder} is a run")
    picture = pipelines.picture(config)
    return ModelSource(str(run.folder), made, picture, config.seed, run, inputs=_inputs(made), heads=heads)


def _inputs(encoders: Mapping[str, Encoder]) -> dict[str, EncoderInput]:
    """Returns what encoders by view were given in training, where known; nothing for one encoder of plain pictures."""
    known = {view: each.preprocess.input for view, each in encoders.items() if isinstance(each.preprocess, Preprocess)}
    return {} if len(encoders) == 1 and all(each.is_plain for each in known.values()) else known


def _from_file(path: Path, view: str, options: Options) -> ModelSource:
    try:
        encoder = encoders.load(path)
    except UnknownNetwork:
        line = f"{path} does not say which network it is for; give that, and --weights {path}"
        raise UserError("encoder", line) from None
    _refuse(options, encoder, f"{path} is a file that knows its network")
    noted = read_metadata(path).get(INPUT)
    if noted is None:
        return ModelSource(str(path), {view: encoder}, usual_picture(encoder), options.seed)
    given = EncoderInput.from_json(noted, path)
    return ModelSource(str(path), {view: encoder}, PICTURE, options.seed, inputs={view: given})


def _from_name(name: str, view: str, options: Options) -> ModelSource:
    _check_name(name)
    if options.pretrained and options.weights is not None:
        raise UserError("weights", f"give {options.weights} or --pretrained, not both")
    channels, side = _shape(options.like, view)
    size = options.size
    if size is None:
        from_file = options.weights is not None
        size = usual_side(published(name), side, pretrained=options.pretrained, from_file=from_file)
    start = options.pretrained if options.weights is None else options.weights
    with torch.random.fork_rng():
        torch.manual_seed(options.seed)
        made = encoders.create(name, channels=channels, size=size, stem=options.stem, pretrained=start)
    called = name if options.weights is None else f"{name} with {options.weights}"
    return ModelSource(called, {view: made}, usual_picture(made), options.seed, trained=bool(start))


def _joined(by_view: Mapping[str, ModelSource], options: Options) -> ModelSource:
    """Joins an encoder per view into one model."""
    if not by_view or any(not view or view == ALL for view in by_view):
        raise UserError("encoders", f"expected names of views, other than {ALL!r}, got {', '.join(by_view) or 'none'}")
    if options.weights is not None:
        raise UserError("weights", "one file cannot be for several encoders; write each with manyview.encoders.save")
    sizes = {view: each.size for view, each in by_view.items()}
    if len(set(sizes.values())) > 1:
        raise UserError("size", f"the encoders see pictures of different sizes, {sizes}; all must be alike")
    first = next(iter(by_view.values()))
    coloured = [view for view, each in by_view.items() if each.encoder.options["channels"] == 3]
    return ModelSource(
        ",".join(f"{view}={each.name}" for view, each in by_view.items()),
        {view: each.encoder for view, each in by_view.items()},
        first.picture,
        first.seed,
        trained=any(each.trained for each in by_view.values()),
        modalities={view: by_view[view].picture for view in coloured if by_view[view].picture != first.picture},
        by_view=by_view,
        inputs={view: known for view, each in by_view.items() for known in each.inputs.values()},
    )


def _parsed(model: AnyModel) -> AnyModel:
    """Parses rgb=A,depth=B as a table; anything else stays as it is."""
    if not isinstance(model, str) or "=" not in model or os.path.exists(model):
        return model
    parts = [part.partition("=") for part in model.split(",")]
    if any(not (view and equals and name) for view, equals, name in parts):
        raise UserError("encoders", f"expected VIEW=ENCODER,VIEW=ENCODER, got {model!r}")
    return {view.strip(): name.strip() for view, _, name in parts}


def _refuse(options: Options, encoder: Encoder, why: str) -> None:
    """Refuses options that are for encoders by name alone."""
    size = encoder.options["size"]
    if options.size not in (None, size):
        raise UserError("size", f"{why}, whose encoder sees {size} px; leave out the size {options.size}")
    for option in ("weights", "pretrained", "stem"):
        if getattr(options, option) not in (None, False):
            raise UserError(option, f"{why}, which has its weights; leave it out, or name a network")


def _check_name(name: str) -> None:
    if os.path.isdir(name):
        raise UserError("run", f"{name} is no run's folder, it has no {CONFIG}")
    try:
        encoders.check_name(name)
    except UserError:
        is_path = os.path.dirname(name) and name.partition("/")[0] not in FAMILIES
        path = is_path or name.endswith(".safetensors")
        hint = "give the folder of a run that is there" if path else f"nearest: {', '.join(nearest_names(name))}"
        raise UserError("encoder", f"there is no run, file or encoder named {name!r}; {hint}") from None


def _shape(data: Dataset | None, view: str) -> tuple[int, int | None]:
    """Returns the channels and the usual shorter side of the pictures of a view."""
    if data is None:
        return 3, None
    modality = modality_of(view, data)
    if modality not in data.modalities:
        only = "only the view" if len(data.modalities) == 1 else "the views"
        raise UserError("data", f"there is no view {view!r} in it; it has {only} {', '.join(data.modalities)}")
    channels, side = usual_shape(few_samples(data), modality)
    return view_named(view or modality, modality).width(channels), side
