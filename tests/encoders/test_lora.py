from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders import Encoder, create, load, merged, save
from manyview.encoders.export import export
from manyview.encoders.lora import LowRank, add_lora, attention_weights


def vit() -> Encoder:
    torch.manual_seed(0)
    return create("timm/vit_tiny_patch16_224", size=16, patch_size=8, depth=2, embed_dim=12, num_heads=2)


def trained() -> Encoder:
    """An encoder whose LoRA is no longer zero, in eval mode."""
    encoder = vit()
    add_lora(encoder, 2, 4.0)
    for name, parameter in encoder.named_parameters():
        if name.endswith(".up"):
            nn.init.normal_(parameter)
    return encoder.eval()


def test_the_changed_weight_is_the_papers() -> None:
    weight = torch.randn(6, 4, dtype=torch.float64)
    change = LowRank(weight, 2, 8.0)
    nn.init.normal_(change.up)
    expected = weight.clone()
    for out in range(6):
        for into in range(4):
            expected[out, into] += 8.0 / 2 * sum(float(change.up[out, r] * change.down[r, into]) for r in range(2))
    assert torch.allclose(change(weight), expected)


def test_it_begins_with_the_embeddings_of_the_plain_network() -> None:
    encoder, x = vit().eval(), torch.randn(2, 3, 16, 16)
    before = encoder(x)
    add_lora(encoder, 2, 4.0)
    assert torch.equal(encoder(x), before)


def test_only_the_low_rank_changes_learn() -> None:
    encoder = vit()
    add_lora(encoder, 2, 4.0)
    learning = [name for name, each in encoder.named_parameters() if each.requires_grad]
    assert len(learning) == 2 * 2 * 2  # down and up, of qkv and proj, of two blocks
    assert all(name.endswith((".up", ".down")) for name in learning)
    encoder(torch.randn(2, 3, 16, 16)).sum().backward()
    assert all(each.grad is None or each.requires_grad for each in encoder.parameters())


def test_batch_norms_of_a_network_that_has_some_keep_their_statistics() -> None:
    encoder = create("timm/mobilevit_xxs", size=64)
    add_lora(encoder, 2, 2.0)
    before = {name: each.clone() for name, each in encoder.named_buffers()}
    encoder.train()(torch.randn(2, 3, 64, 64))
    assert any(name.endswith("running_mean") for name in before)
    assert all(torch.equal(each, before[name]) for name, each in encoder.named_buffers())


def test_what_is_saved_is_a_plain_network_with_the_same_embeddings(tmp_path: Path) -> None:
    encoder, x = trained(), torch.randn(2, 3, 16, 16)
    save(encoder, tmp_path / "encoder.safetensors")
    again = load(tmp_path / "encoder.safetensors").eval()
    assert again.network.state_dict().keys() == vit().network.state_dict().keys()
    assert torch.allclose(again(x), encoder(x), atol=1e-6)


def test_timm_itself_loads_what_is_exported_and_says_the_same(tmp_path: Path) -> None:
    encoder, x = trained(), torch.randn(2, 3, 16, 16)
    export(encoder, "timm", tmp_path / "vit.safetensors")
    options: dict[str, Any] = {"patch_size": 8, "depth": 2, "embed_dim": 12, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=16, **options)
    model.load_state_dict(load_file(tmp_path / "vit.safetensors"))
    assert torch.allclose(model.eval()(x), encoder(x), atol=1e-6)


def test_merging_leaves_the_encoder_itself_as_it_is() -> None:
    encoder = trained()
    names = list(encoder.state_dict())
    assert merged(encoder) is not encoder
    assert list(encoder.state_dict()) == names
    plain = vit()
    assert merged(plain) is plain


def test_a_copy_has_a_low_rank_change_of_its_own() -> None:
    encoder = trained()
    other = copy.deepcopy(encoder)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if name.endswith(".up"):
                parameter.zero_()
    x = torch.randn(2, 3, 16, 16)
    assert not torch.allclose(encoder(x), other(x))


def test_torchvisions_attention_is_found_too() -> None:
    encoder = create("torchvision/vit_b_16", size=32)
    names = [name for _, name in attention_weights(encoder.network)]
    assert names == ["in_proj_weight", "weight"] * 12
    add_lora(encoder, 2, 2.0)
    encoder(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(each.grad is not None for name, each in encoder.named_parameters() if name.endswith(".up"))


@pytest.mark.parametrize(("name", "rank", "said"), [("patchnet", 2, "has none"), ("timm", 99, "not low")])
def test_what_it_cannot_be_used_for_is_refused(name: str, rank: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        add_lora(vit() if name == "timm" else create(name, size=32), rank, 1.0)
