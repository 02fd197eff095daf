from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders import Encoder, Slot, Towers, choose_trained_part, create, merged
from manyview.encoders.trained_part import block_names


def small() -> Encoder:
    torch.manual_seed(0)
    return create("patchnet", size=16, widths=(4, 8), blocks=(1, 1))


def step(towers: Towers) -> None:
    slots = [Slot("query", "image", 0), Slot("key", "image", 1)]
    optimizer = torch.optim.SGD(towers.trained(), lr=0.5)
    outputs = towers({"image": list(torch.randn(2, 8, 3, 16, 16))}, slots)
    (outputs[slots[0]] * outputs[slots[1]]).sum().backward()
    optimizer.step()
    towers.update(0, 1)


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_what_lies_below_the_block_stays_to_the_bit_and_the_rest_learns(momentum: float | None) -> None:
    encoder = small()
    choose_trained_part(encoder, freeze_below="stage2")
    towers = Towers(encoder, lambda dim: nn.Linear(dim, 4), momentum=momentum)
    before = {name: value.clone() for name, value in towers.state_dict().items()}
    step(towers.train())
    changed = {name for name, value in towers.state_dict().items() if not torch.equal(value, before[name])}
    below = {name for name in before if ".stem." in name or ".stage1." in name}
    assert below
    assert not below & changed  # running statistics too, in both branches
    assert "query.shared.encoder.network.stage2.0.norm2.weight" in changed
    assert "query.shared.encoder.network.stage2.0.norm2.running_mean" in changed
    assert all(each.grad is None for name, each in towers.named_parameters() if name in below)


def test_frozen_parts_stay_in_eval_mode_whatever_mode_is_set() -> None:
    encoder = small()
    choose_trained_part(encoder, freeze_below="stage2")
    encoder.eval()
    encoder.train()
    modes = {name: part.training for name, part in encoder.network.named_children()}
    assert modes == {"stem": False, "stage1": False, "stage2": True}


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_statistics_of_batch_norm_stay_where_they_are_frozen_and_its_weights_learn(momentum: float | None) -> None:
    encoder = small()
    choose_trained_part(encoder, freeze_norm=True)
    towers = Towers(encoder, lambda dim: nn.Linear(dim, 4), momentum=momentum)
    before = {name: value.clone() for name, value in towers.state_dict().items()}
    step(towers.train())
    changed = {name for name, value in towers.state_dict().items() if not torch.equal(value, before[name])}
    assert not any("running" in name or "batches" in name for name in changed)
    assert "query.shared.encoder.network.stage2.0.norm2.weight" in changed
    assert all(part.training for part in merged(encoder).train().modules())


def test_merged_it_is_a_plain_network_that_learns_as_a_whole() -> None:
    encoder = small()
    choose_trained_part(encoder, freeze_below="stage2")
    plain = merged(encoder).train()
    assert all(part.training for part in plain.modules())
    assert all(each.requires_grad for each in plain.parameters())
    assert torch.equal(plain.eval()(torch.ones(1, 3, 16, 16)), encoder.eval()(torch.ones(1, 3, 16, 16)))


def test_merged_nothing_stays_frozen_that_belongs_to_no_part() -> None:
    encoder = create("timm/vit_tiny_patch16_224", size=16, patch_size=8, depth=1, embed_dim=12, num_heads=2)
    choose_trained_part(encoder, freeze_below="patch_embed")  # the class token and the positions alone lie before it
    assert not any(each.requires_grad for each in (encoder.network.cls_token, encoder.network.pos_embed))
    encoder.train()
    plain = merged(encoder)
    assert all(each.requires_grad for each in plain.parameters())
    assert torch.equal(plain.eval()(torch.ones(1, 3, 16, 16)), encoder.eval()(torch.ones(1, 3, 16, 16)))


def test_positions_and_patches_of_a_vit_lie_below_its_first_blocks() -> None:
    encoder = create("timm/vit_tiny_patch16_224", size=16, patch_size=8, depth=3, embed_dim=12, num_heads=2)
    choose_trained_part(encoder, freeze_below="blocks.1", lora=2)
    learning = {name for name, each in encoder.network.named_parameters() if each.requires_grad}
    assert {name.split(".")[1] for name in learning} == {"1", "2"}  # LoRA alone, and none below
    assert all("parametrizations" in name for name in learning)


def test_a_block_inside_a_list_can_be_named() -> None:
    encoder = create("timm/resnet18", size=32)
    choose_trained_part(encoder, freeze_below="layer2.1")
    learning = [name for name, each in encoder.network.named_parameters() if each.requires_grad]
    assert learning[0] == "layer2.1.conv1.weight"
    assert encoder.frozen[-1] == "layer2.0"
    assert "layer2" not in encoder.frozen


def test_the_blocks_are_named_where_there_is_none_of_a_name() -> None:
    assert block_names(small().network) == ["stem", "stage1", "stage2"]
    with pytest.raises(UserError, match=r"no block 'stage9'; its blocks are stem, stage1, stage2"):
        choose_trained_part(small(), freeze_below="stage9")
    with pytest.raises(UserError, match="nothing lies before stem"):
        choose_trained_part(small(), freeze_below="stem")


def test_an_alpha_without_a_rank_is_refused() -> None:
    with pytest.raises(UserError, match="lora_alpha"):
        choose_trained_part(small(), lora_alpha=2.0)
