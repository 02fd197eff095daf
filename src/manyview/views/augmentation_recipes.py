"""The augmentation recipes of the papers by name: `AUGMENTATIONS`, functions of (size, copies) and their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal, get_args

from manyview.core.bounds import MOST, AtLeast, AtMost, Between
from manyview.core.errors import UserError
from manyview.views.augmentation import MOST_OPERATIONS, Augmentation
from manyview.views.pipeline import ViewPipeline
from manyview.views.view import CIFAR, PICTURE, Modality

SIZES = (32, 128)  # pixels of a view, at least and at most, where nobody says
UNBLURRED_SIZE = 64  # pixels up to which pictures are not blurred
Chance = Annotated[float, Between(0, 1, "a chance")]
Distance = Annotated[int, AtLeast(0), AtMost(MOST)]
Operations = Annotated[int, Between(0, MOST_OPERATIONS)]
Magnitude = Annotated[float, Between(0, 10)]
WIDE = 23  # side of a blur's kernel that cuts nothing off: five times the largest sigma, 2, and more
Statistics = Literal["imagenet", "cifar10", "cifar100", "stl10"]
_CIFAR_PICTURE = Modality(*CIFAR, colour=True)
_PICTURES: dict[Statistics, Modality] = {  # all but ImageNet's as CACR's Algorithm 1 prints them
    "imagenet": PICTURE,
    "cifar10": Modality((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), colour=True),  # `simclr-cifar` has others
    "cifar100": Modality((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), colour=True),
    "stl10": Modality((0.4409, 0.4279, 0.3868), (0.2683, 0.2610, 0.2687), colour=True),
}


def _picture(statistics: Statistics) -> Modality:
    if statistics not in _PICTURES:
        raise UserError("statistics", f"there are none named {statistics!r}; give {', '.join(get_args(Statistics))}")
    return _PICTURES[statistics]


def simclr(
    size: int = 224, copies: int = 2, *, strength: float = 1.0, statistics: Statistics = "imagenet"
) -> ViewPipeline:
    """SimCLR (Chen et al., ICML 2020), as google-research/simclr has it; also DCL's on ImageNet (appendix).

    Crop of 8 to 100%, flip, jitter (.8, .8, .8, .2) x strength with chance .8, greyscale .2, blur .5 with a kernel of
    10% and sigma .1 to 2. Pictures are normalised with the mean and std that `statistics` names.
    """
    jitter = (0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength)
    one = Augmentation(size, jitter=jitter, jitter_p=0.8, grey=0.2, blur=0.5)
    return ViewPipeline([one] * copies, picture=_picture(statistics))


def simclr_cifar(
    size: int = 32, copies: int = 2, *, strength: float = 0.5, statistics: Statistics | None = None
) -> ViewPipeline:
    """SimCLR's for CIFAR-10 (its section B.9): strength .5, no blur. Also that of MoCo's CIFAR-10 notebook.

    Pictures are normalised with the mean and std that `statistics` names, "cifar10" in the notebook; unless given, with
    those of all pixels of CIFAR-10.
    """
    jitter = (0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength)
    one = Augmentation(size, jitter=jitter, jitter_p=0.8, grey=0.2)
    return ViewPipeline([one] * copies, picture=_CIFAR_PICTURE if statistics is None else _picture(statistics))


def moco_v1(size: int = 224, copies: int = 2) -> ViewPipeline:
    """MoCo (He et al., CVPR 2020), as facebookresearch/moco has it: greyscale comes before the jitter."""
    one = Augmentation(size, (0.2, 1.0), grey=0.2, grey_first=True, jitter=(0.4, 0.4, 0.4, 0.4))
    return ViewPipeline([one] * copies)


def moco_v2(size: int = 224, copies: int = 2) -> ViewPipeline:
    """MoCo v2 (Chen et al., 2020), also JCL's and CACR's on ImageNet.

    The code blurs with Pillow's approximation of the Gaussian, this with the Gaussian itself: sigma .1 to 2 pixels, and
    nothing of it is cut off, whatever the size (SimCLR's is, at a tenth of it).
    """
    one = Augmentation(size, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2, blur=0.5, kernel=WIDE)
    return ViewPipeline([one] * copies)


def moco_v3(size: int = 224, copies: int = 2, *, smallest: float = 0.2) -> ViewPipeline:
    """MoCo v3 (Chen et al., ICCV 2021): two unlike augmentations, which further copies repeat in turn.

    The first is always blurred, the second seldom but at times solarised. `smallest` is .2 for ResNets, .08 for ViTs.
    """
    one = Augmentation(size, (smallest, 1.0), jitter=(0.4, 0.4, 0.2, 0.1), jitter_p=0.8, grey=0.2, kernel=WIDE)
    first, second = replace(one, blur=1.0), replace(one, blur=0.1, solarise=0.2)
    return ViewPipeline([(first, second)[copy % 2] for copy in range(copies)])


def cacr_cifar(size: int = 32, copies: int = 2, *, statistics: Statistics = "cifar10") -> ViewPipeline:
    """CACR on CIFAR-10 and CIFAR-100 (Algorithm 1 of appendix C.1): the jitter always happens, no blur.

    Algorithm 1 normalises each data set with its own `statistics`.
    """
    one = Augmentation(size, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.4), grey=0.2)
    return ViewPipeline([one] * copies, picture=_picture(statistics))


def cacr_stl(size: int = 64, copies: int = 2, *, statistics: Statistics = "stl10") -> ViewPipeline:
    """CACR on STL-10 (Algorithm 1 of appendix C.1): 64 px, crops from 8%."""
    one = Augmentation(size, (0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.4), grey=0.2)
    return ViewPipeline([one] * copies, picture=_picture(statistics))


def cmc(
    size: int = 224,
    copies: int = 1,
    *,
    smallest: Annotated[float | None, Between(0, 1, "a share")] = None,
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
) -> ViewPipeline:
    """CMC (Tian et al., ECCV 2020): crop and flip, no colour.

    `smallest` is .08 for ResNets, .2 for AlexNet in the authors' code; unless given .08, and .4 below 64 px, where such
    a crop has no ten pixels a side (of .08, .2 and .4 it was best on scenes that were not tested on). Their PyContrast
    always jitters CMC's pictures: `jitter` (.4, .4, .4, .1).
    """
    share = smallest if smallest is not None else 0.08 if size >= 64 else 0.4
    return ViewPipeline([Augmentation(size, (share, 1.0), jitter=jitter)] * copies)


def cmc_ra(
    size: int = 224, copies: int = 1, *, smallest: float = 0.2, operations: Operations = 2, magnitude: Magnitude = 10.0
) -> ViewPipeline:
    """CMC + RandAugment (Tables 1 and 9), which the paper does not describe: as PyContrast has it for its CMC v2.

    Jitter (.4, .4, .4, .1) with chance .8, blur .5, then two operations that leave colours alone. `smallest` is .2 with
    a queue, .08 with a bank.
    """
    one = Augmentation(
        size, (smallest, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, blur=0.5, kernel=WIDE,
        operations=operations, magnitude=magnitude,
    )  # fmt: skip
    return ViewPipeline([one] * copies)


def patches(size: int = 64, copies: int = 2, *, distance: Distance = 64, flip: Chance = 0.0) -> ViewPipeline:
    """CMC's patches at a distance (section 4.4, Fig. 5): copy k of `size` pixels is cut at (x + k d, y + k d).

    (x, y) is drawn for each picture, so that all copies lie inside it; they are not resized. The paper has two patches
    of 64 px in pictures of about 2,000 (DIV2K), and d from 64, where they do not overlap. For one copy it is a random
    crop: CMC's of 64 px on STL-10, with flips, and of 128 px on NYU.
    """
    largest = distance * (copies - 1)
    return ViewPipeline([Augmentation(size, flip=flip, offset=(distance * copy, largest)) for copy in range(copies)])


def swav(size: int = 224, copies: int = 2) -> ViewPipeline:
    """SwAV's large crops (Caron et al., NeurIPS 2020), of 14 to 100%, with SimCLR's colours; --method.small adds small.

    Its six small ones are of 96 px and cover 5 to 14%.
    """
    one = Augmentation(size, (0.14, 1.0), jitter=(0.8, 0.8, 0.8, 0.2), jitter_p=0.8, grey=0.2, blur=0.5, kernel=WIDE)
    return ViewPipeline([one] * copies)


def custom(
    size: int = 224,
    copies: int = 2,
    *,
    scale: tuple[float, float] = (0.2, 1.0),
    flip: Chance = 0.5,
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1),
    jitter_p: Chance = 0.8,
    grey: Chance = 0.2,
    blur: Chance = 0.0,
    solarise: Chance = 0.0,
    operations: Operations = 0,
    magnitude: Magnitude = 10.0,
    statistics: Statistics = "imagenet",
) -> ViewPipeline:
    """One augmentation of your own: every number of an `Augmentation` is a setting.

    Pictures are normalised with the mean and std that `statistics` names.
    """
    one = Augmentation(
        size, scale, flip=flip, jitter=jitter, jitter_p=jitter_p, grey=grey, blur=blur, solarise=solarise,
        operations=operations, magnitude=magnitude,
    )  # fmt: skip
    return ViewPipeline([one] * copies, picture=_picture(statistics))


def probe_train(size: int = 224, copies: int = 1, *, smallest: float = 0.08) -> ViewPipeline:
    """What classifiers on frozen features are trained with (MoCo, JCL, CACR): crop of 8 to 100% and flip.

    `smallest` is .2 in CACR's code for CIFAR.
    """
    return ViewPipeline([Augmentation(size, (smallest, 1.0))] * copies)


def probe_test(size: int = 224, copies: int = 1, *, resize: int | None = None) -> ViewPipeline:
    """The middle of the picture, nothing drawn: short side to `resize`, then the middle `size` pixels.

    `resize` is size x 256 / 224 from 96 px upwards, as is usual for photos; smaller pictures are taken whole.
    """
    short = resize or (round(size * 256 / 224) if size >= 96 else size)
    return ViewPipeline([Augmentation(size, scale=None, resize=short, flip=0.0)] * copies)


AUGMENTATIONS: dict[str, Callable[..., ViewPipeline]] = {
    "simclr": simclr,
    "simclr-cifar": simclr_cifar,
    "moco-v1": moco_v1,
    "moco-v2": moco_v2,
    "moco-v3": moco_v3,
    "cacr-cifar": cacr_cifar,
    "cacr-stl": cacr_stl,
    "cmc": cmc,
    "cmc-ra": cmc_ra,
    "patches": patches,
    "swav": swav,
    "custom": custom,
    "probe-train": probe_train,
    "probe-test": probe_test,
}


def usual_size(side: int, largest: int = SIZES[1]) -> int:
    """The size of views where nobody says, of pictures whose shorter side usually is `side`: a multiple of 32."""
    return min(max(SIZES[0], 32 * round(side / 32)), largest)


def usual_augmentation(size: int, views: int = 1) -> str:
    """The augmentation recipe for so many views of a size, where nobody says.

    Views of one thing teach each other what they share, so that they are only cropped and flipped, as in CMC: grey
    pictures would have no colour for the others to tell.
    """
    if views > 1:
        return "cmc"
    return "custom" if size <= UNBLURRED_SIZE else "moco-v2"
