"""LoRA (Hu et al., ICLR 2022): a network's weights stay, and low-rank changes of its attention layers are learnt."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

from manyview.core.errors import UserError
from manyview.encoders.encoder import Encoder, create
from manyview.encoders.layers import batch_norms

KEPT = ("preprocess", "normalisation", "beginning", "by_order")  # of an encoder, beside its network


class LowRank(nn.Module):
    """W + alpha / rank B A, with A (rank, in) drawn and B (out, rank) zero at first, so that it begins as W itself.

    Section 4.1 of the paper; A is drawn as the layer's own weights would be, as in microsoft/LoRA.
    """

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        out, into = weight.shape
        self.scale = alpha / rank
        self.down = nn.Parameter(weight.new_empty(rank, into))
        self.up = nn.Parameter(weight.new_zeros(out, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down)


def add_lora(encoder: Encoder, rank: int, alpha: float) -> None:
    """Freezes an encoder's network and gives the layers of its attention that may learn a low-rank change each.

    What is frozen already gets none, and batch norms keep their statistics. The embeddings are at first what they were;
    `merged` makes a plain network of it.
    """
    found = [each for each in attention_weights(encoder.network) if getattr(*each).requires_grad]
    if not found:
        raise UserError("lora", f"is for attention layers that may learn, and {encoder.name} has none; leave it out")
    encoder.network.requires_grad_(False)
    for layer, name in found:
        weight = getattr(layer, name)
        if rank > min(weight.shape):
            raise UserError("lora", f"a rank of {rank} is not low for weights {tuple(weight.shape)}; give less")
        register_parametrization(layer, name, LowRank(weight, rank, alpha))
    norms = set(batch_norms(encoder.network))
    encoder.frozen += tuple(name for name, part in encoder.network.named_modules() if part in norms)
    encoder.train(encoder.training)


def attention_weights(network: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """The layers that a network's attention multiplies tokens with, and the names of their weights.

    These are the linear layers of whatever calls itself attention: `qkv` and `proj` of timm's ViTs, and the weights of
    torch's own, which torchvision's have.
    """
    for part in network.modules():
        if "Attention" in type(part).__name__:
            yield from ((part, name) for name in ("in_proj_weight",) if isinstance(getattr(part, name, None), Tensor))
            yield from ((each, "weight") for each in part.children() if isinstance(each, nn.Linear))


def merged(encoder: Encoder) -> Encoder:
    """The encoder as its library makes it, with what LoRA has learnt in the weights, and nothing frozen for a training.

    It is made anew, or itself where it is that already.
    """
    changed = {f"{path}.": part for path, part in encoder.network.named_modules() if is_parametrized(part)}
    if not changed and not encoder.frozen:
        return encoder
    state = {key: value for key, value in encoder.network.state_dict().items() if ".parametrizations." not in key}
    for path, part in changed.items():
        state |= {path + name: getattr(part, name).detach() for name in parametrizations(part)}
    with torch.random.fork_rng():
        plain = create(encoder.name, **encoder.options)
    plain.network.load_state_dict(state)
    vars(plain).update({name: vars(encoder)[name] for name in KEPT if name in vars(encoder)})
    some = next(iter(state.values()))
    plain.to(some.device, some.dtype).train(encoder.training)
    return plain


def parametrizations(part: nn.Module) -> list[str]:
    """The names of the weights of a layer that are computed from others."""
    found = part.parametrizations
    assert isinstance(found, nn.ModuleDict)
    return list(found)
