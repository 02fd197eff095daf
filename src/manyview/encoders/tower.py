"""A tower: an encoder with its heads, which make named outputs of one pass through it."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders.encoder import Encoder
from manyview.encoders.map_heads import LastHead, MapHead, OnMap
from manyview.encoders.prototypes import Prototypes

MAPS = "maps."  # what the names of feature maps begin with
NAMES = ("embedding", "projection", "features", "scores")  # the outputs of a tower besides those of further heads
Head = Callable[[int], nn.Module]
MakePrototypes = Callable[[int], Prototypes]
AnyHead = Head | MapHead | LastHead


class Tower(nn.Module):
    """An encoder with its heads."""

    def __init__(
        self,
        encoder: Encoder,
        head: Head | None,
        heads: Mapping[str, AnyHead],
        prototypes: MakePrototypes | None = None,
    ) -> None:
        super().__init__()
        taken = [name for name in heads if name in NAMES or name.startswith(MAPS)]
        if taken:
            raise UserError("heads", f"{taken[0]!r} is already the name of an output; give another name")
        if isinstance(head, nn.Module):
            raise UserError(
                "head", "give what makes it from the encoder's dim, such as partial(heads.mlp, dim_out=128)"
            )
        self.encoder, self.head = encoder, nn.Identity() if head is None else head(encoder.dim)
        self.heads = nn.ModuleDict(
            {
                name: each.build(encoder) if isinstance(each, MapHead | LastHead) else each(encoder.dim)
                for name, each in heads.items()
            }
        )
        self.prototypes = None if prototypes is None else prototypes(self.length())

    @torch.no_grad()
    def length(self) -> int:
        """The length of the vectors that leave the head."""
        some = next(self.encoder.parameters())
        training = self.head.training
        output = self.head.eval()(torch.zeros(1, self.encoder.dim, device=some.device, dtype=some.dtype))
        self.head.train(training)
        return int(output.shape[1])

    def forward(self, x: Tensor, names: tuple[str, ...] = ("projection",)) -> dict[str, Tensor]:
        """(B, C, H, W) to what is asked for, by name, in one pass through the encoder.

        Of patches (B, P, C, h, w) heads are given the features (B, P, dim).
        """
        heads = {name: head for name, head in self.heads.items() if name in names}
        layers = [name.removeprefix(MAPS) for name in names if name.startswith(MAPS)]
        read = {*layers, *(head.layer for head in heads.values() if isinstance(head, OnMap))}
        images = x.flatten(0, 1) if x.dim() == 5 else x
        features, maps = self.encoder.embed_with_maps(images, read) if read else (self.encoder(images), {})
        features = features.unflatten(0, x.shape[:2]) if x.dim() == 5 else features
        found = {MAPS + layer: maps[layer] for layer in layers}
        if "features" in names:
            found["features"] = features
        if not {"projection", "scores"}.isdisjoint(names):
            found["projection"] = self.head(features)
        if "scores" in names and self.prototypes is not None:
            found["scores"] = self.prototypes(found["projection"])
        for name, head in heads.items():
            found[name] = head(maps[head.layer] if isinstance(head, OnMap) else features)
        missing = [name for name in names if name not in found]
        if missing:
            there = [name for name in NAMES if name != "scores" or self.prototypes is not None]
            known = ", ".join([*there, *self.heads, f"{MAPS}LAYER"])
            raise UserError("name", f"no output is called {missing[0]!r}; there are {known}")
        return {name: found[name] for name in names}
