from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import PCA

from manyview.core.errors import UserError
from manyview.diagnose.places import correspondence, principal_colours


def test_the_colours_are_three_principal_components_stretched() -> None:
    maps = torch.randn(2, 6, 5, 4, generator=torch.Generator().manual_seed(0))
    found = principal_colours(maps)
    assert found.shape == (2, 3, 5, 4)
    expected = PCA(3).fit_transform(maps.movedim(1, -1).reshape(-1, 6).double().numpy())
    for number in range(3):
        ours = found.movedim(1, -1).reshape(-1, 3)[:, number].double()
        theirs = torch.from_numpy(expected[:, number].copy())
        inside = (ours > 0) & (ours < 1)
        assert abs(float(torch.corrcoef(torch.stack([ours, theirs])[:, inside])[0, 1])) == pytest.approx(1, abs=1e-6)
        assert float(ours.min()) == 0
        assert float(ours.max()) == 1


def test_places_with_one_feature_have_one_colour_and_there_may_be_fewer_components() -> None:
    maps = torch.zeros(1, 2, 4, 4)
    maps[0, 0, :2] = 1.0
    found = principal_colours(maps)[0]
    assert len({tuple(each.tolist()) for each in found[:, :2].flatten(1).T}) == 1
    assert not torch.equal(found[:, 0, 0], found[:, 3, 3])
    assert bool((found[1:] == 0.5).all())


def test_a_moved_image_corresponds_place_by_place() -> None:
    first = torch.randn(8, 4, 6, generator=torch.Generator().manual_seed(1))
    second = first.roll(2, dims=2)
    found = correspondence(first, second, 24)
    assert len(found.first) == 24
    assert torch.equal(found.second[:, 0], found.first[:, 0])
    assert torch.equal(found.second[:, 1], (found.first[:, 1] + 2) % 6)
    assert bool((found.similarity > 0.999).all())


def test_only_the_most_alike_pairs_are_given_and_all_are_mutual() -> None:
    first, second = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(2)).unbind()
    found = correspondence(first, second, 3)
    assert len(found.first) == 3
    assert found.similarity.tolist() == sorted(found.similarity.tolist(), reverse=True)
    back = correspondence(second, first, 3)
    assert torch.equal(back.second, found.first)


def test_maps_that_hold_no_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="maps"):
        principal_colours(torch.full((1, 2, 3, 3), torch.nan))
