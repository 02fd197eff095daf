"""An encoder's weights in a safetensors file, with its name and options beside them. Nothing in a file is executed."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.encoders.backbone import State
from manyview.encoders.encoder import LOADING, Encoder, create
from manyview.encoders.lora import merged
from manyview.encoders.state_dicts import COUNTER, beginning_of, matched_by_order, read_torch_file, under

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and std of pictures: an encoder was trained on (x / 255 - mean) / std."""
FORMAT = "1"
HEAD = "manyview.head."  # what the names of a head's weights begin with, beside those of its encoder
LISTED_KEYS = 3


class Misfit(UserError):
    """Weights do not fit an encoder."""


class UnknownNetwork(UserError):
    """A file of weights does not say which network it is for."""


def save(
    encoder: Encoder,
    path: str | Path,
    *,
    picture: Normalisation | None = None,
    head: nn.Module | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes the network's state dict, under the names of its library, and how to create it again; LoRA is merged.

    picture   mean and std that pictures were normalised with in training; without, what is known of the encoder
    head      whose weights go beside the encoder's, for `load_head`
    metadata  more to write beside it, for `read_metadata`

    The file appears whole or not at all.
    """
    try:
        recipe = {"name": json.dumps(encoder.name), "options": json.dumps(encoder.options)}
    except TypeError as error:
        raise UserError("options", f"{encoder.name} was created with what JSON cannot hold: {error}") from None
    normalised_with = picture or normalisation(encoder)
    if normalised_with is not None:
        recipe["picture"] = json.dumps({"mean": normalised_with[0], "std": normalised_with[1]})
    weights = merged(encoder).network.state_dict()
    weights |= {} if head is None else {HEAD + key: value for key, value in head.state_dict().items()}
    state = {key: value.detach().cpu().contiguous().clone() for key, value in weights.items()}
    path = Path(path)
    if not path.parent.is_dir():
        raise UserError("path", f"there is no folder {path.parent}; make it first")
    try:
        with atomic_write(path) as draft:
            draft.write_bytes(
                _in_order(to_bytes(state, metadata={"manyview_encoder": FORMAT, **recipe, **(metadata or {})}))
            )
    except (OSError, SafetensorError) as error:
        raise UserError("path", f"cannot write {path}: {error}") from None


def load(path: str | Path) -> Encoder:
    """Loads the encoder that `save` wrote, created anew and with its weights; see also `normalisation`."""
    state, metadata = _read(path)
    name, options = _recipe(path, metadata)
    try:
        encoder = create(name, **options)
    except UserError as error:
        raise UserError(None, f"{path}: its encoder cannot be made: {error}") from error
    _fill(encoder, state, metadata, path)
    return encoder


def load_into(encoder: Encoder, path: str | Path) -> None:
    """Loads weights into an encoder that is there: a file of `save`, or a state dict of timm, torchvision or others.

    A state dict is in safetensors, or in a file of torch.save (.pt, .pth), of which nothing is executed. What stands
    around it (`state_dict`, `model`, `module.`, `backbone.`) is looked through, see `beginning_of`; the classifier is
    left out. Everything else must fit, name by name and shape by shape, but for what the network's own library
    converts: the first convolution for other channels, and position embeddings of other image sizes. Where names alone
    differ, see `matched_by_order`; `encoder.by_order` then says so.
    """
    _fill(encoder, *_read_any(path), path)


def load_head(head: nn.Module, path: str | Path) -> bool:
    """Gives a head the weights that `save` wrote beside its encoder's; False where the file has none."""
    stored = {key.removeprefix(HEAD): value for key, value in _read(path, HEAD)[0].items()}
    if stored:
        fill_head(head, stored, path)
    return bool(stored)


def fill_head(head: nn.Module, state: Mapping[str, Tensor], where: str | Path) -> None:
    """Gives a head its weights, which must fit."""
    try:
        head.load_state_dict(dict(state))
    except RuntimeError as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(None, f"{where}: its head does not fit the settings of the run: {why}") from None


def read_metadata(path: str | Path) -> dict[str, str]:
    """Gives what is written beside the weights in a file."""
    return _read(path, HEAD)[1]


def named_encoder(path: str | Path) -> str | None:
    """Gives the name of the network that a file of weights names; None where it names none."""
    try:
        return _recipe(path, _read_any(path)[1])[0]
    except UserError:
        return None


def normalisation(encoder: Encoder) -> Normalisation | None:
    """The normalisation of pictures in training: from `manyview.load`, or as a file of `save` says; None if unknown."""
    known: Normalisation | None = getattr(encoder.preprocess, "normalisation", None)
    return known or vars(encoder).get("normalisation")


def _in_order(content: bytes) -> bytes:
    """Sorts the metadata, which the library writes in any order, so that an encoder always gives the same bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(end - 8)
    return len(text).to_bytes(8, "little") + text + content[end:]


def _read_any(path: str | Path) -> tuple[State, dict[str, str]]:
    """Reads as `_read`, also a file of torch.save, which has nothing beside its weights."""
    if not Path(path).is_file():
        raise UserError("path", f"there is no file {path}")
    with open(path, "rb") as opened:
        beginning = opened.read(9)
    is_safetensors = beginning[8:] == b"{"  # after the length of its header
    return _read(path) if is_safetensors else (read_torch_file(path), {})


def _read(path: str | Path, prefix: str = "") -> tuple[State, dict[str, str]]:
    """The weights whose names begin with a prefix, and what is written beside them."""
    if not Path(path).is_file():
        raise UserError("path", f"there is no file {path}")
    try:
        with open(path, "rb") as opened, safe_open(openable(path, opened.fileno()), framework="pt") as file:
            kept = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118
            return {key: file.get_tensor(key) for key in kept}, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(None, f"{path}: not a whole safetensors file ({error})") from None


def openable(path: str | Path, handle: int) -> str | Path:
    """The name that safetensors opens a file by, which takes UTF-8 alone."""
    return f"/dev/fd/{handle}" if any("\udc80" <= letter <= "\udcff" for letter in str(path)) else path


def _recipe(path: str | Path, metadata: dict[str, str]) -> tuple[str, dict[str, Any]]:
    if "manyview_encoder" not in metadata:
        raise UnknownNetwork(
            None, f"{path}: does not say which network it is for; create one and use load_into(encoder, path)"
        )
    if metadata["manyview_encoder"] != FORMAT:
        raise UserError(None, f"{path}: is of format {metadata['manyview_encoder']!r}, this version reads {FORMAT!r}")
    try:
        name, options = json.loads(metadata["name"]), json.loads(metadata["options"])
    except (KeyError, ValueError, RecursionError):
        raise UserError(None, f"{path}: name and options of its network are missing or damaged") from None
    if not isinstance(name, str) or not isinstance(options, dict) or "name" in options:
        raise UserError(None, f"{path}: expected a name and a table of options, got {name!r} and {options!r}")
    fetching = [option for option in options if option.startswith(LOADING)]
    if fetching:  # a file may not make the library read or download another one
        raise UserError(None, f"{path}: refused, its options ask for other files: {', '.join(fetching)}")
    return name, options


def _stored_normalisation(text: str, path: str | Path) -> Normalisation:
    try:
        stored = json.loads(text)
        mean, std = (tuple(float(each) for each in stored[key]) for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        mean = std = ()
    if not std or len(mean) != len(std) or not all(map(math.isfinite, mean + std)) or min(std) <= 0:
        raise UserError(None, f"{path}: its normalisation of pictures makes no sense: {text[:100]!r}")
    return mean, std


def _fill(encoder: Encoder, state: State, metadata: dict[str, str], path: str | Path) -> None:
    """Gives an encoder the weights of a file, and notes the normalisation that it names."""
    wanted = encoder.network.state_dict()
    state = {key: value for key, value in state.items() if not key.startswith(HEAD)}
    beginning = beginning_of(state, wanted)
    found = under(state, beginning)
    if _misfits(encoder, found, wanted):
        found = _converted(encoder, found, wanted)
    if _misfits(encoder, found, wanted) and (renamed := matched_by_order(state, wanted)) is not None:
        found, beginning, encoder.by_order = renamed, "", True
    wrong = [f"{kind}: {_first_few(keys)}" for kind, keys in _misfits(encoder, found, wanted).items()]
    if wrong:
        where = f", taken from {beginning}*," if beginning else ""
        made = ", ".join(f"{key} {value}" for key, value in encoder.options.items() if value is not None)
        raise Misfit(None, f"{path}{where}: does not fit {encoder.name} ({made}); {'; '.join(wrong)}")
    encoder.network.load_state_dict({key: value for key, value in found.items() if key in wanted}, strict=False)
    encoder.beginning = beginning
    if "picture" in metadata:  # files of others, and older ones, name none
        vars(encoder)["normalisation"] = _stored_normalisation(metadata["picture"], path)


def _converted(encoder: Encoder, state: State, wanted: State) -> State:
    """Converts a state dict as the network's own library does; for other channels too, as timm does it."""
    try:
        state = encoder.converted(state)
    except Exception:  # of another network: the caller says what does not fit
        return state
    path = next((name for name, part in encoder.network.named_modules() if isinstance(part, nn.Conv2d)), "")
    name, channels = f"{path}.weight", encoder.options["channels"]
    if name in state and state[name].shape[1] == 3 != channels and state[name].is_floating_point():
        from timm.models import adapt_input_conv

        return {**state, name: adapt_input_conv(channels, state[name])}
    return state


def _misfits(encoder: Encoder, state: State, wanted: State) -> dict[str, list[str]]:
    """Gives what does not fit of a state dict, by kind; the classifier that an encoder has not is no matter."""
    removed = tuple(f"{prefix}." for prefix in encoder.removed)
    given = {key: value for key, value in state.items() if key in wanted or not f"{key}.".startswith(removed)}
    shapes = {key: (tuple(given[key].shape), tuple(wanted[key].shape)) for key in wanted if key in given}
    found = {
        "missing": [key for key in wanted if key not in given and not key.endswith(COUNTER)],
        "unexpected": [key for key in given if key not in wanted],
        "shapes": [f"{key} {mine} instead of {right}" for key, (mine, right) in shapes.items() if mine != right],
        "types": [  # whole numbers would be taken for weights
            f"{key} {given[key].dtype} instead of {value.dtype}"
            for key, value in wanted.items()
            if key in given and value.is_floating_point() and not given[key].is_floating_point()
        ],
    }
    return {kind: keys for kind, keys in found.items() if keys}


def _first_few(keys: list[str]) -> str:
    more = f" and {len(keys) - LISTED_KEYS} more" if len(keys) > LISTED_KEYS else ""
    return ", ".join(keys[:LISTED_KEYS]) + more
