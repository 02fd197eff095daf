"""Chooses which part of an encoder is trained: all, what follows one of its blocks, or LoRA of its attention."""

from __future__ import annotations

from torch import nn

from manyview.core.bounds import OptionalCount, OptionalPositive
from manyview.core.errors import UserError, nearest
from manyview.encoders.encoder import Encoder
from manyview.encoders.layers import batch_norms
from manyview.encoders.lora import add_lora

NAMED_BLOCKS = 14  # in an error


def choose_trained_part(
    encoder: Encoder,
    *,
    freeze_below: str | None = None,
    freeze_norm: bool = False,
    lora: OptionalCount = None,
    lora_alpha: OptionalPositive = None,
) -> None:
    """Chooses which part of an encoder is trained; by default all that its network does not itself keep fixed.

    freeze_below  everything before the block of this name stays as it is, such as blocks.6 of a ViT or layer3 of a
                  ResNet: no gradient, and batch norm and dropout as in evaluation
    freeze_norm   batch norm normalises as in evaluation, by the fixed statistics of the weights; its scale and shift
                  are trained
    lora          the rank of LoRA's changes to attention layers; everything else of the encoder stays as it is
    lora_alpha    the changes are multiplied by alpha / rank; by default by 1
    """
    if lora_alpha is not None and lora is None:
        raise UserError("lora_alpha", "is of LoRA, which is not used; give --encoder.lora RANK too")
    if freeze_below is not None:
        freeze(encoder, freeze_below)
    if freeze_norm:
        freeze_statistics(encoder)
    if lora is not None:
        add_lora(encoder, lora, lora if lora_alpha is None else lora_alpha)


def freeze(encoder: Encoder, below: str) -> None:
    """Freezes everything before a block of an encoder's network."""
    network = encoder.network
    modules = [name for name, _ in network.named_modules() if name]
    inside = [name.startswith(f"{below}.") for name, _ in network.named_parameters()]
    if below not in modules or not any(inside):
        names = block_names(network)
        more = f" and {len(names) - NAMED_BLOCKS} more" if len(names) > NAMED_BLOCKS else ""
        near = nearest(below, modules)
        hint = f"; did you mean {near}?" if near else ""
        there = f"its blocks are {', '.join(names[:NAMED_BLOCKS])}{more}"
        raise UserError("freeze_below", f"{encoder.name} has no block {below!r}; {there}{hint}")
    first = inside.index(True)
    if not first:
        raise UserError("freeze_below", f"nothing lies before {below} in {encoder.name}; leave it out, or name a later")
    parameters = dict(list(network.named_parameters())[:first])
    for parameter in parameters.values():
        parameter.requires_grad_(False)
    before = [name for name in modules[: modules.index(below)] if not below.startswith(f"{name}.")]
    parts = tuple(name for name in before if name.rpartition(".")[0] not in before)
    bare = (name for name in parameters if name.rpartition(".")[0] not in before)  # such as the positions of a ViT
    encoder.frozen = (*bare, *parts)
    encoder.train(encoder.training)


def freeze_statistics(encoder: Encoder) -> None:
    """Keeps every batch norm of an encoder's network in eval mode, and so its statistics."""
    norms = set(batch_norms(encoder.network))
    encoder.frozen += tuple(name for name, part in encoder.network.named_modules() if part in norms)
    encoder.train(encoder.training)


def block_names(network: nn.Module) -> list[str]:
    """Lists the parts of a network with weights, in order; of a list of blocks, the blocks."""
    found: list[str] = []
    for name, part in network.named_children():
        listed = isinstance(part, nn.ModuleList | nn.Sequential) and len(part) > 1
        inner = [f"{name}.{each}" for each, block in part.named_children() if len(list(block.children()))]
        found += inner if listed and inner else [name] if next(part.parameters(), None) is not None else []
    return found
