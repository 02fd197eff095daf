"""Opens the data of a run: what it trains on, what it is scored on, and the views that its method sees."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from manyview.config.config import Config
from manyview.core.errors import UserError, nearest
from manyview.data import Dataset
from manyview.data.dataset import few_samples, fingerprint, usual_shape
from manyview.data.decoded import some_samples
from manyview.data.factory import divided_for, has_classes
from manyview.data.selection import left_out, only_modalities, reference
from manyview.data.statistics import Statistics
from manyview.methods.method import VIEW
from manyview.training import normalisation
from manyview.training.build import check_method, scored_without_labels, takes_many
from manyview.views import VIEWS
from manyview.views.view import View, view_named

PHOTO_VIEWS = ("L", "ab")  # of photos, for a method with an encoder a view, where no setting names views


@dataclass(frozen=True, eq=False)
class RunData:
    """The training and held-out data of a run, and the views that its method sees."""

    train: Dataset
    test: Dataset | None
    views: dict[str, View]  # which modality each is derived from, and what is taken of it
    channels: dict[str, int]  # of each view
    side: int  # the usual length of a picture's shorter side
    fingerprint: tuple[int, ...]  # how many training images there are; sums of which, of sizes and times
    modalities: tuple[str, ...]  # all that the data has; those of no view are left out
    met: dict[str, Tensor] = field(default_factory=dict)  # one image (C, H, W) of each modality
    statistics: dict[str, Statistics] = field(default_factory=dict)  # of the modalities that are no pictures
    left_out: tuple[str, ...] = ()  # folders and columns of label maps, which are not taken for a modality
    opened_anew: bool = False  # with modalities that the data has on request alone, since views name them
    held_out: bool = False  # whether the images to score on were held out of the training data, and are no test split
    why: str | None = None  # the test split is not used, where there is one
    balanced: Dataset | None = None  # the training images before an imbalance left some of them out, where one did

    @property
    def bank(self) -> Dataset:
        """The training images that held-out ones are compared with: all, also those that an imbalance leaves out."""
        return self.train if self.balanced is None else self.balanced

    @property
    def labelled(self) -> bool:
        """Whether there are held-out images and classes to score them by."""
        return self.test is not None and has_classes(self.train)


def open_data(config: Config, own: Dataset | None = None) -> RunData:
    """Opens the data of a run, with the modalities that its views are derived from."""
    if own is None and config.own_data:
        raise UserError("data", "the run was made on a data set of your own; give it: manyview.pretrain(data=...)")
    options, there = config.data_options, config.data["name"] if own is None else own
    found, opened_anew = divided_for(config.views or (), there, unlabelled=scored_without_labels(config), **options)
    normalisation.check(config, found.train.modalities)
    views = views_of(config, found.train.modalities, reference(found.train) if config.views else None)
    if takes_many(config) and config.views is None:
        check_method(config, tuple(views))
    used = tuple(dict.fromkeys(view.modality for view in views.values()))
    train = only_modalities(found.train, used)
    test = None if found.test is None else only_modalities(found.test, used)
    few = few_samples(train)
    met = {name: sample.modalities[name] for sample in reversed(few) for name in sample.modalities}
    if len(met) < len(used):  # one that few samples have
        met = {name: sample.modalities[name] for sample in some_samples(train) for name in sample.modalities}
    shapes = {name: usual_shape(few, view.modality, met.get(view.modality)) for name, view in views.items()}
    return RunData(
        train=train,
        test=test,
        views=views,
        channels={name: view.width(shapes[name][0]) for name, view in views.items()},
        side=next(iter(shapes.values()))[1],
        fingerprint=fingerprint(train, few),
        modalities=found.train.modalities,
        met=met,
        statistics=normalisation.measured(config, train, met),
        left_out=left_out(found.train),
        opened_anew=opened_anew,
        held_out=found.held_out,
        why=found.test_unused,
        balanced=None if found.balanced is None else only_modalities(found.balanced, used),
    )


def views_of(config: Config, modalities: tuple[str, ...], picture: str | None = None) -> dict[str, View]:
    """Chooses the views of a method: the data's first modality, or all modalities for a method of many views.

    For data with a single modality, which are photos, a method of many views sees L and ab.

    picture  the modality that colours are taken from; by default the first
    """
    many = takes_many(config)
    names = config.views or ((modalities if len(modalities) > 1 else PHOTO_VIEWS) if many else modalities[:1])
    views = {name: view_named(name, picture or modalities[0]) for name in names}
    for name, view in views.items():
        if name in VIEWS and name in modalities:
            raise UserError("views", f"{name!r} is a view derived of pictures: give the modality {name!r} another name")
        if view.modality not in modalities:
            near = nearest(name, (*modalities, *VIEWS))
            more = f"did you mean {near!r}?" if near else "`manyview list views` has what is derived of pictures"
            raise UserError("views", f"the data has no {name!r}; it has {', '.join(modalities)}; {more}")
    if many:
        return views
    if len(views) > 1:
        raise UserError("views", f"{config.method['name']} sees one view, got {', '.join(views)}; give one of them")
    return {VIEW: next(iter(views.values()))}
