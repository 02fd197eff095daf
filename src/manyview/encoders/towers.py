"""Towers: encoder and head of the query branch, and their slowly following copy that makes the keys."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders.encoder import Encoder
from manyview.encoders.momentum import Schedule, average_, check, constant
from manyview.encoders.norm import shuffled

SHARED = "shared"
Encoders = Encoder | Mapping[str, Encoder] | Callable[[str], Encoder]
Head = Callable[[int], nn.Module]


class Tower(nn.Module):
    """An encoder with its head."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.head(self.encoder(x))
        return embedded


class Towers(nn.Module):
    """The networks of a method: one tower for all views, or one per view; a query and a key branch.

    encoder    one, or with `views` one for each: a dict, or a function of the view's name
    head       makes a head for an encoder's dim, such as partial(projection, "mlp", dim_out=128); None for none
    predictor  makes a second head, for queries alone, from the vectors' length; it has no momentum copy
    momentum   a number, or a function of (step, total) such as partial(cosine, start=0.99). With it, keys come from a
               copy without gradient; without, from the query tower, with gradient
    views      the names of the views that have a tower each
    shuffle    seed: keys go through their tower in another order (see `shuffled`; wants `split_batch_norm`)
    normalize  vectors come out at length 1

    The copy averages parameters only, as MoCo does: the running statistics of its batch norms follow its own forward
    passes, in train mode like the query tower's. No parameter of it requires a gradient.

    Under Fabric's DDP mark both as forward methods after setup: `fabric_module.mark_forward_method("queries")`, "keys".

    >>> towers = Towers(create("patchnet", size=32), partial(projection, "mlp", dim_out=128), momentum=0.99)
    >>> q, k = towers.queries(x1), towers.keys(x2)
    >>> loss.backward(); optimizer.step(); towers.update(step, total)     # in this order
    """

    def __init__(
        self,
        encoder: Encoders,
        head: Head | None,
        *,
        predictor: Head | None = None,
        momentum: float | Schedule | None = None,
        views: Sequence[str] | None = None,
        shuffle: int | None = None,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        encoders = _one_each(encoder, views)
        self.query = nn.ModuleDict({view: Tower(each, _made(head, each.dim)) for view, each in encoders.items()})
        dims = {view: _length(tower) for view, tower in self.query.items()}
        self.predictor = nn.ModuleDict({} if predictor is None else {v: predictor(dim) for v, dim in dims.items()})
        self.momentum = _schedule(momentum)
        self.key = None if self.momentum is None else copy.deepcopy(self.query).requires_grad_(False)
        self.dim = next(iter(dims.values()))  # of the vectors that are contrasted
        self.shuffle, self.normalize = shuffle, normalize
        self.momentum_at(0, 1)

    @property
    def views(self) -> tuple[str, ...] | None:
        """The views that have a tower each; None if all share one."""
        names = tuple(self.query)
        return None if names == (SHARED,) else names

    def encoder(self, view: str | None = None) -> Encoder:
        """The query branch's encoder: what training is for."""
        found = self._tower(self.query, view).encoder
        assert isinstance(found, Encoder)
        return found

    def queries(self, x: Tensor, view: str | None = None) -> Tensor:
        """(B, C, H, W) to (B, d), with gradient, through the predictor if there is one."""
        embedded = self._tower(self.query, view)(x)
        if len(self.predictor):
            embedded = self._tower(self.predictor, view)(embedded)
        return self._finished(embedded)

    def keys(self, x: Tensor, view: str | None = None, *, step: int | None = None) -> Tensor:
        """(B, C, H, W) to (B, d), not through the predictor. With momentum, from the copy and without gradient.

        step: the number of the training step, which shuffling draws its order from.
        """
        if self.key is None:
            return self._finished(self._through(self._tower(self.query, view), x, step))
        with torch.no_grad():
            return self._finished(self._through(self._tower(self.key, view), x, step))

    def momentum_at(self, step: int, total: int) -> float | None:
        return None if self.momentum is None else self.momentum(step, total)

    def update(self, step: int, total: int) -> None:
        """Moves the key towers towards the query towers. To be called after the optimiser's step."""
        momentum = self.momentum_at(step, total)
        if self.key is not None and momentum is not None:
            average_(self.key.parameters(), self.query.parameters(), momentum)

    def trained(self) -> Iterator[nn.Parameter]:
        """What an optimiser is given: everything but the key towers and what is frozen."""
        return (each for each in self.parameters() if each.requires_grad)

    def _through(self, tower: nn.Module, x: Tensor, step: int | None) -> Tensor:
        if self.shuffle is None or not self.training:
            embedded: Tensor = tower(x)
            return embedded
        if step is None:
            raise UserError(
                "step", "shuffled keys draw their order from the step's number; give keys(x, view, step=...)"
            )
        return shuffled(tower, x, seed=self.shuffle, step=step)

    def _finished(self, embedded: Tensor) -> Tensor:
        precise = embedded.to(torch.promote_types(embedded.dtype, torch.float32))  # after autocast
        return F.normalize(precise, dim=1) if self.normalize else precise

    def _tower(self, towers: nn.ModuleDict, view: str | None) -> nn.Module:
        name = SHARED if self.views is None else view
        if name is None or name not in towers:
            raise UserError("view", f"expected one of {', '.join(towers)}, got {view!r}")
        return towers[name]


def _one_each(encoder: Encoders, views: Sequence[str] | None) -> dict[str, Encoder]:
    if views is None:
        if not isinstance(encoder, Encoder):
            raise UserError("encoder", "without views it is one Encoder; for a dict or a function name the views")
        return {SHARED: encoder}
    taken = [view for view in views if "." in view or view in ("", SHARED) or hasattr(nn.ModuleDict, view)]
    if not views or taken or len(set(views)) < len(views):
        raise UserError(
            "views", f"expected different names, got {tuple(views)}; not possible: {taken or 'twice the same'}"
        )
    if isinstance(encoder, Mapping):
        if set(encoder) != set(views):
            raise UserError("encoder", f"expected one for each view {tuple(views)}, got {tuple(encoder)}")
        return {view: encoder[view] for view in views}
    if isinstance(encoder, Encoder):
        raise UserError("encoder", "a tower per view wants an encoder per view: give a dict or a function of the name")
    return {view: encoder(view) for view in views}


def _made(head: Head | None, dim: int) -> nn.Module:
    if isinstance(head, nn.Module):
        raise UserError(
            "head", "give what makes it from the encoder's dim, such as partial(projection, 'mlp', dim_out=128)"
        )
    return nn.Identity() if head is None else head(dim)


def _schedule(momentum: float | Schedule | None) -> Schedule | None:
    if not isinstance(momentum, int | float):
        return momentum
    check("momentum", momentum)
    return partial(constant, start=momentum)


@torch.no_grad()
def _length(tower: nn.Module) -> int:
    """Of the vectors that leave a tower."""
    encoder, head = tower.encoder, tower.head
    assert isinstance(encoder, Encoder)
    assert isinstance(head, nn.Module)
    some = next(encoder.parameters())
    training = head.training
    output = head.eval()(torch.zeros(1, encoder.dim, device=some.device, dtype=some.dtype))
    head.train(training)
    return int(output.shape[1])
