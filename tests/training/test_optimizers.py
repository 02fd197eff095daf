from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from manyview.training.optimizers import (
    LARS,
    OPTIMIZERS,
    SCHEDULES,
    adamw,
    constant,
    cosine,
    keep_lr,
    lars,
    set_decay,
    set_lr,
    steps,
)
from tests.golden import golden


def test_lars_is_mocos() -> None:
    weight, bias = (golden(f"lars/{name}0").clone().requires_grad_() for name in ("weight", "bias"))
    optimizer = LARS([weight, bias], 0.3, weight_decay=1e-2)
    for step in range(3):
        weight.grad, bias.grad = golden("lars/grads_weight")[step], golden("lars/grads_bias")[step]
        optimizer.step()
        torch.testing.assert_close(weight.detach(), golden("lars/weights")[step], atol=1e-12, rtol=0)
        torch.testing.assert_close(bias.detach(), golden("lars/biases")[step], atol=1e-12, rtol=0)


def test_lars_of_a_zero_tensor_or_gradient_is_momentum_alone() -> None:
    zero, still = torch.zeros(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    zero.grad, still.grad = torch.ones(2, 2), torch.zeros(2, 2)
    LARS([zero, still], 0.5).step()
    assert (zero == -0.5).all()
    assert (still == 1).all()


def test_lars_goes_on_after_save_and_load() -> None:
    torch.manual_seed(0)
    network = nn.Linear(3, 4)
    optimizer = LARS(network.parameters(), 0.1, weight_decay=0.1)

    def steps_of(network: nn.Module, optimizer: LARS, count: int) -> None:
        for number in range(count):
            optimizer.zero_grad()
            network(torch.full((2, 3), 1.0 + number)).square().sum().backward()
            optimizer.step()

    steps_of(network, optimizer, 2)
    twin = copy.deepcopy(network)
    other = LARS(twin.parameters(), 0.9)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps_of(network, optimizer, 2)
    steps_of(twin, other, 2)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), twin.parameters(), strict=True))


def test_lars_leaves_what_has_no_gradient() -> None:
    alone = torch.ones(2, requires_grad=True)
    LARS([alone], 1.0).step()
    assert (alone == 1).all()


@pytest.mark.parametrize("name", ["lr", "momentum", "weight_decay", "trust"])
def test_a_negative_number_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected"):
        LARS([torch.ones(1, requires_grad=True)], **{"lr": 0.1, name: -1.0})


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_biases_and_norms_decay_only_if_asked_for(name: str) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    network[0].weight.requires_grad_(False)
    network.add_module("head", nn.Linear(2, 2))
    apart = OPTIMIZERS[name](network, lr=0.1, weight_decay=0.5, decay_norms=False)
    assert [group["weight_decay"] for group in apart.param_groups] == [0.5, 0.0]
    assert [len(group["params"]) for group in apart.param_groups] == [1, 4]
    together = OPTIMIZERS[name](network, lr=0.1, weight_decay=0.5, decay_norms=True)
    assert [len(group["params"]) for group in together.param_groups] == [5]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_leaves_what_is_frozen_and_takes_a_rate(name: str) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    network[0].requires_grad_(False)
    optimizer = OPTIMIZERS[name](network)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 2
    set_lr(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.25}


def test_biases_and_norms_have_a_learning_rate_in_proportion() -> None:
    """Barlow Twins: 0.2 of weights, 0.0048 of all that has one axis, for 256 images."""
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = lars(network, lr=1.6, bias_scale=0.024)
    set_lr(optimizer, 0.8)
    rates = {each: group["lr"] for group in optimizer.param_groups for each in group["params"]}
    assert [rates[each] for each in network.parameters()] == pytest.approx([0.8, 0.0192, 0.0192, 0.0192])
    assert len(lars(network).param_groups) == 1


def test_the_learning_rate_of_a_part_can_stay_what_it_is() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = OPTIMIZERS["adamw"](network, lr=0.5)
    keep_lr(optimizer, network[1])
    set_lr(optimizer, 0.1)
    rates = {each: group["lr"] for group in optimizer.param_groups for each in group["params"]}
    assert [rates[each] for each in network.parameters()] == [0.1, 0.1, 0.5, 0.5]
    again = OPTIMIZERS["adamw"](network, lr=0.5)
    keep_lr(again, network[1])
    again.load_state_dict(optimizer.state_dict())
    set_lr(again, 0.0)
    assert [group["lr"] for group in again.param_groups] == [0.0, 0.5, 0.0, 0.5]


def test_weight_decay_can_go_to_another_along_half_a_cosine() -> None:
    """DINO's, of what decays at all: from 0.04 to 0.4."""
    optimizer = adamw(nn.Linear(2, 2), weight_decay=0.04, weight_decay_end=0.4)
    found = []
    for done in (0.0, 0.5, 1.0):
        set_decay(optimizer, done)
        found.append([group["weight_decay"] for group in optimizer.param_groups])
    assert found == [pytest.approx(each) for each in ([0.04, 0.0], [0.22, 0.0], [0.4, 0.0])]
    stays = adamw(nn.Linear(2, 2), weight_decay=0.04)
    set_decay(stays, 1.0)
    assert stays.param_groups[0]["weight_decay"] == 0.04


def test_half_a_cosine_can_end_above_zero() -> None:
    assert [cosine(step, 100, end=0.001) for step in (0, 50, 100)] == pytest.approx([1, 0.5005, 0.001])
    assert cosine(10, 100, warmup=10, end=0.001) == 1


def test_schedules_are_mocos() -> None:
    for name, schedule in (("moco_cosine", cosine), ("moco_step", lambda e, t: steps(e, t, milestones=(120, 160)))):
        for epoch, lr in zip(golden(f"schedules/{name}/epochs"), golden(f"schedules/{name}/lr"), strict=True):
            assert 0.03 * schedule(epoch.item(), 200) == pytest.approx(lr.item(), abs=1e-15)
    for epoch, lr in zip(golden("schedules/mocov3/epochs"), golden("schedules/mocov3/lr"), strict=True):
        assert 0.6 * cosine(epoch.item(), 100, warmup=10) == pytest.approx(lr.item(), abs=1e-15)


def test_warm_up_rises_in_a_line_and_meets_the_rest() -> None:
    assert [steps(step, 100, milestones=(50,), warmup=10) for step in (0, 5, 10, 49, 50)] == [0, 0.5, 1, 1, 0.1]
    assert cosine(10, 100, warmup=10) == 1
    assert cosine(100, 100, warmup=10) == pytest.approx(0)
    assert [constant(step, 7, warmup=2) for step in (0, 1, 2, 3)] == [0, 0.5, 1, 1]
    assert set(SCHEDULES) == {"constant", "cosine", "steps"}
