from __future__ import annotations

import pytest
import torch

from manyview.encoders import create, pretrained, timm_models


@pytest.mark.parametrize("name", ["patchnet", "small_alexnet"])
def test_networks_without_pretrained_weights_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="pretrained: there are no pretrained weights"):
        create(name, size=32, pretrained=True)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18"])
def test_weights_out_of_reach_are_one_line_that_says_where_to_put_them(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(pretrained, "_responds", lambda site: False)
    monkeypatch.setattr(timm_models, "_in_cache", lambda repository: False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(ValueError, match=f"pretrained: the weights of {name} are not on this machine.*put them into"):
        create(name, pretrained=True)


def test_a_site_that_does_not_respond_is_out_of_reach() -> None:
    assert not pretrained._responds("http://127.0.0.1:9", seconds=1)
