"""A trained encoder for use elsewhere: as its own library loads it, as a safetensors file of ours, or as ONNX."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from manyview import __version__
from manyview.core.atomic import atomic_write, check_own
from manyview.core.errors import UserError, hint
from manyview.encoders import Encoder, merged, save

Format = Literal["timm", "torchvision", "safetensors", "onnx"]
LIBRARIES = ("timm", "torchvision")  # formats that are for their own networks only
EXPORTED = {"manyview_export": __version__}  # metadata of safetensors, by which a file of ours is known
MARK, ONNX = b'"manyview_export"', b"\x12\x08manyview"  # in a file's beginning; in ONNX, the producer's name


def export(encoder: Encoder, to: Format, path: str | Path) -> str:
    """Writes an encoder, whole or not at all, and returns the Python that loads it. Of what is there already, only an
    export is written over.

    timm, torchvision  safetensors, with the library's own names, for its own networks; the network has no classifier
    safetensors        with how to make the network, for `manyview.encoders.load`
    onnx               images (B, C, size, size) as "image" to vectors (B, dim) as "embedding", for any B; float32

    >>> print(export(create("timm/resnet18"), "timm", "resnet18.safetensors"))
    import timm, torch
    from safetensors.torch import load_file
    model = timm.create_model('resnet18', num_classes=0, in_chans=3)
    model.load_state_dict(load_file('resnet18.safetensors'))
    model.eval()
    """
    path = Path(path)
    _check(encoder, to, path)
    check_own("path", path, is_export)
    try:
        return FORMATS[to](merged(encoder), path)
    except (OSError, SafetensorError) as error:
        raise UserError("path", f"cannot write {path}: {error}") from None


def is_export(beginning: bytes) -> bool:
    """Says whether a file that begins so is an export of weights."""
    return (beginning[8:9] == b"{" and MARK in beginning) or ONNX in beginning[:64]


def check_library(encoder: Encoder, library: str, to: str) -> None:
    """Refuses to write for a library, in the format `to`, what is no network of it."""
    family = encoder.name.partition("/")[0]
    if library != family:
        possible = [each for each in FORMATS if each not in LIBRARIES or each == family]
        instead = f"it can be written as {', '.join(possible)}; for {to} train with --encoder {library}/NAME"
        raise UserError("to", f"{library} has no network {encoder.name!r}; {instead}")
    if encoder.crop is not None:
        raise UserError("to", f"{library} knows no strided crops; write the encoder as safetensors or onnx")


def _check(encoder: Encoder, to: str, path: Path) -> None:
    if to not in FORMATS:
        raise UserError("to", f"there is no format {to!r}; {hint(to, FORMATS)}")
    if to in LIBRARIES:
        check_library(encoder, to, to)
    if not path.parent.is_dir():
        raise UserError("path", f"there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise UserError("path", f"cannot write {path}: it is a folder; give the name of a file in it")


def timm_settings(encoder: Encoder) -> dict[str, Any]:
    """Gives what timm makes an encoder's network with, beside its name; a stem of ours is no setting of timm's."""
    import timm

    model, known = encoder.name.partition("/")[2], dict(encoder.options)
    channels, size, _ = (known.pop(each) for each in ("channels", "size", "stem"))
    config = timm.get_pretrained_cfg(model)
    settings = {"img_size": size} if config is not None and config.fixed_input_size else {}
    return {**settings, "num_classes": 0, "in_chans": channels, **known}


def _timm(encoder: Encoder, path: Path) -> str:
    changed = _cifar_stem(encoder.network) if encoder.options["stem"] else []
    return _library(encoder, path, "timm.create_model", timm_settings(encoder), changed)


def _torchvision(encoder: Encoder, path: Path) -> str:
    from manyview.encoders.torchvision_models import network_arguments

    network, known = encoder.network, dict(encoder.options)
    channels, size, stem = (known.pop(each) for each in ("channels", "size", "stem"))
    settings = network_arguments(encoder.name.partition("/")[2], size, pretrained=False) | known
    if getattr(network, "transform_input", False):
        settings["transform_input"] = True
    changed = _cifar_stem(network) if stem else _first_convolution(network) if channels != 3 else []
    changed = [_replaced(network, encoder.removed[0]), *changed]  # the classifier; others are at the side
    return _library(encoder, path, "torchvision.models.get_model", settings, changed)


def _library(encoder: Encoder, path: Path, create: str, settings: dict[str, Any], changed: list[str]) -> str:
    """Writes the weights; `changed` are the lines that change the network that the library creates."""
    write_state(encoder, path)
    given = [repr(encoder.name.partition("/")[2]), *(f"{name}={value!r}" for name, value in settings.items())]
    lines = [
        f"import {', '.join(sorted(['torch', create.partition('.')[0]]))}",
        "from safetensors.torch import load_file",
        f"model = {create}({', '.join(given)})",
        *changed,
        f"model.load_state_dict(load_file({str(path)!r}))",
        "model.eval()",
    ]
    return "\n".join(lines)


def write_state(encoder: Encoder, path: Path) -> None:
    """Writes the weights by the library's own names."""
    state = {key: value.detach().cpu().contiguous().clone() for key, value in encoder.network.state_dict().items()}
    with atomic_write(path) as draft:
        draft.write_bytes(to_bytes(state, metadata={"format": "pt", **EXPORTED}))  # a name may be no UTF-8


def _safetensors(encoder: Encoder, path: Path) -> str:
    save(encoder, path, metadata=EXPORTED)
    return f"from manyview.encoders import load\nmodel = load({str(path)!r}).eval()"


def _onnx(encoder: Encoder, path: Path) -> str:
    missing = [package for package in ("onnx", "onnxscript") if find_spec(package) is None]
    if missing:
        raise UserError("to", f'onnx needs {" and ".join(missing)}; pip install "manyview[export]"')
    channels, size = encoder.options["channels"], encoder.options["size"]
    with atomic_write(path) as draft:
        _trace(encoder, torch.zeros(2, channels, size, size), draft)
    lines = [
        "import onnxruntime",
        f"session = onnxruntime.InferenceSession({str(path)!r})",
        f"embed = lambda image: session.run(None, {{'image': image}})[0]  "
        f"# float32 (B, {channels}, {size}, {size}) to (B, {encoder.dim})",
    ]
    return "\n".join(lines)


FORMATS: dict[str, Callable[[Encoder, Path], str]] = dict(
    zip(get_args(Format), (_timm, _torchvision, _safetensors, _onnx), strict=True)
)


def _trace(encoder: Encoder, images: Tensor, path: Path) -> None:
    network = copy.deepcopy(encoder.network if encoder.crop is None else encoder).cpu().float().eval()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own insides
            program = torch.onnx.export(
                network,
                (images,),
                input_names=["image"],
                output_names=["embedding"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
            assert program is not None
            program.model.producer_name = "manyview"
            program.model.producer_version = f"{__version__}, torch {torch.__version__}"
            program.save(path, external_data=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # the exporter raises almost anything for a network that it does not understand
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError("to", f"{encoder.name} cannot be written as ONNX: {why}") from error


def _cifar_stem(resnet: nn.Module) -> list[str]:
    changed = [_replaced(resnet, layer) for layer in ("conv1", "maxpool")]
    return ["# stem='cifar': the library's own first layers are for larger images", *changed]


def _first_convolution(network: nn.Module) -> list[str]:
    path, _ = next((name, part) for name, part in network.named_modules() if isinstance(part, nn.Conv2d))
    return ["# the library's own first layer is for three channels", _replaced(network, path)]


def _replaced(network: nn.Module, path: str) -> str:
    """The line that puts a layer of this network in the place of the library's; torch prints it as it is made."""
    parts = (f"[{part}]" if part.isdecimal() else f".{part}" for part in path.split("."))
    return f"model{''.join(parts)} = torch.nn.{network.get_submodule(path)}"
