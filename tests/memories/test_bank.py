from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.losses import info_nce, nce, nce_partition
from manyview.memories import BankMemory, MemoryBank, Negatives
from manyview.memories import bank as as_memory


def test_it_starts_with_one_unit_vector_per_image() -> None:
    bank = MemoryBank(30, 8)
    assert torch.allclose(bank.vectors.norm(dim=1), torch.ones(30))


def test_an_update_moves_by_the_momentum_and_stays_unit() -> None:
    bank, index = MemoryBank(10, 4, momentum=0.25), torch.tensor([3, 7])
    before, features = bank.vectors.clone(), F.normalize(torch.randn(2, 4), dim=1)
    bank.update(index, features)
    for row, i in enumerate(index.tolist()):
        mixed = 0.25 * before[i] + 0.75 * features[row]
        assert torch.allclose(bank.vectors[i], mixed / mixed.norm())
    untouched = [i for i in range(10) if i not in (3, 7)]
    assert torch.equal(bank.vectors[untouched], before[untouched])


def test_draws_are_uniform_over_the_other_images() -> None:
    bank, index = MemoryBank(6, 2), torch.tensor([0, 3, 5])
    drawn = bank.draw(index, 30_000, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (3, 30_000)
    for row, own in enumerate(index.tolist()):
        shares = torch.bincount(drawn[row], minlength=6) / 30_000
        assert shares[own] == 0
        others = shares[[i for i in range(6) if i != own]]
        assert (others - 0.2).abs().max() < 0.015  # six standard deviations


def test_negatives_are_indices_into_the_bank_and_no_copy() -> None:
    bank = MemoryBank(20, 4)
    (source,) = bank.negatives(torch.tensor([1, 2]), 5).sources
    assert source.keys is bank.vectors
    assert source.index is not None
    assert source.index.shape == (2, 5)


@pytest.mark.parametrize("m", [3, 200])
def test_a_drawn_softmax_is_that_of_the_gathered_rows(m: int) -> None:
    bank, index = MemoryBank(400, 4), torch.arange(5)
    query = F.normalize(torch.randn(5, 4), dim=1).requires_grad_()
    negatives = bank.negatives(index, m)
    drawn = negatives.sources[0].index
    assert drawn is not None
    scores = torch.einsum("nd,nmd->nm", query, torch.cat([bank.read(index)[:, None], bank.vectors[drawn]], 1)) / 0.07
    expected = F.cross_entropy(scores, torch.zeros(5, dtype=torch.long))
    actual = info_nce(query, bank.read(index)[:, None], negatives, temperature=0.07)
    assert torch.allclose(actual, expected, rtol=1e-5)
    ours, theirs = (torch.autograd.grad(value, query)[0] for value in (actual, expected))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_shared_draw_meets_every_query_but_its_own_image() -> None:
    bank = MemoryBank(4, 3)
    (source,) = bank.negatives(torch.arange(4), 50, shared=True).sources
    assert source.keys.shape == (50, 3)
    assert source.key_ids is not None
    assert torch.equal(source.keys, bank.vectors[source.key_ids])
    assert source.query_ids is not None
    assert source.query_ids.tolist() == [0, 1, 2, 3]


def test_half_precision_storage_gives_nearly_the_same_loss() -> None:
    full = MemoryBank(100, 16)
    half = MemoryBank(100, 16, dtype=torch.float16)
    half.load_state_dict(full.state_dict())
    assert half.vectors.dtype == torch.float16
    query, index = F.normalize(torch.randn(8, 16), dim=1), torch.arange(8)
    drawn = full.draw(index, 3)
    losses = [
        info_nce(query, bank.read(index)[:, None], Negatives(bank.vectors, index=drawn), temperature=0.07)
        for bank in (full, half)
    ]
    assert torch.allclose(losses[0], losses[1], rtol=1e-2)
    assert losses[1].dtype == torch.float32
    half.update(index, query)
    assert torch.allclose(half.read(index).norm(dim=1), torch.ones(8), atol=1e-3)


def test_z_is_the_first_batchs_for_ever_or_a_running_mean() -> None:
    first, running = MemoryBank(10, 4), MemoryBank(10, 4)
    for value in (10.0, 20.0, 30.0):
        estimate = torch.tensor(value, dtype=torch.float64)
        kept = first.update_partition(estimate)
        mean = running.update_partition(estimate, decay=0.5)
    assert kept.item() == pytest.approx(10)
    assert mean.item() == pytest.approx(22.5)  # (10 + 20) / 2 = 15, (15 + 30) / 2


def test_nce_with_the_estimated_z_trains_towards_the_positive() -> None:
    torch.manual_seed(0)
    bank, index = MemoryBank(50, 8), torch.arange(6)
    raw = torch.randn(6, 8, requires_grad=True)
    positives, losses = bank.read(index)[:, None], []
    for _ in range(40):
        query, negatives = F.normalize(raw, dim=1), bank.negatives(index, 20)
        z = bank.update_partition(nce_partition(query, positives, negatives, population=50))
        loss = nce(query, positives, negatives, population=50, partition=z)
        (grad,) = torch.autograd.grad(loss, raw)
        raw.data -= 0.1 * grad
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert (F.normalize(raw, dim=1) * positives[:, 0]).sum(1).min() > 0.5


def test_it_is_saved_and_restored_whole() -> None:
    bank = MemoryBank(10, 4)
    bank.update(torch.tensor([2]), torch.randn(1, 4))
    bank.update_partition(torch.tensor(1e60, dtype=torch.float64))
    file = io.BytesIO()
    torch.save(bank.state_dict(), file)
    file.seek(0)
    other = MemoryBank(10, 4)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other.vectors, bank.vectors)
    assert other.partition.item() == pytest.approx(1e60)
    assert other.half().partition.item() == pytest.approx(1e60, rel=0.2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MemoryBank(1, 4), "instances and dim"),
        (lambda: MemoryBank(5, 4, momentum=1.0), "momentum: .*1.0"),
        (lambda: MemoryBank(5, 4).read(torch.tensor([5])), "index: expected 0 to 4, got 5 to 5"),
        (lambda: MemoryBank(5, 4).draw(torch.tensor([-1]), 3), "index: expected 0 to 4"),
        (lambda: MemoryBank(5, 4).draw(torch.tensor([1]), 0), "m: expected at least 1"),
        (lambda: MemoryBank(5, 4).read(torch.tensor([1.0])), "index: expected int64"),
        (lambda: MemoryBank(5, 4).update(torch.tensor([1]), torch.randn(1, 3)), r"features: expected \(1, 4\)"),
    ],
)
def test_bad_arguments_are_named(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


INSTANCES = 12
INDEX = torch.tensor([3, 0, 11, 7, 3])


def made(**options: Any) -> BankMemory:
    given: dict[str, Any] = {"m": 50, "generator": torch.Generator().manual_seed(2)}
    memory = as_memory(4, **given | options)
    assert isinstance(memory, BankMemory)
    memory.start(INSTANCES)
    return memory


def drawn(memory: BankMemory, index: Tensor, step: int) -> Tensor:
    (source,) = memory.negatives(index + 500, index, step=step).sources
    assert source.keys is memory.bank.vectors  # and no copy
    assert source.key_ids is None
    assert source.index is not None
    return source.index


def test_as_a_memory_it_has_a_vector_for_each_image_and_leaves_the_batch_out() -> None:
    memory = made()
    assert memory.bank.vectors.shape == (INSTANCES, 4)
    assert (memory.within_batch, memory.size) == (0.0, None)


def test_no_image_draws_itself_and_all_others_are_drawn_alike() -> None:
    memory = made(m=3000)
    found = drawn(memory, torch.arange(INSTANCES), 4)
    assert found.shape == (INSTANCES, 3000)
    for own, row in enumerate(found):
        shares = torch.bincount(row, minlength=INSTANCES) / 3000
        assert shares[own] == 0
        others = shares[[i for i in range(INSTANCES) if i != own]]
        assert (others - 1 / 11).abs().max() < 6 * (1 / 11 * 10 / 11 / 3000) ** 0.5


def test_draws_depend_on_the_step_and_the_image_alone() -> None:
    memory = made()
    whole = drawn(memory, INDEX, 9)
    torch.rand(3)  # not on what was drawn before
    for parts in ([2, 3], [1, 1, 3], [5], [4, 1]):
        assert torch.equal(torch.cat([drawn(memory, part, 9) for part in INDEX.split(parts)]), whole)
    assert torch.equal(drawn(made(), INDEX.flip(0), 9), whole.flip(0))
    assert not torch.equal(drawn(memory, INDEX, 10), whole)
    assert not torch.equal(whole[0], whole[1])


def test_positives_are_kept_or_come_from_the_step() -> None:
    assert made(stored=False).positives(INDEX) is None
    memory = made()
    found = memory.positives(INDEX)
    assert found is not None
    assert torch.equal(found, memory.bank.vectors[INDEX][:, None])


def test_it_takes_in_the_mean_of_the_keys() -> None:
    memory, index = made(momentum=0.25), torch.tensor([2, 5])
    before, keys = memory.bank.vectors.clone(), [F.normalize(torch.randn(2, 4), dim=1) for _ in range(3)]
    memory.update(keys, index + 500, index)
    for row, i in enumerate(index.tolist()):
        mixed = 0.25 * before[i] + 0.75 * torch.stack(keys)[:, row].mean(0)
        torch.testing.assert_close(memory.bank.vectors[i], mixed / mixed.norm())
    others = [i for i in range(INSTANCES) if i not in (2, 5)]
    assert torch.equal(memory.bank.vectors[others], before[others])


def test_a_saved_and_loaded_memory_goes_on_alike() -> None:
    def step(memory: BankMemory, number: int) -> list[Any]:
        generator = torch.Generator().manual_seed(number)
        draws = drawn(memory, INDEX[:4], number)
        z = memory.partition(lambda population: torch.tensor(7.0 + number, dtype=torch.float64) * population)
        memory.update([torch.randn(4, 4, generator=generator)], INDEX[:4], INDEX[:4])
        return [draws, z["partition"], memory.bank.vectors.clone()]

    for decay in (None, 0.9):
        first = made(decay=decay)
        step(first, 0)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second = made(decay=decay, generator=torch.Generator().manual_seed(99))
        second.load_state_dict(torch.load(file, weights_only=True))
        for number in (1, 2):
            assert all(torch.equal(a, b) for a, b in zip(step(first, number), step(second, number), strict=True))


def test_z_is_kept_in_training_alone() -> None:
    memory = made()
    estimates = iter([2.0, 3.0, 4.0, 5.0])

    def estimate(population: int) -> Tensor:
        assert population == INSTANCES
        return torch.tensor(next(estimates), dtype=torch.float64)

    memory.eval()
    assert memory.partition(estimate) == {"population": INSTANCES, "partition": 2.0}
    assert not memory.bank.has_partition()
    memory.train()
    assert memory.partition(estimate)["partition"].item() == pytest.approx(3.0)
    memory.eval()
    assert memory.partition(estimate)["partition"].item() == pytest.approx(3.0)
    memory.train()
    assert memory.partition(estimate)["partition"].item() == pytest.approx(3.0)
    assert next(estimates) == 4.0  # none was asked for again


def test_z_follows_with_decay_and_in_evaluation_stays() -> None:
    memory = made(decay=0.5)
    for value in (10.0, 20.0, 30.0):
        found = memory.partition(lambda population, value=value: torch.tensor(value, dtype=torch.float64))  # type: ignore[misc]
    assert found["partition"].item() == pytest.approx(22.5)
    found = memory.eval().partition(lambda population: torch.tensor(1e9, dtype=torch.float64))
    assert found["partition"].item() == pytest.approx(22.5)


HAVE = torch.tensor([0, 3, 4, 7, 11])


def test_images_without_the_view_are_never_drawn_and_not_of_the_population() -> None:
    memory = as_memory(4, m=3000)
    assert isinstance(memory, BankMemory)
    memory.start(INSTANCES, present=torch.isin(torch.arange(INSTANCES), HAVE))
    for own, row in zip(HAVE.tolist(), drawn(memory, HAVE, 4), strict=True):
        shares = torch.bincount(row, minlength=INSTANCES) / 3000
        others = [i for i in HAVE.tolist() if i != own]
        assert shares[others].sum() == pytest.approx(1)
        assert (shares[others] - 1 / 4).abs().max() < 6 * (1 / 4 * 3 / 4 / 3000) ** 0.5
    assert memory.partition(lambda population: torch.tensor(2.0))["population"] == 5
    other = made(m=3000)
    other.load_state_dict(memory.state_dict())
    assert torch.equal(drawn(other, HAVE, 4), drawn(memory, HAVE, 4))
    assert other.partition(lambda population: torch.tensor(2.0))["population"] == 5
    with pytest.raises(ValueError, match="memory: a bank needs two or more images that have its view, got 1"):
        memory.start(INSTANCES, present=torch.arange(INSTANCES) == 3)


def test_runs_with_other_seeds_meet_other_negatives() -> None:
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(drawn(made(generator=None), INDEX, 9))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_each_term_has_a_z_of_its_own_that_decays_by_its_own_estimates() -> None:
    memory = BankMemory(4, m=5, decay=0.5)
    memory.start(INSTANCES, terms=("rgb to depth", "ab to depth"))
    for values in ((10.0, 100.0), (20.0, 300.0)):
        found = [
            memory.partition(lambda population, value=value: torch.tensor(value, dtype=torch.float64), term)  # type: ignore[misc]
            for term, value in zip(("rgb to depth", "ab to depth"), values, strict=True)
        ]
    assert [each["partition"].item() for each in found] == pytest.approx([15, 200])


def test_no_negative_is_refused() -> None:
    with pytest.raises(ValueError, match="m: expected at least 1 negative, got 0"):
        as_memory(4, m=0)
