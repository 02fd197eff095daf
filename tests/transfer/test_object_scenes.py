import torch

from manyview.data.scenes.dataset import Scenes
from manyview.transfer.object_scenes import open_object_scenes


def test_scenes_have_the_boxes_masks_and_keypoints_that_their_descriptions_say() -> None:
    train, test = open_object_scenes("keypoints", count=3, test=2, size=48)
    scene = Scenes(3, size=48).describe(1)
    assert (len(train), len(test), len(train.keypoints)) == (3, 2, 6)
    found = train.target(1)
    assert torch.equal(found["boxes"], scene.boxes)
    assert [train.classes[label - 1] for label in found["labels"].tolist()] == list(scene.shapes)
    seen = found["keypoints"][..., 2] > 0
    assert torch.equal(seen, scene.visible)
    assert torch.allclose(found["keypoints"][..., :2][seen], scene.keypoints[seen])


def test_masks_of_scenes_fill_their_boxes() -> None:
    train, _ = open_object_scenes("masks", count=2, test=1, size=48)
    found = train.target(0)
    for mask, box in zip(found["masks"], found["boxes"].int().tolist(), strict=True):
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        assert [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1] == box
