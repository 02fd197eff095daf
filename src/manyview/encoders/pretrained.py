"""Published weights: that they can be had, before a library tries for a minute and ends in a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from manyview.core.errors import UserError

HUB = "https://huggingface.co"


def refuse_what_only_libraries_have(
    model: str, stem: str | None, pretrained: bool, options: Iterable[str], takes: tuple[str, ...]
) -> None:
    """For our own networks: no other stem, no published weights, no options but those that it takes."""
    if stem is not None:
        raise UserError("stem", f"{stem!r} is for ResNets; {model} is made for small images as it is")
    if pretrained:
        raise UserError("pretrained", f"there are no published weights of {model}; give a file that `save` wrote")
    unknown = sorted(set(options) - set(takes))
    if unknown:
        raise UserError("options", f"{model} takes {' and '.join(takes)}, not {', '.join(unknown)}")


def refuse_if_unreachable(name: str, source: str, place: str, site: str) -> None:
    """source: what is missing; place: where the library looks for it; site: where it would be downloaded from."""
    if not _answers(site):
        raise unavailable(name, source, place)


def unavailable(name: str, source: str, place: str) -> ValueError:
    return ValueError(
        f"pretrained: the weights of {name} are not on this machine and {source} cannot be reached; "
        f"download them elsewhere and put them into {place}, "
        "or give a safetensors file of them (--encoder.pretrained FILE, --weights FILE of evaluate)"
    )


def _answers(site: str, seconds: float = 5.0) -> bool:
    try:
        urlopen(Request(site, method="HEAD"), timeout=seconds).close()
    except HTTPError:
        return True  # it refuses this page, so it is there
    except (URLError, OSError):
        return False
    return True
