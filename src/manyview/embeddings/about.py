"""What a file of embeddings records about itself: which encoder made them, of which images, and how."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from manyview.core.errors import UserError

FORMAT = 1


@dataclass(frozen=True)
class About:
    """Describes what embeddings are of, and how they were made.

    encoder      as the user named it: a run's folder, a name
    network      the name of its architecture
    weights      a check sum of them, by `checksums.weights_checksum`
    size         of the input pictures, in pixels
    mean, std    that normalise the pictures
    view         the view of the data that the encoder takes
    data         a folder or the name of a data set, and the options that opened it
    root         the folder that paths are relative to; None where images are not files
    classes      the names of the classes
    fingerprint  identifies the set of images
    broken       the images that could not be read, and why
    grid         rows, columns and length of the vectors, where an image has one per map position; else empty
    """

    encoder: str
    network: str
    weights: str
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    view: str
    data: str
    options: dict[str, Any]
    root: str | None
    classes: tuple[str, ...]
    dtype: str
    batch_size: int
    fingerprint: str
    version: str
    broken: dict[str, str]
    grid: tuple[int, ...] = ()

    @property
    def taken(self) -> str:
        """Names the splits of the data that these are, where it has some: "the test split of "."""
        split, splits = self.options.get("split"), self.options.get("splits")
        if isinstance(splits, list) and splits:
            return f"all splits ({', '.join(map(str, splits))}) of "
        return f"the {split} split of " if split else ""

    def to_json(self) -> bytes:
        return json.dumps({"manyview_embeddings": FORMAT, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> About:
        """Reads what `to_json` wrote; raises ValueError for anything else."""
        found = json.loads(text)
        if not isinstance(found, dict) or found.pop("manyview_embeddings", None) != FORMAT:
            raise UserError(None, f"it does not say that it is of format {FORMAT}")
        found.setdefault("grid", [])  # of older files
        wrong = [field.name for field in fields(cls) if not isinstance(found.get(field.name), KINDS[field.name])]
        wrong = wrong or [name for name in INSIDE if not all(isinstance(each, INSIDE[name]) for each in found[name])]
        if wrong or len(found) != len(fields(cls)):
            raise UserError(None, f"what it says of itself is damaged: {', '.join(wrong or ['unknown entries'])}")
        return cls(**{**found, **{name: tuple(found[name]) for name in INSIDE}})


KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("encoder", "network", "weights", "view", "data", "dtype", "fingerprint", "version"), str),
    **dict.fromkeys(("mean", "std", "classes", "grid"), list),
    **dict.fromkeys(("options", "broken"), dict),
    **dict.fromkeys(("size", "batch_size"), int),
    "root": (str, type(None)),
}
INSIDE: dict[str, type | tuple[type, ...]] = {
    "mean": (int, float),
    "std": (int, float),
    "classes": str,
    "grid": int,
}
