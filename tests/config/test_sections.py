"""Sections: which part a section names, and what can be set of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from manyview.config.component import component, components
from manyview.config.keys import Flat
from manyview.config.resolve import resolve
from manyview.config.sections import PARTS, SECTIONS, flat
from manyview.losses import LOSSES
from manyview.methods import METHODS
from tests.config.small import DATA, flags


@pytest.mark.parametrize("section", [*SECTIONS, "loss", "head", "memory", "momentum"])
def test_a_section_alone_chooses_its_part(section: str) -> None:
    name = {"augmentation": "moco-v2", "method": "jcl"}.get(section) or list({**SECTIONS, **PARTS}[section].table)[-1]
    method = "" if section == "method" else "--method jcl"
    long, short = (flags(f"{method} --{key} {name}") for key in (f"{section}.name", section))
    assert long == short
    assert short.flat()[f"{section}.name"] == name


def test_an_augmentation_is_named_like_any_other_part() -> None:
    config = flags("--method jcl --augmentation moco-v3 --augmentation.smallest 0.08")
    assert config.augmentation == {"name": "moco-v3", "smallest": 0.08, "size": None}
    with pytest.raises(ValueError, match="augmentation: there is none named 'mocov9'"):
        flags("--augmentation mocov9")


def test_sections_of_a_recipe_are_tables_or_names() -> None:
    found = flat({"data": "photos", "loss": {"name": "dcl", "detach-weights": True}, "epochs": 3})
    assert found == {"data.name": "photos", "loss.name": "dcl", "loss.detach_weights": True, "epochs": 3}


@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in PARTS["loss"].refused])
@pytest.mark.parametrize("method", ["simclr", "moco_v2", "cacr_moco"])
def test_every_whole_loss_fits_into_every_kind_of_method_and_its_keys_are_its_arguments(method: str, loss: str) -> None:
    config = flags(f"--method {method} --loss {loss}")
    assert config.flat()["loss.name"] == loss
    function = component(config, "loss")
    assert function.func is LOSSES[loss]
    given = {"present", "reduction", "gather", "population", "partition"}  # by the run
    assert not given & set(config.parts["loss"] or {})


def test_parts_that_no_table_knows_are_read_off_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoder(dim: int, *, width: int = 8) -> int:
        return dim * width

    def toy(encoder: Any, *, copies: int = 2, decoder: Any = partial(decoder, width=16)) -> int:
        return int(decoder(copies))

    monkeypatch.setitem(METHODS, "toy", toy)
    config = flags("--method toy --decoder.width 4")
    assert config.parts == {"decoder": {"name": "decoder", "width": 4}}
    assert component(config, "method")(None, **components(config)) == 8
    with pytest.raises(ValueError, match=r"^loss.temperature: the method toy has no loss; its parts are decoder"):
        flags("--method toy --loss.temperature 1")


@pytest.mark.parametrize("recipe", [{"method.name": ["jcl"]}, {"loss.name": {"a": 1}}, {"augmentation.name": 3}])
def test_a_part_that_is_no_name_is_refused(recipe: Flat) -> None:
    with pytest.raises(ValueError, match="expected the name of one, got"):
        resolve({**DATA, **recipe}, {})


def test_data_that_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^data: expected a folder or a name, got \['a'\]"):
        resolve({"data.name": ["a"]}, {})


def test_a_method_that_there_is_not_comes_with_all_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"^method: there is none named 'foo'; .*there are .*simclr.*dcl"):
        flags("--method foo")
