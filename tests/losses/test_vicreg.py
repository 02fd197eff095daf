from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.losses import vicreg
from tests.losses.oracle import distance, mean, total
from tests.losses.two_copies import both, same


def variance(x: Tensor) -> Tensor:
    """v, Eq. 1 and 2."""
    parts = []
    for j in range(x.shape[1]):
        middle = mean(list(x[:, j]))
        spread = (total([(each - middle) ** 2 for each in x[:, j]]) / (len(x) - 1) + 1e-4).sqrt()
        parts.append((1 - spread).clamp_min(0))
    return mean(parts)


def covariance(x: Tensor) -> Tensor:
    """c, Eq. 3 and 4."""
    n, d = x.shape
    middles = [mean(list(x[:, j])) for j in range(d)]
    squares = []
    for i in range(d):
        for j in range(d):
            if i != j:
                products = [(x[k, i] - middles[i]) * (x[k, j] - middles[j]) for k in range(n)]
                squares.append((total(products) / (n - 1)) ** 2)
    return total(squares) / d


@pytest.mark.parametrize("form", ["algorithm", "equations"])
@pytest.mark.parametrize(("n", "d"), [(5, 4), (3, 6)])
def test_it_is_the_equation_with_its_gradients(n: int, d: int, form: str) -> None:
    x, y = both(n, d)
    near = mean([distance(a, b) for a, b in zip(x, y, strict=True)])
    spread = variance(x) + variance(y)
    near, spread = (near / d, spread / 2) if form == "algorithm" else (near, spread)
    expected = 3 * near + 2 * spread + 0.5 * (covariance(x) + covariance(y))
    found = vicreg(x, y, invariance=3.0, variance=2.0, covariance=0.5, form=form)  # type: ignore[arg-type]
    same(found, expected, (x, y))


def test_the_defaults_are_the_published_weights() -> None:
    x, y = both()
    apart = [vicreg(x, y, **dict.fromkeys(("invariance", "variance", "covariance"), 0.0) | {name: 1.0})  # type: ignore[arg-type]
             for name in ("invariance", "variance", "covariance")]  # fmt: skip
    torch.testing.assert_close(vicreg(x, y), 25 * apart[0] + 25 * apart[1] + apart[2])


def test_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form: expected one of 'algorithm', 'equations', got 'code'"):
        vicreg(*both(), form="code")  # type: ignore[arg-type]
