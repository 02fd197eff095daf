"""WHICH COMBINATION: one short declaration a method. `METHODS` names them; a method's signature is its schema.

A parameter whose default is a partial of a function is a part: `--loss dcl` on the command line, or
`jcl(encoder, loss=partial(losses.dcl, temperature=0.1))` in Python, puts another in its place.
"""

from collections.abc import Callable

from manyview.methods.align_uniform import align_uniform, align_uniform_moco
from manyview.methods.assignment import Assignment
from manyview.methods.batch_outputs import BatchOutputs
from manyview.methods.cacr import cacr, cacr_moco, uaur
from manyview.methods.cacr_moco_v3 import cacr_moco_v3, cacr_moco_v3_code
from manyview.methods.cmc import cmc, cmc_moco, npid
from manyview.methods.cmc_patch import cmc_patch, deep_infomax
from manyview.methods.decorrelation import Decorrelation, barlow_twins, vicreg
from manyview.methods.dino import dino
from manyview.methods.jcl import jcl, multikey
from manyview.methods.method import Method
from manyview.methods.moco import moco_v1, moco_v2
from manyview.methods.moco_v3 import moco_v3
from manyview.methods.pirl import pirl
from manyview.methods.prediction import prediction, split_brain
from manyview.methods.siamese import byol, simsiam
from manyview.methods.simclr import dcl, dclw, hard_negative, simclr
from manyview.methods.supcon import supcon
from manyview.methods.swav import swav
from manyview.methods.term import Term
from manyview.methods.terms import Alignment, Contrast, Prediction

METHODS: dict[str, Callable[..., Method]] = {
    "simclr": simclr,
    "dcl": dcl,
    "dclw": dclw,
    "moco_v1": moco_v1,
    "moco_v2": moco_v2,
    "moco_v3": moco_v3,
    "multikey": multikey,
    "jcl": jcl,
    "cacr": cacr,
    "cacr_moco": cacr_moco,
    "cacr_moco_v3": cacr_moco_v3,
    "cacr_moco_v3_code": cacr_moco_v3_code,
    "uaur": uaur,
    "cmc": cmc,
    "cmc_moco": cmc_moco,
    "cmc_patch": cmc_patch,
    "deep_infomax": deep_infomax,
    "npid": npid,
    "pirl": pirl,
    "prediction": prediction,
    "split_brain": split_brain,
    "align_uniform": align_uniform,
    "align_uniform_moco": align_uniform_moco,
    "hard_negative": hard_negative,
    "simsiam": simsiam,
    "byol": byol,
    "barlow_twins": barlow_twins,
    "vicreg": vicreg,
    "swav": swav,
    "dino": dino,
    "supcon": supcon,
}

__all__ = [
    "METHODS",
    "Alignment",
    "Assignment",
    "BatchOutputs",
    "Contrast",
    "Decorrelation",
    "Method",
    "Prediction",
    "Term",
    "align_uniform",
    "align_uniform_moco",
    "barlow_twins",
    "byol",
    "cacr",
    "cacr_moco",
    "cacr_moco_v3",
    "cacr_moco_v3_code",
    "cmc",
    "cmc_moco",
    "cmc_patch",
    "dcl",
    "dclw",
    "deep_infomax",
    "dino",
    "hard_negative",
    "jcl",
    "moco_v1",
    "moco_v2",
    "moco_v3",
    "multikey",
    "npid",
    "pirl",
    "prediction",
    "simclr",
    "simsiam",
    "split_brain",
    "supcon",
    "swav",
    "uaur",
    "vicreg",
]
