"""Opens images with objects from what a person would type: `scenes`, a folder of COCO or VOC, or a JSON file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.transfer.coco import is_coco, open_coco
from manyview.transfer.object_scenes import open_object_scenes
from manyview.transfer.objects import Kind, ObjectImages
from manyview.transfer.run_lengths import evaluator
from manyview.transfer.voc import is_voc, open_voc

SCENES = "scenes"


def open_objects(data: str | os.PathLike[str], kind: Kind, **scenes: Any) -> tuple[ObjectImages, ObjectImages]:
    """Training images and those to score on, with objects of a kind.

    scenes  train, test, size and seed of the generated scenes
    """
    evaluator()
    text = os.fspath(data)
    if text == SCENES:
        return open_object_scenes(kind, **scenes)
    path = Path(text)
    if not path.exists():
        raise UserError(
            "data", f"there is no {printable(text)}; give {SCENES}, a folder of COCO or VOC, or a JSON file"
        )
    if scenes:
        raise UserError("data", f"{next(iter(scenes))} is an option of {SCENES} alone")
    if is_voc(path):
        return open_voc(path, kind)
    if is_coco(path):
        return open_coco(path, kind)
    looked = "annotations/*.json as COCO has them, or Annotations/*.xml beside JPEGImages as VOC has them"
    raise UserError("data", f"{printable(text)} has neither {looked}")
