import pytest

from manyview.core.errors import UserError
from manyview.transfer.detection_recipes import RECIPES, chosen_recipe


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_source_and_milestones_within_its_steps(name: str) -> None:
    recipe = RECIPES[name]
    assert recipe.source
    assert 0 < recipe.warmup < recipe.milestones[0] < recipe.milestones[1] < recipe.steps
    assert list(recipe.sides) == sorted(recipe.sides)


def test_the_papers_schedules_are_the_published_ones() -> None:
    assert (RECIPES["coco-fpn-1x"].steps, RECIPES["coco-fpn-1x"].batch_size) == (90_000, 16)
    assert (RECIPES["voc-c4-24k"].steps, RECIPES["voc-c4-24k"].sides[0]) == (24_000, 480)
    assert all(RECIPES[name].sides[-1] == 800 for name in RECIPES if name != "small")


def test_other_steps_make_all_of_the_schedule_shorter_and_another_side_is_the_only_one() -> None:
    found = chosen_recipe("coco-fpn-1x", steps=9000, lr=0.5, batch_size=2, side=400)
    assert (found.milestones, found.warmup, found.lr, found.batch_size) == ((6000, 8000), 100, 0.5, 2)
    assert (found.sides, found.longest) == ((400,), 666)
    few = {"lr": None, "batch_size": None, "side": None}
    assert [chosen_recipe("voc-c4-24k", "boxes", steps=steps, **few).precise for steps in (3, 24_000)] == [3, 200]


def test_a_name_that_there_is_not_is_one_line() -> None:
    with pytest.raises(UserError, match="did you mean 'small'"):
        chosen_recipe("smal", steps=None, lr=None, batch_size=None, side=None)


def test_keypoints_have_as_many_proposals_as_in_detectron2() -> None:
    usual = {"steps": None, "lr": None, "batch_size": None, "side": None}
    assert chosen_recipe("coco-fpn-1x", "keypoints", **usual).proposals == 1500
    assert chosen_recipe("coco-fpn-1x", "masks", **usual).proposals == 1000
    assert chosen_recipe("small", "keypoints", **usual).proposals == RECIPES["small"].proposals
