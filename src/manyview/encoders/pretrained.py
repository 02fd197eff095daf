"""Pretrained weights: checks that they can be had, before a library tries for a minute and ends in a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from manyview.core.errors import UserError

HUB = "https://huggingface.co"


def refuse_library_options(
    model: str, stem: str | None, pretrained: bool, options: Iterable[str], takes: tuple[str, ...]
) -> None:
    """Refuses for our own networks another stem, pretrained weights, and options but those that they take."""
    if stem is not None:
        raise UserError("stem", f"{stem!r} is for ResNets; {model} is made for small images as it is")
    if pretrained:
        raise UserError("pretrained", f"there are no pretrained weights of {model}; give a file that `save` wrote")
    unknown = sorted(set(options) - set(takes))
    if unknown:
        raise UserError("options", f"{model} takes {' and '.join(takes)}, not {', '.join(unknown)}")


def check_reachable(name: str, source: str, cache_path: str, site: str) -> None:
    """Raises an error if a site does not respond, from which a library would download weights.

    name        the encoder
    source      the weights' address
    cache_path  where the library looks for them first
    site        the host
    """
    if not _responds(site):
        raise weights_unavailable(name, source, cache_path)


def weights_unavailable(name: str, source: str, cache_path: str) -> UserError:
    return UserError(
        "pretrained",
        f"the weights of {name} are not on this machine and {source} cannot be reached; "
        f"download them elsewhere and put them into {cache_path}, "
        "or give a safetensors file of them (--encoder.pretrained FILE, --weights FILE of evaluate)",
    )


def _responds(site: str, seconds: float = 5.0) -> bool:
    try:
        urlopen(Request(site, method="HEAD"), timeout=seconds).close()
    except HTTPError:
        return True  # it refuses this page, so it is there
    except (URLError, OSError):
        return False
    return True
