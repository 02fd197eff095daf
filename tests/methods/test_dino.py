from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from manyview.encoders import prototypes
from manyview.memories import Centre
from manyview.methods import dino
from manyview.methods.method import VIEW
from tests.losses.oracle import mean, total
from tests.methods.small import doubled, images, outputs_of, same_gradient


def shares(scores: list[Tensor]) -> list[Tensor]:
    whole = total([each.exp() for each in scores])
    return [each.exp() / whole for each in scores]


def test_the_student_predicts_the_centred_and_sharpened_teacher_of_every_other_large_crop() -> None:
    method = doubled(dino, small=1, teacher_temperature=0.05, temperature=0.2)
    assert (method.views, method.small) == ({VIEW: 3}, 1)
    centre = method.memories["centre"]
    assert isinstance(centre, Centre)
    centre.follow(torch.arange(7.0))
    batch = outputs_of(method, images(3))
    raw = {slot: each.detach().requires_grad_() for slot, each in batch.outputs.items()}
    by = {(slot.branch, slot.copy): each for slot, each in raw.items() if slot.name == "scores"}
    assert sorted(by) == [("key", 0), ("key", 1), ("query", 0), ("query", 1), ("query", 2)]
    pairs = []
    for large in range(2):
        for copy in (copy for copy in range(3) if copy != large):
            for i in range(6):
                teacher = shares([(g - c) / 0.05 for g, c in zip(by["key", large][i], centre.vector, strict=True)])
                student = shares([g / 0.2 for g in by["query", copy][i]])
                pairs.append(-total([t.detach() * s.log() for t, s in zip(teacher, student, strict=True)]))
    found = method.objective(replace(batch, outputs=raw)).loss
    same_gradient(found, mean(pairs), [each for (branch, _), each in by.items() if branch == "query"])
    keys = [each for (branch, _), each in by.items() if branch == "key"]
    assert all(each is None for each in torch.autograd.grad(found, keys, allow_unused=True))


def test_the_teacher_has_prototypes_of_its_own_which_follow_the_students() -> None:
    method = doubled(dino, momentum=lambda step, total: 0.5)
    (student,) = method.towers.prototypes()
    assert method.towers.key is not None
    teacher = method.towers.key["shared"].prototypes
    before = student.weight.detach().clone()
    with torch.no_grad():
        student.weight.add_(1.0)
    method.update(outputs_of(method, images(4)), 0, 2)
    torch.testing.assert_close(teacher.weight, before + 0.5)  # type: ignore[union-attr]


def test_the_centre_is_in_the_state_dict_and_moves_with_each_step() -> None:
    method = doubled(dino)
    assert float(method.state_dict()["memories.centre.vector"].abs().max()) == 0.0
    method.update(outputs_of(method, images(4)), 0, 2)
    assert float(method.state_dict()["memories.centre.vector"].abs().max()) > 0.0


def test_a_learnt_scale_is_one_number_a_prototype_more() -> None:
    method = doubled(dino, prototypes=partial(prototypes.weight_norm, count=7, learnt_scale=True))
    (learnt,) = method.towers.prototypes()
    assert learnt.scale is not None
    assert learnt.scale.shape == (7,)
    method.objective(outputs_of(method, images(4))).loss.backward()
    assert learnt.scale.grad is not None
