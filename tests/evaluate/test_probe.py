"""A probe trains a classifier and nothing else, the same again with the same seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from manyview.core.sample import Views
from manyview.evaluate.backbone import ViewBackbone
from manyview.evaluate.linear import linear
from tests.evaluate.pictures import encoder, scenes, task


def test_the_model_is_to_the_bit_what_it_was() -> None:
    judged = task()
    network = judged.model.encoder.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    list(linear(judged, epochs=2))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training
    assert all(each.grad is None and each.requires_grad for each in network.parameters())


def test_an_encoder_that_changes_while_it_is_probed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ViewBackbone.forward

    def restless(self: ViewBackbone, views: Views) -> Tensor:
        seen = plain(self.train(), views)
        self.eval()
        return seen

    monkeypatch.setattr(ViewBackbone, "forward", restless)
    with pytest.raises(RuntimeError, match="changed, though only the classifier was to be trained"):
        list(linear(task(), epochs=1))


def test_it_sees_the_encoder_in_eval_mode_and_builds_no_graph() -> None:
    judged, seen = task(), []
    judged.model.encoder.network.register_forward_hook(
        lambda network, _, output: seen.append((network.training, output.requires_grad))
    )
    list(linear(judged, epochs=1))
    assert seen
    assert set(seen) == {(False, False)}


@pytest.mark.parametrize("augment", [True, False])
def test_the_seed_decides(augment: bool) -> None:
    settings = {"epochs": 4, "augment": augment, "batch_size": 16, "lr": 1.0}
    runs = [list(linear(task(seed=seed), **settings)) for seed in (0, 0, 1)]  # type: ignore[arg-type]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_crops_make_another_classifier_than_whole_pictures() -> None:
    crops, whole = (list(linear(task(), epochs=4, lr=1.0, augment=augment)) for augment in (True, False))
    assert crops != whole


def test_a_norm_in_front_makes_the_scale_of_the_features_immaterial() -> None:
    def scores(scale: float, norm: bool) -> list[tuple[str, float]]:
        network = encoder()
        stage = network.network.get_submodule("stage2")
        stage.register_forward_hook(lambda module, given, output: output * scale)
        return list(linear(task(network), epochs=5, lr=1.0, augment=False, norm=norm))

    assert scores(2.0**12, True) == scores(2.0**14, True)
    assert scores(2.0**12, False) != scores(2.0**14, False)


def test_a_last_batch_of_one_does_not_trouble_the_norm() -> None:
    judged = replace(task(), train=scenes(33, "train"))
    assert dict(linear(judged, epochs=1, batch_size=16, norm=True))
    assert dict(linear(judged, epochs=1, batch_size=16, norm=True, augment=False))
