"""Check sums of networks, by which embeddings and scores are matched to the weights that they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import nn

from manyview.encoders import Encoder


def weights_checksum(encoder: Encoder) -> str:
    """Computes a check sum of the network's name and options, and of every weight."""
    recipe = json.dumps([encoder.name, encoder.options], sort_keys=True, default=repr)  # as a file would have it
    total = hashlib.blake2b(recipe.encode(), digest_size=16)
    for name, value in sorted(encoder.network.state_dict().items()):
        plain = value.detach().cpu().contiguous()
        total.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        total.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def heads_checksum(heads: Mapping[str, nn.Module]) -> str:
    """Computes a check sum of every weight of the heads."""
    total = hashlib.blake2b(digest_size=16)
    for view, head in heads.items():
        for name, value in sorted(head.state_dict().items()):
            total.update(f"{view} {name} {tuple(value.shape)}".encode() + value.detach().cpu().numpy().tobytes())
    return total.hexdigest()
