"""The numbers of the papers' probes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.evaluate.probe_recipes import MLP, RECIPES

STEPS = {0: 1, 59: 1, 60: 0.1, 79: 0.1, 80: 0.01, 99: 0.01}
CMC = {0: 1, 59: 1, 60: 0.2, 74: 0.2, 75: 0.04, 89: 0.04, 90: 0.008, 99: 0.008}
COSINE = {0: 1, 15: 0.75 + 0.5 * (0.75**0.5 - 0.5), 30: 0.75, 45: 0.5, 60: 0.25}
PUBLISHED: dict[str, tuple[float, int, int, dict[int, float]]] = {  # lr, batch, epochs, share of lr by epoch
    "moco": (30, 256, 100, STEPS),
    "jcl": (30, 256, 100, STEPS),
    "jcl-ablation": (10, 256, 100, STEPS),
    "cacr": (30, 256, 100, STEPS),
    "cacr-small": (0.001, 128, 100, {0: 1, 59: 1, 60: 0.2, 79: 0.2, 80: 0.04, 99: 0.04}),
    "cacr-small-cifar": (0.001, 128, 100, {0: 1, 59: 1, 60: 0.2, 79: 0.2, 80: 0.04, 99: 0.04}),
    "cacr-small-stl": (0.001, 128, 100, {0: 1, 59: 1, 60: 0.2, 79: 0.2, 80: 0.04, 99: 0.04}),
    "dcl-openselfsup": (30, 256, 100, STEPS),
    "dcl-lars": (1.2, 4096, 90, COSINE),
    "cmc": (30, 256, 100, CMC),
    "cmc-wide": (50, 256, 100, CMC),
    "cmc-alexnet": (0.1, 256, 100, CMC),
    "cmc-code": (30, 256, 60, {0: 1, 29: 1, 30: 0.2, 40: 0.04, 50: 0.008, 59: 0.008}),
    "hcl": (0.001, 512, 100, {0: 1, 60: 1, 99: 1}),
    "hcl-code": (0.001, 512, 100, {0: 1, 60: 1, 99: 1}),
    "moco-v3": (0.4, 1024, 90, COSINE),
    "moco-v3-vit": (12, 1024, 90, COSINE),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_papers_numbers(name: str) -> None:
    lr, batch, epochs, shares = PUBLISHED[name]
    recipe = RECIPES[name]
    assert (recipe.lr, recipe.batch_size, recipe.epochs) == (lr, batch, epochs)
    assert recipe.weight_decay == 0
    assert {epoch: recipe.lr_factor(epoch) for epoch in shares} == pytest.approx(shares)
    optimizer = recipe.optimizer(nn.Linear(2, 2), lr=recipe.lr, weight_decay=recipe.weight_decay)
    kind = "Adam" if name.startswith(("cacr-small", "hcl")) else "LARS" if name == "dcl-lars" else "SGD"
    assert type(optimizer).__name__ == kind
    assert optimizer.defaults.get("momentum", 0.9) == 0.9
    assert not name.startswith("cacr-small") or optimizer.defaults["betas"] == (0.5, 0.999)


def test_every_published_recipe_is_there() -> None:
    assert list(RECIPES) == list(PUBLISHED)


def test_what_the_text_of_cacr_does_not_say_and_its_code_does_has_a_name_of_its_own() -> None:
    text, cifar, stl = (RECIPES[name] for name in ("cacr-small", "cacr-small-cifar", "cacr-small-stl"))
    assert [each.initial for each in (text, cifar, stl)] == ["normal", "torch", "torch"]
    assert cifar.train_views == {"name": "probe-train", "smallest": 0.2}
    assert text.train_views == stl.train_views == {"name": "probe-train"}
    assert (text.margin, cifar.margin, stl.margin) == (None, None, 70 / 64)
    assert all(each.layer == "fc7" for each in (text, cifar, stl))


def test_only_hcls_code_has_the_encoder_in_training_mode() -> None:
    assert [name for name, recipe in RECIPES.items() if recipe.train_mode] == ["hcl-code"]
    assert RECIPES["hcl"].train_views == RECIPES["hcl-code"].train_views == {"name": "simclr", "strength": 0.5}


def test_the_numbers_of_the_mlp_are_cmcs() -> None:
    recipe = MLP
    assert (recipe.lr, recipe.epochs) == (0.001, 100)
    shares = {0: 1, 59: 1, 60: 0.2, 79: 0.2, 80: 0.04, 99: 0.04}
    assert {epoch: recipe.lr_factor(epoch) for epoch in shares} == pytest.approx(shares)
    optimizer = recipe.optimizer(nn.Linear(2, 2), lr=recipe.lr, weight_decay=recipe.weight_decay)
    assert isinstance(optimizer, torch.optim.Adam)
    assert optimizer.defaults["betas"] == (0.5, 0.999)
