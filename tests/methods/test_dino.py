from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from manyview.encoders import prototypes
from manyview.memories import Centre
from manyview.methods import dino
from manyview.methods.method import VIEW
from tests.losses.oracle import mean
from tests.methods.small import doubled, images, outputs_of


def test_the_student_predicts_the_centred_and_sharpened_teacher_of_every_other_large_crop() -> None:
    method = doubled(dino, small=1, teacher_temperature=0.05, temperature=0.2)
    assert (method.views, method.small) == ({VIEW: 3}, 1)
    centre = method.memories["centre"]
    assert isinstance(centre, Centre)
    centre.follow(torch.arange(7.0))
    batch = outputs_of(method, images(3))
    by = {(slot.branch, slot.copy): each for slot, each in batch.outputs.items() if slot.name == "scores"}
    assert sorted(by) == [("key", 0), ("key", 1), ("query", 0), ("query", 1), ("query", 2)]
    pairs = []
    for large in range(2):
        codes = F.softmax((by["key", large] - centre.vector) / 0.05, 1)
        pairs += [
            -(codes * F.log_softmax(by["query", copy] / 0.2, 1)).sum(1).mean() for copy in range(3) if copy != large
        ]
    torch.testing.assert_close(method.objective(batch).loss, mean(pairs))


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
