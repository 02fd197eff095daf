"""Label maps are known by their names: they are what a person says of a picture, not what a sensor saw."""

import re
from itertools import pairwise

WORD = re.compile(
    "(label|label(map|id)|mask|trimap|annotation|semantic|instance|panoptic|parsing|(sem)?seg|"
    "segmentation(class|object)?|classmap|stuffthingmap)s?"
)
FIRST = re.compile("gt(fine|coarse)?|groundtruth")  # of a name alone: depth_gt is a depth


def is_label_map(name: str) -> bool:
    """Whether the name of a modality, a folder or a column has a word for label maps in it, in any case of letters.

    Words end at whatever is no letter, and two may be one: `Labels13`, `sem_seg`, `class-map`, `road_mask`, `gt`.
    """
    words = re.findall("[a-z]+", name.lower())
    joined = [one + other for one, other in pairwise(words)]
    return any(map(WORD.fullmatch, words + joined)) or any(map(FIRST.fullmatch, words[:1] + joined[:1]))
