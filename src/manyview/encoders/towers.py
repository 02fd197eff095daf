"""Towers: which network sees which view; a query branch and, with momentum, a key branch; heads by name."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.bounds import check_bounds
from manyview.core.distributed import average_over_processes_
from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.encoders.encoder import Encoder
from manyview.encoders.layers import batch_norms, running_statistics, split_batch_norm
from manyview.encoders.map_heads import OnMap
from manyview.encoders.momentum import SHARE, Schedule, average_, constant, shuffled
from manyview.encoders.present import embed_any_number, embed_present, join_copies
from manyview.encoders.prototypes import Prototypes
from manyview.encoders.tower import MAPS, AnyHead, Head, MakePrototypes, Tower

SHARED = "shared"  # the name of a tower that all views go through
JIGSAW = -1  # the number of the copy that is a jigsaw: it comes last
Branch = Literal["query", "key", "input"]


class Slot(NamedTuple):
    """The place of one output: which branch made it, of which view and copy, and what it is.

    name  "embedding": through head and, for queries, predictor, at unit length; "projection": through the head alone;
          "features": as the encoder gives them; "scores": the projection's by the prototypes; "maps.LAYER": a feature
          map; or the name of another head. The branch "input" gives the view itself, under the name "view"
    copy  its number, or JIGSAW
    """

    branch: Branch
    view: str
    copy: int
    name: str = "embedding"


Outputs = dict[Slot, Tensor]
"""What towers answer: tensors with a row for each image of the batch."""


class Towers(nn.Module):
    """The networks of a method: one tower for all views, or one a view; a query and a key branch.

    encoder    one for all views, or one for each by the view's name
    head       makes a head for an encoder's dim, such as partial(heads.mlp, dim_out=128); None for none
    heads      makes further heads by name, such as a decoder or a second projection; for feature maps a `MapHead` or a
               `LastHead`. {name: {view: make}} is for the towers of those views alone
    predictor  makes a second head, for queries alone, from the embeddings' length; it has no momentum copy
    momentum   a number, or a function of (step, total) such as partial(cosine, start=0.99). With it, keys come from a
               copy without gradient; without, from the query tower, with gradient
    shuffle    seed: keys go through their tower in another order, among all processes (see `shuffled`)
    bn_splits  groups of the batch of all processes, each with batch norm of its own (see `split_batch_norm`), between
               which keys are shuffled; 1: the batch of each process is one
    joint      copies of a view that have one size go through a tower in one batch, so that batch norm sees them
               together; else one after the other
    normalize  embeddings come out at length 1
    prototypes makes vectors that projections are scored by, from the projections' length, for the output "scores"
    frozen     steps at first in which the prototypes do not learn

    The copy averages parameters only, as MoCo does: the running statistics of its batch norms follow its own forward
    passes, in train mode like the query tower's. No parameter of it requires a gradient.

    >>> towers = Towers(create("patchnet", size=32), partial(heads.mlp, dim_out=128), momentum=0.99)
    >>> outputs = towers({"image": [x1, x2]}, [Slot("query", "image", 0), Slot("key", "image", 1)], step=0)
    >>> loss.backward(); optimizer.step(); towers.update(step, total)     # in this order
    """

    def __init__(
        self,
        encoder: Encoder | Mapping[str, Encoder],
        head: Head | None,
        *,
        heads: Mapping[str, AnyHead | Mapping[str, AnyHead]] | None = None,
        predictor: Head | None = None,
        momentum: float | Schedule | None = None,
        shuffle: int | None = None,
        bn_splits: int = 1,
        joint: bool = True,
        normalize: bool = True,
        prototypes: MakePrototypes | None = None,
        frozen: int = 0,
    ) -> None:
        super().__init__()
        encoders = _by_view(encoder)
        towers = {v: Tower(each, head, _heads_of(v, heads or {}), prototypes) for v, each in encoders.items()}
        self.query = nn.ModuleDict(towers)
        self.dims = {view: tower.length() for view, tower in towers.items()}
        self.predictor = nn.ModuleDict({} if predictor is None else {v: predictor(dim) for v, dim in self.dims.items()})
        check_bounds("momentum", momentum, [SHARE])
        self.momentum = partial(constant, start=momentum) if isinstance(momentum, int | float) else momentum
        self.key = None if self.momentum is None else copy.deepcopy(self.query).requires_grad_(False)
        self.shuffle, self.bn_splits, self.joint, self.normalize = shuffle, bn_splits, joint, normalize
        self.frozen = frozen
        if self.momentum is not None:
            self.momentum(0, 1)  # refuses what is no momentum
        if bn_splits > 1:
            split_batch_norm(self, bn_splits)

    @property
    def dim(self) -> int:
        """The length of the embeddings."""
        return next(iter(self.dims.values()))

    @property
    def shuffles(self) -> bool:
        """Says whether keys go through their tower in another order, among all processes: where there is a batch
        norm."""
        return self.shuffle is not None and bool(batch_norms(self))

    @property
    def encoders(self) -> dict[str, Encoder]:
        """The query branch's encoders by view: what training is for. One that all views share is named "shared"."""
        found = {view: tower.encoder for view, tower in self.query.items()}
        return {view: each for view, each in found.items() if isinstance(each, Encoder)}

    def encoder(self, view: str | None = None) -> Encoder:
        """The query branch's encoder of a view; without a name, the one that all share, or else the first view's."""
        encoders = self.encoders
        return encoders[next(iter(encoders)) if view is None else self._name(view)]

    def has_gradient(self, slot: Slot) -> bool:
        """Says whether an output passes a gradient on to the networks."""
        return slot.branch == "query" or (slot.branch == "key" and self.key is None)

    def leaves_out(self, slots: Iterable[Slot]) -> bool:
        """Says whether some parameters of the query branch have no part in these outputs, and so no gradient."""
        asked = [(self._name(slot.view), slot.name) for slot in slots if self.has_gradient(slot)]
        for view, tower in self.query.items():
            assert isinstance(tower, Tower)
            names = {name for each, name in asked if each == view}
            has_head = next(tower.head.parameters(), None) is not None
            headless = has_head and names.isdisjoint({"embedding", "projection", "scores"})
            on_maps = {name for name, each in tower.heads.items() if isinstance(each, OnMap)}
            only_maps = all(name.startswith(MAPS) or name in on_maps for name in names)  # layers after have no part
            without_predictor = bool(len(self.predictor)) and "embedding" not in names
            unscored = tower.prototypes is not None and "scores" not in names
            if headless or only_maps or without_predictor or unscored or not names.issuperset(tower.heads):
                return True
        return False

    def forward(
        self, views: Views, slots: Iterable[Slot], *, step: int = 0, present: Mapping[str, Tensor] | None = None
    ) -> Outputs:
        """Gives what the slots ask for, of views {name: [copy, ...]}, (N, C, H, W) each: queries first, then keys.

        step     the number of the training step, which the shuffling of keys draws its order from
        present  masks (N,) by view: which images have it. Others do not go through a tower, and their rows are zero
        """
        slots = list(slots)
        found: Outputs = {slot: views[slot.view][slot.copy] for slot in slots if slot.branch == "input"}
        for branch in ("query", "key"):
            for view in dict.fromkeys(slot.view for slot in slots if slot.branch == branch):
                wanted = [slot for slot in slots if (slot.branch, slot.view) == (branch, view)]
                embed, there = partial(self._through, wanted, step), (present or {}).get(view)
                copies = views[view]
                found |= embed(copies) if there is None else embed_present(embed, copies, there)
        return {slot: found[slot] for slot in slots}

    def queries(self, x: Tensor, view: str | None = None) -> Tensor:
        """(B, C, H, W) to embeddings (B, d), with gradient, through the predictor if there is one."""
        slot = Slot("query", self._name(view), 0)
        return self.forward({slot.view: [x]}, [slot])[slot]

    def keys(self, x: Tensor, view: str | None = None, *, step: int = 0) -> Tensor:
        """(B, C, H, W) to embeddings (B, d), not through the predictor. With momentum, from the copy, no gradient."""
        slot = Slot("key", self._name(view), 0)
        return self.forward({slot.view: [x]}, [slot], step=step)[slot]

    def update(self, step: int, total: int) -> None:
        """Moves the key towers towards the query towers. To be called after the optimiser's step.

        Where each process has batch norms of its own, their running statistics become those of the whole batch.
        """
        for prototypes in self.prototypes():
            prototypes.after_step()
        if self.key is not None and self.momentum is not None:
            average_(self.key.parameters(), self.query.parameters(), self.momentum(step, total))
        if self.shuffles or self.bn_splits > 1:
            average_over_processes_(running_statistics(self))

    def prototypes(self) -> list[Prototypes]:
        """Gives those of the query branch, a view's after the other's."""
        return [each for each in self.query.modules() if isinstance(each, Prototypes)]

    def hold(self, step: int) -> None:
        """Drops the gradient of what is frozen in this step. To be called before the optimiser's step."""
        if step < self.frozen:
            for parameter in (each for prototypes in self.prototypes() for each in prototypes.parameters()):
                parameter.grad = None

    def trained(self) -> Iterator[nn.Parameter]:
        """Gives what an optimiser is given: everything but the key towers and what is frozen."""
        return (each for each in self.parameters() if each.requires_grad)

    def _through(self, slots: list[Slot], step: int, copies: list[Tensor]) -> Outputs:
        """All copies that the slots of one branch and view ask for: those of one shape in one batch, if `joint`."""
        numbers = sorted({slot.copy for slot in slots})
        alike = [[number] for number in numbers]
        if self.joint:
            shapes = dict.fromkeys(copies[number].shape for number in numbers)
            alike = [[number for number in numbers if copies[number].shape == shape] for shape in shapes]
        found: Outputs = {}
        for group in alike:
            names, many = tuple(dict.fromkeys(slot.name for slot in slots if slot.copy in group)), len(group)
            x = join_copies([copies[number] for number in group])
            forward = partial(self._outputs, slots[0], names)
            embed = partial(embed_any_number, forward, networks=self, least=2 * many)
            seed = self.shuffle if self.shuffles and slots[0].branch == "key" and self.training else None
            made = embed(x) if seed is None else shuffled(embed, x, seed=seed, step=step)
            for name, rows in made.items():
                parts = [rows[place::many] for place in range(many)] if many > 1 else [rows]
                named = [slots[0]._replace(copy=number, name=name) for number in group]
                found |= zip(named, parts, strict=True)
        return found

    def _outputs(self, slot: Slot, names: tuple[str, ...], x: Tensor) -> dict[str, Tensor]:
        """The named outputs of one pass through the tower of a slot's branch and view."""
        of_tower = tuple(dict.fromkeys("projection" if name == "embedding" else name for name in names))
        view, is_key = self._name(slot.view), slot.branch == "key"
        towers = self.key if is_key and self.key is not None else self.query
        with torch.set_grad_enabled(torch.is_grad_enabled() and towers is self.query):
            made = towers[view](x, names=of_tower)
        if "embedding" in names:
            embedded = made["projection"]
            if len(self.predictor) and not is_key:
                embedded = self.predictor[view](embedded)
            made["embedding"] = self._finished(embedded)
        if "projection" in names:
            made["projection"] = self._finished(made["projection"])
        if "scores" in names:
            made["scores"] = made["scores"].to(torch.promote_types(made["scores"].dtype, torch.float32))
        return {name: made[name] for name in names}

    def _finished(self, embedded: Tensor) -> Tensor:
        precise = embedded.to(torch.promote_types(embedded.dtype, torch.float32))  # after autocast
        return F.normalize(precise, dim=1) if self.normalize else precise

    def _name(self, view: str | None) -> str:
        if tuple(self.query) == (SHARED,):
            return SHARED
        if view is None or view not in self.query:
            raise UserError("view", f"expected one of {', '.join(self.query)}, got {view!r}")
        return view


def _heads_of(view: str, heads: Mapping[str, AnyHead | Mapping[str, AnyHead]]) -> dict[str, AnyHead]:
    of_view = {name: each.get(view) if isinstance(each, Mapping) else each for name, each in heads.items()}
    return {name: each for name, each in of_view.items() if each is not None}


def _by_view(encoder: Encoder | Mapping[str, Encoder]) -> dict[str, Encoder]:
    if isinstance(encoder, Encoder):
        return {SHARED: encoder}
    if not isinstance(encoder, Mapping) or not encoder:
        raise UserError("encoder", f"expected one Encoder, or one for each view by name, got {type(encoder).__name__}")
    taken = [view for view in encoder if "." in view or view in ("", SHARED) or hasattr(nn.ModuleDict, view)]
    if taken:
        raise UserError("encoder", f"a view cannot be named {taken[0]!r}; give another name")
    return dict(encoder)
