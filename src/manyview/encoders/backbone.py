"""What makes a library's network a backbone: its feature maps, its first layers, and whether its weights can be had."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch
from torch import Tensor, nn

from manyview.core.errors import UserError

Maps = dict[str, Tensor]
State = dict[str, Tensor]
Layout = Callable[[Tensor], Tensor]


def _as_it_is(network: nn.Module, state: State) -> State:
    return state


class MapReader(Protocol):
    """Runs a network once; gives its embedding and the feature maps of the named stages, or of all for None."""

    def __call__(self, network: nn.Module, x: Tensor, names: Collection[str] | None) -> tuple[Tensor, Maps]: ...


class Backbone(NamedTuple):
    """A network without its classifier, as the builders of a library's networks give it to `create`.

    network  images (B, C, H, W) to embeddings (B, dim)
    read     runs it and reads its stages' feature maps
    removed  prefixes of the classifier's names, which a state dict of the library still has
    convert  brings a state dict of an older layout, or of another image size, into that of the network
    """

    network: nn.Module
    read: MapReader
    removed: tuple[str, ...] = ()
    convert: Callable[[nn.Module, State], State] = _as_it_is


def module_outputs(modules: Sequence[str], layout: Layout | None = None) -> MapReader:
    """A reader for stages that are submodules: their outputs, by the submodules' names, brought into a layout."""
    return partial(_with_hooks, tuple(modules), layout)


def cifar_stem(resnet: Any, channels: int) -> None:
    """Makes the first convolution 3x3 of stride 1 and drops the max-pool.

    As SimCLR (App. B.9) and MoCo's CIFAR-10 notebook have it, for the ResNets of timm and torchvision alike, in place.
    The new convolution is always drawn anew.
    """
    old = resnet.bn1.num_features
    convolution = nn.Conv2d(channels, old, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    resnet.conv1 = convolution.to(resnet.bn1.weight.device)
    resnet.maxpool = nn.Identity()


def adapt_input_channels(network: nn.Module, channels: int, *, keep: bool) -> None:
    """Gives the first convolution `channels` input channels, in place.

    keep: its RGB weights are carried over as timm does it (repeated and rescaled; summed for one channel). Otherwise it
    is drawn anew.
    """
    path, old = next((name, part) for name, part in network.named_modules() if isinstance(part, nn.Conv2d))
    if old.in_channels == channels:
        return
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    ).to(old.weight.device)
    if keep:
        from timm.models import adapt_input_conv

        new.weight.data = adapt_input_conv(channels, old.weight.data)
    else:
        new.weight.data = torch.randn_like(new.weight) * old.weight.std()  # as its library draws it
    if old.bias is not None and new.bias is not None:
        new.bias.data = old.bias.data
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, new)


def weights_unavailable(name: str, source: str, cache_path: str) -> UserError:
    """The weights of an encoder are neither at `cache_path`, where its library looks first, nor can `source` be had."""
    return UserError(
        "pretrained",
        f"the weights of {name} are not on this machine and {source} cannot be reached; "
        "give a file of them, safetensors, .pt or .pth (--encoder.pretrained FILE, --weights FILE of evaluate), "
        f"or download them elsewhere and put them into {cache_path}",
    )


def responds(site: str, seconds: float = 5.0) -> bool:
    """Says whether a host answers: a library would try for a minute, and end in a traceback."""
    try:
        urlopen(Request(site, method="HEAD"), timeout=seconds).close()
    except HTTPError:
        return True  # it refuses this page, so it is there
    except (URLError, OSError):
        return False
    return True


def _with_hooks(
    modules: tuple[str, ...], layout: Layout | None, network: nn.Module, x: Tensor, names: Collection[str] | None
) -> tuple[Tensor, Maps]:
    maps: Maps = {}

    def keep(name: str, module: nn.Module, given: object, output: Tensor) -> None:
        maps[name] = (output if layout is None else layout(output)).clone()  # what follows may work in place

    wanted = [name for name in modules if names is None or name in names]
    hooks = [network.get_submodule(name).register_forward_hook(partial(keep, name)) for name in wanted]
    try:
        return network(x), maps
    finally:
        for hook in hooks:
            hook.remove()
