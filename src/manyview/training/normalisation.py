"""The normalisation of modalities that are no pictures, which is measured once and kept in the run's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.core.label_maps import is_label_map
from manyview.data import Dataset
from manyview.data.statistics import NoData, Statistics, no_data_of, statistics
from manyview.methods.method import VIEW, Method
from manyview.methods.terms import Prediction
from manyview.views import PICTURE, Modality
from manyview.views.view import View, usual


def measured(config: Config, train: Dataset, met: Mapping[str, Tensor]) -> dict[str, Statistics]:
    """Returns the statistics of each modality that is no picture and no mask, from the settings or else measured.

    met  one tensor (C, H, W) of each modality
    """
    kinds = {name: usual(name, image, PICTURE) for name, image in met.items()}
    grey = {name for name, image in met.items() if name == VIEW and image.dtype == torch.uint8}  # pictures as well
    wanted = [name for name, kind in kinds.items() if not (kind.colour or kind.nearest or name in grey)]
    nodata = config.data.get("nodata")
    for name in nodata if isinstance(nodata, Mapping) else ():
        if name in kinds and kinds[name].colour:
            why = f"{name} is a picture, of which no value means that nothing was seen"
            raise UserError("data.nodata", f"{why}; leave it out, and name {', '.join(wanted) or 'none'} alone")
    given = known(config)
    anew = statistics(train, [name for name in wanted if name not in given], nodata)
    return {name: given.get(name) or anew[name] for name in wanted}


def as_settings(found: Mapping[str, Statistics], nodata: NoData) -> dict[str, Any]:
    """Writes statistics as settings. NaN is always missing data, and as a setting it would not equal itself."""
    by_name = {name: no_data_of(nodata, name) for name in nodata} if isinstance(nodata, Mapping) else None
    nodata = no_data_of(nodata, "") if by_name is None else {name: x for name, x in by_name.items() if x is not None}
    kept = {name: {"mean": list(each.mean), "std": list(each.std)} for name, each in found.items()}
    return {"statistics": kept, "nodata": nodata}


def check(config: Config, modalities: Sequence[str]) -> None:
    """Refuses settings for modalities that the data does not have."""
    nodata = config.data.get("nodata")
    for setting, named in (("statistics", known(config)), ("nodata", nodata if isinstance(nodata, Mapping) else {})):
        for name in named:
            if name not in modalities:
                raise UserError(f"data.{setting}", f"the data has no {name!r}; it has {', '.join(modalities)}")


def check_classes(channels: Mapping[str, int], method: Method) -> None:
    """Refuses to predict the classes of a view whose values are interpolated or normalised and so are no classes."""
    for view in (term.target.view for term in method.terms if isinstance(term, Prediction) and term.takes_classes):
        if not is_label_map(view) or channels[view] == 3:
            why = "in RGB" if channels[view] == 3 else "none by its name"
            wanted = "they are predicted of a label map in numbers, such as a folder `labels` or `seg`"
            raise UserError("distance", f"labels: {wanted}, and {view!r} is {why}; give l1, l2 or bins")


def known(config: Config) -> dict[str, Statistics]:
    """Reads the statistics in the settings, of a run that has begun or of the user."""
    found = {}
    for name, each in config.data.get("statistics", {}).items():
        try:
            mean, std = (tuple(float(number) for number in each[key]) for key in ("mean", "std"))
            Modality(mean, std)
        except (KeyError, TypeError, ValueError):
            wanted = "{mean: [...], std: [...]}, a number a channel, and std above 0"
            raise UserError("data.statistics", f"of {name!r}: expected {wanted}, got {each!r}") from None
        found[str(name)] = Statistics(mean, std)
    return found


def modalities(config: Config, views: Mapping[str, View]) -> dict[str, Modality]:
    """Returns the views' modalities that are no pictures, normalised by the statistics in the settings."""
    found = {}
    for name in dict.fromkeys(view.modality for view in views.values()):
        if (each := known(config).get(name)) is not None:
            kind = usual(name, torch.empty(len(each.mean), 1, 1), PICTURE)
            nodata = no_data_of(config.data.get("nodata"), name)
            found[name] = replace(kind, mean=each.mean, std=each.std, nodata=nodata)
    return found
