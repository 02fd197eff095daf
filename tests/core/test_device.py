"""Which device work is done on."""

from __future__ import annotations

import pytest
import torch

from manyview.core.device import resolve_device
from manyview.core.errors import UserError


@pytest.mark.parametrize("there", [False, True])
def test_auto_is_a_gpu_where_there_is_one(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert resolve_device("auto") == resolve_device() == torch.device("cuda" if there else "cpu")


def test_a_device_is_itself() -> None:
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_gpu_that_is_not_there_is_refused(name: str | torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^device: cuda was asked for and there is none here; .* give cpu$"):
        resolve_device(name)


def test_what_is_no_device_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^device: 'abacus' cannot be used: .*; give auto, cpu or cuda$") as refused:
        resolve_device("abacus")
    assert "\n" not in str(refused.value)
