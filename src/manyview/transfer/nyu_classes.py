"""NYU-Depth v2's 894 labels as the 40 and the 13 classes that are predicted of it."""

from __future__ import annotations

LABELS = 894
"""The labels of nyu_depth_v2_labeled.mat are numbered from 1; 0 is unlabelled."""

NAMED = (
    21, 11, 3, 157, 5, 83, 19, 28, 59, 88, 64, 7, 80, 36, 42, 89, 169, 119, 122, 143, 141, 4, 85, 17, 172, 15,
    135, 123, 26, 45, 331, 158, 124, 24, 144, 136, 55,
)  # fmt: skip
"""The labels that are the first 37 classes, wall to bag, one each."""

STRUCTURES = {
    8, 25, 33, 38, 51, 53, 57, 58, 62, 65, 79, 94, 104, 112, 134, 153, 215, 216, 223, 225, 238, 241, 242, 256,
    295, 301, 339, 342, 354, 363, 372, 380, 392, 408, 412, 453, 456, 463, 477, 497, 541, 550, 553, 567, 573,
    582, 591, 609, 612, 615, 642, 645, 657, 658, 659, 663, 667, 668, 686, 700, 702, 777, 778, 782, 850, 861,
    868, 874,
}  # fmt: skip
FURNITURE = {
    12, 43, 48, 50, 87, 106, 111, 161, 163, 174, 183, 204, 214, 219, 221, 224, 236, 262, 278, 291, 298, 313,
    343, 344, 356, 359, 373, 393, 401, 414, 418, 419, 430, 443, 444, 447, 448, 457, 458, 460, 462, 475, 479,
    485, 486, 493, 494, 498, 499, 509, 510, 515, 521, 524, 540, 549, 551, 554, 556, 558, 576, 580, 608, 625,
    703, 734, 770, 772, 797, 800, 803, 804, 813, 814, 815, 820, 829, 835, 858, 863, 882, 892,
}  # fmt: skip
TO_13 = (
    12, 5, 6, 1, 4, 9, 10, 12, 13, 6, 8, 6, 13, 10, 6, 13, 6, 7, 7, 5, 7, 3, 2, 6, 11, 7, 7, 7, 7, 7, 7, 6, 7,
    7, 7, 7, 7, 7, 6, 7,
)  # fmt: skip
"""The class among 13 of each of the 40."""


def class_of_40(label: int) -> int:
    """The class, from 1 to 40, of a label from 1 to 894.

    It is classMapping40.mat of Gupta et al. (CVPR 2013): 37 labels are classes, the others are other structures (38),
    other furniture (39) or other props (40).
    """
    if label in NAMED:
        return NAMED.index(label) + 1
    return 38 if label in STRUCTURES else 39 if label in FURNITURE else 40


def class_of_13(label: int) -> int:
    """The class, from 1 to 13, of a label from 1 to 894.

    It is class13Mapping.mat of SceneNet (Handa et al., CVPR 2016), which joins the 40: those of Couprie et al. (ICLR
    2013).
    """
    return TO_13[class_of_40(label) - 1]
