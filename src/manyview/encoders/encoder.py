"""Encoders: any network as (B, C, H, W) to (B, dim), with the feature maps on the way."""

import inspect
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from manyview.core.bounds import OptionalCount
from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.encoders.backbone import Backbone, Maps, State
from manyview.encoders.strided_crops import check_crop, strided_crops

Stem = Literal["cifar"] | None
Own = TypeVar("Own", bound="Encoder")

FAMILIES = {  # imported when asked for: timm and torchvision take seconds
    "timm": "manyview.encoders.timm_models",
    "torchvision": "manyview.encoders.torchvision_models",
}
LOADING = ("checkpoint", "pretrained", "weights", "cache_dir", "file", "url", "hf_hub", "scriptable", "exportable")
REPEATED = {"in_chans": "channels", "img_size": "size", "image_size": "size"}  # what libraries call our arguments
LIMITS = {"channels": 1024, "size": 4096}
OWN = ("patchnet", "small_alexnet", "alexnet", "caffenet", "nyu", "resnet", "vit")
NETWORKS = {name: f"manyview.encoders.{name}" for name in OWN}


class Encoder(nn.Module):
    """A network that embeds images. Made by `create(name, **options)`, which makes the same one again.

    dim         length of an embedding
    network     the network itself, with the parameter names of its library
    crop        the side of the strided crops that the network sees one by one; None: it sees the image
    removed     prefixes of the classifier's weights, which the library's own state dict has and this has not
    preprocess  the preprocessing of pictures that the encoder was trained with; `manyview.load` sets it
    beginning   what the names of its weights began with in the file that they were loaded from
    by_order    whether they had other names there, and were matched by order and shape
    frozen      names of the network's parts that stay as they are, and so in eval mode, and of parameters outside of
                them (`trained_part.freeze`)
    """

    preprocess: Callable[[Any], Tensor] | None = None
    beginning = ""
    by_order = False
    frozen: tuple[str, ...] = ()

    def __init__(self, name: str, options: dict[str, Any], backbone: Backbone) -> None:
        super().__init__()
        self.name, self.options = name, options
        self.network, self._read, self.removed, self._convert = backbone
        self.crop: int | None = options.get("crop")
        self.dim = self.dim_for(self.crop or options["size"])

    def extra_repr(self) -> str:
        return f"{self.name!r}, {self.options}, dim={self.dim}"

    def forward(self, x: Tensor) -> Tensor:
        """Embeds images (B, C, H, W) as (B, dim): of strided crops it is the mean."""
        x = self._checked(x)
        embedded: Tensor = self.network(x) if self.crop is None else self._crops(x, self.crop).mean((2, 3))
        return embedded

    def embed_with_maps(self, x: Tensor, names: Collection[str] | None = None) -> tuple[Tensor, Maps]:
        """The embedding (B, dim) and the feature maps of the named stages, from one pass through the network.

        Without names, the maps of all stages, in order; the last is the one before pooling. A map is (B, C, H, W), but
        (B, features) after a fully connected layer. With strided crops there is one map, "crops", of their embeddings.
        """
        x = self._checked(x)
        if self.crop is None:
            embedded, maps = self._read(self.network, x, names)
        else:
            maps = {"crops": self._crops(x, self.crop)}
            embedded = maps["crops"].mean((2, 3))
        missing = [] if names is None else [name for name in names if name not in maps]
        if missing:
            stages = ", ".join(self.layers(x))
            raise UserError("layer", f"{self.name} has none named {', '.join(missing)}; there are {stages}")
        return embedded, maps

    def train(self: Own, mode: bool = True) -> Own:
        """Sets the mode of all parts but the frozen ones, whose batch norms keep their statistics."""
        super().train(mode)
        parts = dict(self.network.named_modules())
        for name in self.frozen:
            if name in parts:
                parts[name].eval()
        return self

    def layers(self, x: Tensor) -> Maps:
        """The feature map of every stage by its name, in order; see `embed_with_maps`."""
        return self.embed_with_maps(x)[1]

    @torch.no_grad()
    def layer_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every stage's feature map for one image: (C, H, W), or (features,) after a fully connected one.

        From a pass of one image, which leaves the network as it was.
        """
        some, modes = next(self.network.parameters()), {each: each.training for each in self.modules()}
        channels, size = self.options["channels"], self.options["size"]
        try:
            maps = self.eval().layers(torch.zeros(1, channels, size, size, device=some.device, dtype=some.dtype))
        finally:
            for module, training in modes.items():
                module.training = training
        return {name: tuple(each.shape[1:]) for name, each in maps.items()}

    def converted(self, state: State) -> State:
        """Brings a state dict of an older layout, or of another image size, into that of the network."""
        return self._convert(self.network, state)

    def _crops(self, x: Tensor, side: int) -> Tensor:
        """The embeddings (B, dim, h, w) of the strided crops of images, each of which the network sees alone."""
        crops = strided_crops(x, side)  # (B, h, w, C, side, side)
        embedded: Tensor = self.network(crops.flatten(0, 2)).unflatten(0, crops.shape[:3])
        return embedded.permute(0, 3, 1, 2)

    def _checked(self, x: Tensor) -> Tensor:
        channels = self.options["channels"]
        if x.dim() != 4 or x.shape[1] != channels:
            raise UserError("x", f"{self.name} expects (B, {channels}, H, W), got {tuple(x.shape)}")
        if not x.is_floating_point():
            raise UserError("x", f"{self.name} expects floats, such as views are, got {x.dtype}")
        return x

    @torch.no_grad()
    def dim_for(self, size: int) -> int:
        """The length of an embedding, from a pass of one image, which also shows that its size is possible."""
        some = next(self.network.parameters())
        image = torch.zeros(1, self.options["channels"], size, size, device=some.device, dtype=some.dtype)
        self.network.eval()
        try:
            output = self.network(image)
        except (RuntimeError, AssertionError, ArithmeticError, ValueError) as error:
            why = str(error).strip().split("\n")[0]
            raise UserError(
                "size", f"{self.name} cannot take {size} x {size} images ({why}); give a size that it allows"
            ) from None
        finally:
            self.network.train()
        if output.dim() != 2:
            raise UserError("name", f"{self.name} gives {tuple(output.shape)} for an image, not a vector; use another")
        return int(output.shape[1])


def create(
    name: str,
    *,
    channels: int = 3,
    size: int = 224,
    stem: Stem = None,
    crop: OptionalCount = None,
    pretrained: bool | str | Path = False,
    **options: Any,
) -> Encoder:
    """Creates an encoder by name: `timm/<model>`, `torchvision/<model>` or one of our own, which `NETWORKS` names.

    channels    of the images
    size        of the images, for networks that must know it; others take any size later
    stem        "cifar" for ResNets: first convolution 3x3 of stride 1 and no max-pool, for images of about 32 px
    crop        the network sees crops of so many pixels, half of which overlap, one by one, as CPC does: 16 of 64-px
                images. The embedding is their mean, and "crops" the feature map that they make together
    pretrained  True for the library's weights, their name where it has several (a1_in1k, IMAGENET1K_V1), or a file of
                weights to `load_into` it: safetensors, .pt or .pth
    options     go to the network; none may make its library read or fetch a file

    >>> create("torchvision/resnet18", size=32, stem="cifar").dim
    512
    """
    if not isinstance(name, str):
        raise UserError("name", f"expected a text such as 'patchnet' or 'timm/resnet18', got {name!r}")
    for argument, value in (("channels", channels), ("size", size)):
        if not isinstance(value, int) or not 1 <= value <= LIMITS[argument]:
            raise UserError(argument, f"expected a whole number from 1 to {LIMITS[argument]}, got {value!r}")
    if stem not in (None, "cifar"):
        raise UserError("stem", f"expected None or 'cifar', got {stem!r}")
    if not isinstance(pretrained, bool | str | Path):
        raise UserError("pretrained", f"expected True, False or a file of weights, got {pretrained!r}")
    check_options(options)
    common, build = {"channels": channels, "size": size, "stem": stem}, _builder(name)
    published = pretrained if isinstance(pretrained, bool) or is_published(name, pretrained) else False
    if crop is not None:
        check_crop(crop, size)
    try:
        backbone = build(**{**common, "size": crop or size}, pretrained=published, options=options)
        cropped = {} if crop is None else {"crop": crop}
        encoder = Encoder(name, {**common, **cropped, **options}, backbone)
    except UserError:
        raise
    except Exception as error:  # options that make no sense raise almost anything inside a library
        if not options:
            raise
        raise UserError("options", f"{name} cannot be made with {options}: {reason(error)[:300]}") from error
    if not isinstance(pretrained, bool) and not published:
        from manyview.encoders.weights import load_into  # which builds encoders itself

        load_into(encoder, pretrained)
    return encoder


def is_published(name: str, pretrained: str | Path) -> bool:
    """Says whether this is the name of weights that an encoder's library publishes; if not it must be a file that is
    there.

    A file comes first.
    """
    if Path(pretrained).is_file():
        return False
    family, _, model = name.partition("/")
    names = import_module(FAMILIES[family]).weight_names(model) if family in FAMILIES else []
    if str(pretrained) in names:
        return True
    there = f", nor does {family} have weights of {model} by that name, but {', '.join(names)}" if names else ""
    raise UserError("pretrained", f"there is no file {pretrained}{there}; give the path of a file that is there")


def check_options(options: Iterable[Any]) -> None:
    """Refuses options that repeat an argument of `create`, and those by which a library would read or fetch a file.

    Settings come with a run's folder from elsewhere: what they name must not be loaded.
    """
    for option in options:
        argument = REPEATED.get(option, option)
        if argument in ("name", "channels", "size", "stem", "crop", "pretrained"):
            raise UserError("options", f"{option!r} is given by the setting {argument} already; leave it out of them")
        if str(option).startswith(LOADING):
            raise UserError(
                "options", f"{option!r} is refused: it may load a file; give a file of weights as pretrained"
            )


def check_name(name: str) -> None:
    """Raises an error with the nearest names if there is no encoder of this name."""
    _builder(name)


def _builder(name: str) -> Callable[..., Backbone]:
    if name in NETWORKS:
        return partial(_own, name)
    family, _, model = name.partition("/")
    if family in FAMILIES:
        module = import_module(FAMILIES[family])
        if module.has_model(model):
            return partial(module.build, model)
    raise UserError("name", f"there is no encoder {name!r}; nearest: {', '.join(nearest_names(name))}")


def _own(
    name: str, *, channels: int, size: int, stem: Stem, pretrained: bool | str, options: dict[str, Any]
) -> Backbone:
    """Builds one of our own networks, which has no other stem, no published weights, and few options."""
    if stem is not None:
        raise UserError("stem", f"{stem!r} is for ResNets of timm and torchvision; {name} is as it is")
    if pretrained:
        file = "a file of them, such as the encoder.safetensors that `manyview pretrain` writes into its run's folder"
        raise UserError("pretrained", f"there are no published weights of {name}; give {file}, or another encoder")
    build: Callable[..., Backbone] = import_module(NETWORKS[name]).build
    takes = list(inspect.signature(build).parameters)[2:]
    unknown = sorted(set(options) - set(takes))
    if unknown:
        raise UserError("options", f"{name} takes {' and '.join(takes)}, not {', '.join(unknown)}")
    return build(channels, size, **options)


def nearest_names(name: str) -> list[str]:
    """The nearest names: those with the same last part first, then those spelt alike."""
    families = {family: import_module(module).model_names() for family, module in FAMILIES.items()}
    everything = [*NETWORKS, *(f"{family}/{model}" for family, models in families.items() for model in models)]
    last = name.rpartition("/")[2]
    same = [each for each in everything if each.rpartition("/")[2] == last]
    tails = {each.rpartition("/")[2]: each for each in everything}
    near = get_close_matches(name, everything) or [tails[each] for each in get_close_matches(last, tails, cutoff=0.4)]
    return list(dict.fromkeys(same + near))[:4] or [*NETWORKS, "timm/<model>", "torchvision/<model>"]
