from __future__ import annotations

import pytest
import torch
from torchvision.transforms.v2 import CutMix, MixUp

from manyview.core.sample import Views
from manyview.evaluate.classifier import Batches
from manyview.evaluate.mixing import mix, mixed

LABELS = torch.tensor([0, 1, 2, 1, 0])


def views() -> Views:
    """Two views, the second of which is ten times a channel of the first."""
    rgb = torch.arange(5.0)[:, None, None, None].expand(5, 3, 8, 8).contiguous()
    return {"rgb": [rgb], "depth": [10 * rgb[:, :1]]}


def batches() -> Batches:
    return Batches(1, lambda number: iter([(views(), LABELS)]))


@pytest.mark.parametrize("kind", [MixUp, CutMix])
def test_labels_are_the_shares_of_the_picture_and_of_the_one_before(kind: object) -> None:
    torch.manual_seed(0)
    made, shares = mix(views(), LABELS, 3, kind, 1.0)
    own = torch.nn.functional.one_hot(LABELS, 3).float()
    means = made["rgb"][0].mean((1, 2, 3))  # of a picture of value i, and of its neighbour's, i - 1
    share = 1 - (means[1] - 1) / -1  # lam 1 + (1 - lam) 0 = lam
    lam = float(means[1])
    assert 0 < lam < 1
    assert float(share) == pytest.approx(lam)
    torch.testing.assert_close(shares, lam * own + (1 - lam) * own.roll(1, 0))
    torch.testing.assert_close(means, lam * torch.arange(5.0) + (1 - lam) * torch.arange(5.0).roll(1))


def test_all_views_of_a_sample_are_mixed_alike_and_are_plain_tensors() -> None:
    torch.manual_seed(1)
    made, _ = mix(views(), LABELS, 3, CutMix, 1.0)
    torch.testing.assert_close(made["depth"][0], 10 * made["rgb"][0][:, :1])
    assert type(made["rgb"][0]) is torch.Tensor


def test_both_are_drawn_in_turn_and_the_seed_decides() -> None:
    def run(seed: int) -> list[bool]:
        torch.manual_seed(seed)
        made = [next(iter(mixed(batches(), 3, mixup=0.8, cutmix=1.0).epoch(0)))[0]["rgb"][0] for _ in range(20)]
        return [bool((each % 1 == 0).all()) for each in made]  # CutMix leaves every pixel as it was

    assert {True, False} == set(run(0))
    assert run(0) == run(0) != run(1)
    torch.manual_seed(0)
    assert all(bool((x["rgb"][0] % 1 == 0).all()) for x, _ in mixed(batches(), 3, cutmix=1.0).epoch(0))


def test_with_neither_the_batches_stay_as_they_are() -> None:
    same = batches()
    assert mixed(same, 3) is same
