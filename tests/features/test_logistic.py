"""Logistic regression: scikit-learn's numbers, and the penalty that held-out rows choose."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from manyview.features.logistic import Scaling, choose, fit, fit_chosen, logits


def drawn(rows: int, seed: int, classes: int = 7) -> tuple[Tensor, Tensor]:
    """Features of all scales, of classes that overlap."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=draw)
    centres = torch.randn(classes, 32, generator=torch.Generator().manual_seed(99))
    mixed = (0.5 * centres[labels] + torch.randn(rows, 32, generator=draw)).relu()
    return mixed * torch.logspace(-3, 2, 32), labels


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_it_is_scikit_learns_on_the_same_features(C: float) -> None:
    (x, labels), (test, right) = drawn(1500, 0), drawn(2000, 1)
    scaling = Scaling.of(x)
    found = logits(fit(scaling(x), labels, 7, C), scaling(test))
    scaler = StandardScaler().fit(x.numpy())
    theirs = LogisticRegression(C=C, max_iter=2000, tol=1e-6).fit(scaler.transform(x.numpy()), labels.numpy())
    shares = torch.from_numpy(theirs.predict_proba(scaler.transform(test.numpy())))
    torch.testing.assert_close(found.softmax(1).double(), shares.double(), rtol=0, atol=0.01)
    ours = float((found.argmax(1) == right).double().mean())
    assert abs(ours - theirs.score(scaler.transform(test.numpy()), right.numpy())) <= 0.001
    assert ours > 0.3


def test_where_it_begins_does_not_matter() -> None:
    x, labels = drawn(500, 0)
    x = Scaling.of(x)(x)
    one = fit(x, labels, 7, 0.1)
    other = fit(x, labels, 7, 0.1, start=torch.randn(33, 7, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(logits(one, x).softmax(1), logits(other, x).softmax(1), rtol=0, atol=2e-3)


def test_the_c_is_the_one_that_the_held_out_part_likes_best() -> None:
    (x, labels), (held, right) = drawn(60, 0), drawn(400, 2)
    scaling = Scaling.of(x)
    x, held = scaling(x), scaling(held)
    cs = (10.0, 1e-3, 0.1)
    shares = {C: float((logits(fit(x, labels, 7, C), held).argmax(1) == right).double().mean()) for C in cs}
    C, weights = choose(x, labels, held, right, 7, cs)
    assert shares[C] == max(shares.values())
    assert weights is not None


def test_a_feature_that_never_changes_does_no_harm() -> None:
    x, _ = drawn(50, 0)
    x[:, 3] = 7.7
    assert torch.isfinite(Scaling.of(x)(x)).all()
    assert (Scaling.of(x)(x)[:, 3].abs() < 1e-5).all()


def test_all_rows_are_fitted_with_the_c_that_some_have_chosen() -> None:
    x, labels = drawn(300, 0)
    x = Scaling.of(x)(x)
    weights, C = fit_chosen(x, labels, 7, (1e-3, 0.1), seed=4)
    assert C in (1e-3, 0.1)
    torch.testing.assert_close(logits(weights, x), logits(fit(x, labels, 7, C), x), rtol=0, atol=0.02)
