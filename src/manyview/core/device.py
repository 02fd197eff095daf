"""The device that work is done on."""

from __future__ import annotations

import torch

from manyview.core.errors import UserError


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name, which must be there; "auto" is a GPU where there is one."""
    if str(name) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if str(name).startswith("cuda") and not torch.cuda.is_available():
        raise UserError("device", "cuda was asked for and there is none here; leave it out, or give cpu")
    try:
        torch.empty(0, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise UserError("device", f"{str(name)!r} cannot be used: {why}; give auto, cpu or cuda") from None
