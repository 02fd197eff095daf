"""The messages of a run about itself in plain words; nothing here has an effect on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from pathlib import Path

import torch
from torch import nn

from manyview.config.config import Config
from manyview.core.text import counted, duration, printable
from manyview.data import Loader
from manyview.data.check import FEW_PHOTOS, few_photos
from manyview.data.normals import NORMALS, camera_of
from manyview.data.selection import missing, modality_classes
from manyview.data.statistics import NoData, Statistics, no_data_of, suspect_zeros
from manyview.diagnose.health import SCORES
from manyview.memories import Memory
from manyview.methods import Contrast, Method, Prediction
from manyview.training.crops import small_size
from manyview.training.gains import FEW_STEPS, gain_lines, live_gain, start_line
from manyview.training.instance import INSTANCE, chance, ranks_in_words
from manyview.training.retrieval import MEAN, live_recall, recall_doubts, recall_table, untrained_recall
from manyview.training.run import encoder_files
from manyview.training.run_data import PHOTO_VIEWS, RunData
from manyview.training.settle import facts
from manyview.training.start import weights_lines
from manyview.training.state import RunState
from manyview.training.usual import explained

Say = Callable[[str], object]
KNN, LINEAR = "knn", "linear"  # what the names of their scores begin with
FEW_IMAGES = 8  # in a batch; reasoned
LONG, SHORTER = 30 * 60, 20  # seconds that are long, and minutes that are not
SHOWN_CLASSES = 5
MANY_LEFT_OUT = 0.1  # of the samples of an epoch; reasoned


def introduction(config: Config, data: RunData, method: Method, state: RunState) -> list[str]:
    """Describes in a few lines what is about to be trained."""
    source = "your own data" if config.own_data else config.data["name"]
    views = "" if len(data.views) == 1 else f", views {', '.join(data.views)}"
    return [
        f"{config.method['name']} on {len(data.train):,} images of {source}{views}, {_scored_on(data, config, method)}",
        f"encoder {config.encoder['name']} ({_parameters(method)} parameters), augmentation "
        f"{config.augmentation['name']} of {config.augmentation['size']} px{_small(config, method)}, "
        f"batch {config.batch_size}, {counted(state.total, 'step')}",
        *explained(config, facts(config, data)),
        *weights_lines(config, method),
        *_few_photos(config, data),
        *_named_classes(config, data),
        *_imbalance(config, data),
        *_parts_of_a_photo(data),
        *roles(method),
        *_epoch(len(data.train), state.per_epoch, config.batch_size),
        *_modalities(config, data),
    ]


def _small(config: Config, method: Method) -> str:
    """Describes the small crops of a method that takes some."""
    return f" and {method.small} small of {small_size(config, config.augmentation['size'])} px" if method.small else ""


def _few_photos(config: Config, data: RunData) -> list[str]:
    """Points to weights that exist where a run learns from nothing and has few images."""
    images = len(data.bank) + (len(data.test) if data.held_out and data.test is not None else 0)
    if config.own_data or config.encoder["pretrained"] or len(data.modalities) > 1:
        return []
    return [FEW_PHOTOS] if few_photos(config.data["name"], images) else []


def _parts_of_a_photo(data: RunData) -> list[str]:
    """Explains the views of photos for a method that needs several, which nobody may have named."""
    if set(data.views) != set(PHOTO_VIEWS):
        return []
    return ["views L and ab: lightness and colour of the same picture, with an encoder each (--views names others)"]


def _named_classes(config: Config, data: RunData) -> list[str]:
    """Counts the images of each class where a pattern or a table names them, which may be wrong."""
    named, classes = config.data.get("labels"), data.bank.classes
    parts = [each.labels for each in (data.bank, data.test) if each is not None and each.labels is not None]
    if not isinstance(named, str) or named == "auto" or not parts:
        return []
    labels = torch.cat(parts)
    counts = labels[labels >= 0].bincount(minlength=len(classes)).tolist()
    first = [f"{name} {count:,}" for name, count in zip(classes[:SHOWN_CLASSES], counts, strict=False)]
    more = [f"and {len(classes) - SHOWN_CLASSES:,} more"] if len(classes) > SHOWN_CLASSES else []
    none = int((labels < 0).sum())
    without = f"; {counted(none, 'image')} without a class" if none else ""
    return [f"{len(classes):,} classes by --data.labels: {', '.join([*first, *more])}{without}"]


def _imbalance(config: Config, data: RunData) -> list[str]:
    if data.balanced is None:
        return []
    rule, count = config.data["imbalance"], f"{len(data.train):,} of {len(data.balanced):,} training images"
    return [f"imbalance {rule}: pre-training sees {count}; kNN, and classifiers later, learn from all of them"]


def _epoch(samples: int, steps: int, batch: int) -> list[str]:
    """Reports how many samples an epoch leaves out, where these are many."""
    left = samples - steps * batch
    if left <= MANY_LEFT_OUT * samples:
        return []
    batches = f"{steps} batch{'es' * (steps > 1)} of {batch}, and none that is not full"
    said = f"each epoch leaves out {left:,} of {samples:,} samples, others every time: it has {batches}"
    return [f"{said}; --drop-last false takes them too"]


def roles(method: Method) -> list[str]:
    """Describes which views predict which, and which of more than two are contrasted."""
    edges: dict[frozenset[str], None] = {}
    seeing: dict[str, list[str]] = {}  # by what is predicted
    for term in method.terms:
        if isinstance(term, Contrast):
            slots = product(term.queries, term.keys or term.queries)
            edges |= dict.fromkeys(frozenset((q.view, k.view)) for q, k in slots if q.view != k.view)
        elif isinstance(term, Prediction):
            seeing.setdefault(term.target.view, []).append(term.predicted.view)
    predictions = [f"{_listed(seen)} predict{'s' * (len(seen) == 1)} {view}" for view, seen in seeing.items()]
    return [*(["; ".join(predictions)] if predictions else []), *_contrasted(list(method.views), edges)]


def _contrasted(views: Sequence[str], edges: Collection[frozenset[str]]) -> list[str]:
    """Describes which views are contrasted: each two, all with one, or only some; nothing for two views or fewer."""
    met = [view for view in views if any(view in edge for edge in edges)]
    if len(met) < 3:
        return []
    if len(edges) == math.comb(len(met), 2):
        return [f"each two of {_listed(met)} are contrasted"]
    core = next((view for view in met if all(view in edge for edge in edges)), None)
    if core is not None:
        return [f"{_listed([view for view in met if view != core])} are each contrasted with {core}"]
    return [", ".join(" with ".join(view for view in met if view in edge) for edge in edges) + " are contrasted"]


def _listed(names: Sequence[str]) -> str:
    """Joins names as `rgb`, `rgb and depth` or `rgb, depth and thermal`."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _modalities(config: Config, data: RunData) -> list[str]:
    """Reports missing views, the normalisation of modalities that are no pictures, and what is left out."""
    views = {name: view.modality for name, view in data.views.items()}
    lacking = missing(data.train)
    found = [
        f"{name} is missing in {count:,} of {len(data.train):,} samples: a sample takes part in what it has"
        for name, count in lacking.items()
        if len(set(views.values())) > 1
    ]
    for name, each in data.statistics.items():
        value = no_data_of(config.data.get("nodata"), name)
        holes = "NaN" if value is None else f"{value:g} or NaN"
        share = f"; pixels without data ({holes}), {each.no_data:.1%}, become the mean" if each.no_data else ""
        scaled = " of values / 255" if each.scaled else ""
        of = f" of {each.samples} samples" if each.samples else ""
        found.append(f"{name}: normalised with mean {_few(each.mean)}, std {_few(each.std)}{scaled}{of}{share}")
        found += suspect_zeros(name, each.zeros, 0, "--data.nodata 0") if value is None else []
    if NORMALS in views.values() and (camera := camera_of(data.train)) is not None:
        found.append(f"{NORMALS} are made of the depth, by {camera}")
    if data.left_out:
        take = ",".join([*data.modalities, *data.left_out])
        folders = f"{', '.join(map(printable, data.left_out))}: label maps by name, not taken for a modality"
        found.append(f"left out {folders} (--data.modalities {take} takes them)")
    return found


def _few(numbers: Sequence[float]) -> str:
    """Writes the mean and std of at most four channels."""
    return ", ".join([*(f"{each:.5g}" for each in numbers[:4]), *(["..."] if len(numbers) > 4 else [])])


def cautions(config: Config, data: RunData, loader: Loader, method: Method, world: int) -> list[str]:
    """Warns of settings that may not be what the user meant."""
    found = []
    if data.why is not None and config.evaluators and config.evaluate_every:
        found.append(f"the test split is not scored on: {data.why}")
    found += [] if config.own_data else modality_classes(data.train, "--data.modalities")
    found += _unmatched(config.data.get("nodata"), data.statistics)
    used = {view.modality for view in data.views.values()}
    if config.views is None and not used.issuperset(data.modalities):  # else somebody has chosen
        found.append(f"of the modalities {', '.join(data.modalities)} only {', '.join(sorted(used))} is trained on")
    sizes = [memory.size for memory in method.memories.values() if isinstance(memory, Memory)]
    for size in (each for each in sizes if each is not None and each > len(data.train)):
        smaller = "--memory.size 512" if "memory" in config.parts else "a smaller one"
        found.append(f"the queue of {size:,} keys is larger than the data; {smaller} would learn sooner")
    contrasts = any(isinstance(term, Contrast) for term in method.terms)
    if contrasts and not any(sizes) and config.batch_size < FEW_IMAGES:
        others = f"{config.batch_size - 1} other{'s' if config.batch_size > 2 else ''}"
        found.append(f"a batch of {config.batch_size} is small: each image has {others} to differ from")
    if loader.drop_last and not config.drop_last:
        found.append("an epoch leaves out its last image, another one every time: alone it contrasts with nothing")
    found += few_steps(config, len(loader))
    late = [str(epoch) for epoch in config.snapshots if epoch > config.epochs]
    if late:
        found.append(f"snapshots: the run ends after epoch {config.epochs:g}, before {', '.join(late)}")
    if _leaks(config, method, loader.device.type, world):
        found.append(
            "a key is in the same batch of batch norm as its query, and the statistics that they share give the match "
            "away (MoCo, section 3.3); --method.bn-splits 4 shuffles the keys"
        )
    if world > 1 and method.towers.shuffles and method.towers.bn_splits == 1:
        found.append(
            f"batch norm has a group of images in each of {world} processes, among which keys are shuffled; with "
            f"--method.bn-splits {world} the groups are the same for any number of processes"
        )
    return [*found, *unreadable(loader)]


def few_steps(config: Config, per_epoch: int) -> list[str]:
    """Warns that hardly a step fits into the time that was given."""
    steps = max(1, round(config.epochs * per_epoch))
    if config.minutes is None or "epochs" not in config.auto or steps >= FEW_STEPS:
        return []
    fit = f"only {counted(steps, 'step')} fit{'s' * (steps == 1)} into {config.minutes:g} min"
    return [f"{fit}: give more minutes, a smaller --augmentation.size or another --encoder"]


def _unmatched(nodata: NoData, statistics: Mapping[str, Statistics]) -> list[str]:
    """Warns that a value of no data occurs in no pixel: one for all modalities, or that of one of them."""
    values = {name: no_data_of(nodata, name) for name, each in statistics.items() if each.samples}
    given = {name: value for name, value in values.items() if value is not None}
    unmatched = [name for name in given if not statistics[name].no_data]
    if not isinstance(nodata, Mapping):
        return [_nowhere(unmatched, given[unmatched[0]])] if unmatched and len(unmatched) == len(given) else []
    return [_nowhere([name], given[name]) for name in unmatched]


def _nowhere(names: Sequence[str], value: float) -> str:
    return f"data.nodata: no pixel of {' or '.join(map(printable, names))} is {value:.10g}; all of them count as data"


def conclusion(state: RunState, folder: Path) -> list[str]:
    """Reports the outcome of a run."""
    gained = [name for name in state.untrained_scores if _is_share(name) and name in state.scores]
    found = [line for name in gained for line in gain_lines(name, _title(name), state)]
    whose = "at its start" if state.random_scores else "untrained"
    found += ranks_in_words(state.scores, state.untrained_scores, whose)
    found += recall_table(state.scores, state.untrained_scores)
    found += recall_doubts(state.scores, state.untrained_scores) if state.step >= FEW_STEPS else []
    verdict = state.health.verdict()
    found.append("too few steps to tell whether it is healthy" if verdict.word == "starting" else verdict.text)
    return [*found, encoders(folder)]


def untrained(state: RunState) -> list[str]:
    """Reports the scores before the first step."""
    told = [start_line(name, _title(name), state) for name in state.scores if _is_share(name)]
    return [*told, *chance(state.scores), *untrained_recall(state.scores)]


def scores(state: RunState) -> list[str]:
    """Writes the scores in the line of progress."""
    said = [live_gain(name, _title(name), state) for name in (KNN, LINEAR, INSTANCE) if name in state.scores]
    return [*said, *filter(None, [live_recall(state.scores, state.untrained_scores, new=state.scored_since(MEAN))])]


def _is_share(name: str) -> bool:
    """Tells whether a score is one whose gain is reported."""
    return name.partition("/")[0] in (KNN, LINEAR, INSTANCE)


def _title(name: str) -> str:
    """Returns the name of a score for readers."""
    return SCORES.get(name, name.replace("knn", "kNN", 1))


def ahead(config: Config, seconds: float) -> list[str]:
    """Estimates how long a run will take; nothing for a short one, or for one whose minutes were given."""
    if seconds < LONG or config.minutes is not None:
        return []
    return [f"about {duration(seconds)} on this machine; for {SHORTER} minutes: --minutes {SHORTER}"]


def held(loader: Loader) -> list[str]:
    """Reports how many decoded images the first epoch has left in memory."""
    count, taken = loader.held
    if not count or loader.at_once:
        return []
    which = "all" if count == len(loader.dataset) else f"{count:,} of {len(loader.dataset):,}"
    why, an_epoch = "", loader.seen(len(loader))
    if count + len(loader.unreadable) >= an_epoch and count < len(loader.dataset):
        why = "; an epoch leaves some out, others every time"
    elif count < len(loader.dataset) and loader.world == 1:
        why = "; there is no room for the others in the quarter of it that images may take"
    return [f"{which} images are in memory now ({taken / 1e9:,.2g} GB), and are not decoded again{why}"]


def unreadable(loader: Loader) -> list[str]:
    broken = list(loader.unreadable)
    if not broken:
        return []
    some = ", ".join(f"{loader.dataset.name(row)} ({loader.unreadable[row]})" for row in broken[:3])
    some += ", ..." if len(broken) > 3 else ""
    return [f"{len(broken)} of {len(loader.dataset)} images cannot be read, others stand in for them: {some}"]


def encoders(folder: Path) -> str:
    files = encoder_files(folder)
    return f"encoder{'s' if len(files) > 1 else ''} {', '.join(map(str, files))}"


def _leaks(config: Config, method: Method, device: str, world: int) -> bool:
    """Tells whether a key shares batch norm statistics with its query that other images do not (MoCo, section 3.3)."""
    parts = (world > 1 and device == "cpu") or (config.micro_batch or config.batch_size) < config.batch_size // world
    kept = any(isinstance(memory, Memory) and memory.size for memory in method.memories.values())
    normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in method.modules())
    shuffled = method.towers.shuffle is not None and (method.towers.bn_splits > 1 or world > 1)
    return (parts or kept) and normed and method.towers.key is not None and not shuffled


def _scored_on(data: RunData, config: Config, method: Method) -> str:
    unlabelled = bool(method.contrasted) or INSTANCE in config.evaluators
    if data.test is None:
        return "too few to hold out some: no score" if unlabelled else "no labels to score with: no kNN"
    if not (config.evaluators and config.evaluate_every and (unlabelled or data.labelled)):
        return "no score" + (f", {len(data.test):,} held out" if data.held_out else "")
    scored = f"scored on {min(len(data.test), config.knn_queries):,}"
    if not data.held_out:
        return f"{scored} images of its test split"
    by_folder = data.labelled and config.data.get("labels") in (True, "auto") and not config.own_data
    folders = "; its folders are the classes, --data.labels false trains on all" if by_folder else ""
    return f"{scored} held-out images{folders}"


def _parameters(method: Method) -> str:
    count = sum(each.numel() for encoder in method.towers.encoders.values() for each in encoder.parameters())
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"
