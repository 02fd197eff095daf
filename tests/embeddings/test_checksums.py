"""Check sums change with any weight, and with nothing else."""

from __future__ import annotations

import copy

import torch
from torch import nn

from manyview.embeddings.checksums import heads_checksum, weights_checksum
from manyview.encoders import Encoder


def test_one_changed_weight_changes_an_encoders(encoder: Encoder) -> None:
    other = copy.deepcopy(encoder)
    assert weights_checksum(other.train()) == weights_checksum(encoder)
    with torch.no_grad():
        next(other.parameters()).flatten()[-1] += 1e-3
    assert weights_checksum(other) != weights_checksum(encoder)


def test_heads_are_told_apart_by_weights_and_view() -> None:
    head = nn.Linear(3, 2)
    same, other = copy.deepcopy(head), nn.Linear(3, 2)
    assert heads_checksum({"rgb": head}) == heads_checksum({"rgb": same})
    assert heads_checksum({"rgb": head}) != heads_checksum({"rgb": other})
    assert heads_checksum({"rgb": head}) != heads_checksum({"depth": head})
    assert heads_checksum({}) != heads_checksum({"rgb": head})
