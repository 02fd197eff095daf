"""Which names are those of label maps."""

from __future__ import annotations

from manyview.core.label_maps import is_label_map

MAPS = """
    labels Labels13 labels_fine mask masks road_mask Annotations semantic instance instances Segmentation_labels seg
    semseg sem_seg SEM-SEG labelmap label_map class_map classmap parsing human_parsing rgb_seg panoptic gt gtFine
    gt_coarse ground_truth groundtruth SegmentationClass labelIds
"""
OTHERS = """
    rgb image depth depth_gt thermal lidar labelled-lidar unmasked masked_rgb segway instant classes map L ab normals
    flow nir_2 13
"""


def test_label_maps_have_a_word_for_them_in_their_name() -> None:
    assert [name for name in MAPS.split() if not is_label_map(name)] == []


def test_what_a_sensor_saw_is_none() -> None:
    assert [name for name in OTHERS.split() if is_label_map(name)] == []
