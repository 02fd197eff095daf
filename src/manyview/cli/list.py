"""The command `manyview list`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from manyview.config.recipes import read, recipes
from manyview.config.sections import PARTS, SECTIONS
from manyview.core.errors import UserError, hint

USUAL_ENCODERS = (
    "torchvision/resnet18", "torchvision/resnet50", "timm/resnet18", "timm/resnet50", "timm/convnext_tiny",
    "timm/efficientnet_b0", "timm/vit_small_patch16_224", "timm/vit_base_patch16_224",
    "timm/vit_small_patch14_dinov2",
)  # fmt: skip


def list_(
    what: Annotated[str | None, "methods, losses, memories, heads, momentum, views, augmentations, optimizers, "
                                "schedules, encoders, data or recipes; without it, these"] = None,
    text: Annotated[str, "only names with this in them"] = "",
) -> int:  # fmt: skip
    """Lists what there is by name: methods, losses, encoders, data sets, recipes and more."""
    if what is None:
        print("\n".join(f"manyview list {each}" for each in LISTS))
        return 0
    if what not in LISTS:
        raise UserError("what", f"there is no list of {what!r}; {hint(what, LISTS)}")
    if what == "encoders" and not text:
        print(_encoders_in_short())
        return 0
    found = {name: about for name, about in LISTS[what]().items() if text.lower() in name.lower()}
    if not found:
        raise UserError(f"list {what}", f"no name has {text!r} in it")
    width = min(32, max(len(name) for name in found))
    print("\n".join(f"{name:<{width}}  {about}".rstrip() for name, about in found.items()))
    return 0


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


def _encoders_in_short() -> str:
    """Lists our own networks, the usual ones and how many the libraries have, which are over a thousand."""
    found = _encoders()
    own = [f"{name:<32}  {about}" for name, about in found.items() if about]
    counts = {name: sum(each.startswith(f"{name}/") for each in found) for name in ("torchvision", "timm")}
    usual = [name for name in USUAL_ENCODERS if name in found]
    return "\n".join([
        *own, *usual,
        f"and {counts['torchvision']} of torchvision, {counts['timm']:,} of timm in all: manyview list encoders WORD",
    ])  # fmt: skip


def _data() -> dict[str, str]:
    from manyview.data import NAMED

    generated = {
        "scenes": "generated as they are asked for: solids on a stage, ten classes",
        "PATH": "any folder of images",
    }
    return generated | dict.fromkeys(NAMED, "")


def _views() -> dict[str, str]:
    from manyview.views import VIEWS

    derived = {}
    for name, view in VIEWS.items():
        channels = " and ".join(str(channel) for channel in view.channels or ())
        derived[name] = f"channel{'s' if ' and ' in channels else ''} {channels} of {view.space or 'rgb'}"
    return {"MODALITY": "any that the data has, such as rgb, depth or thermal"} | derived


def _recipes() -> dict[str, str]:
    return {name: str(read(path).about.get("title", "")) for name, path in recipes().items()}


LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "methods": lambda: _first_sentences(SECTIONS["method"].table),
    "losses": lambda: _first_sentences(PARTS["loss"].table),
    "memories": lambda: _first_sentences(PARTS["memory"].table),
    "heads": lambda: _first_sentences(PARTS["head"].table),
    "momentum": lambda: _first_sentences(PARTS["momentum"].table),
    "views": _views,
    "augmentations": lambda: _first_sentences(SECTIONS["augmentation"].table),
    "optimizers": lambda: _first_sentences(SECTIONS["optimizer"].table),
    "schedules": lambda: _first_sentences(SECTIONS["schedule"].table),
    "encoders": _encoders,
    "data": _data,
    "recipes": _recipes,
}
