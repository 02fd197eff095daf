"""A folder of images, nested in any way."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.core.text import printable
from manyview.data.dataset import Shrink, id_of, label_target
from manyview.data.files import Found, scan
from manyview.data.image import EXTENSIONS, MAX_PIXELS, MaxPixels, Source, decode, decode_smaller
from manyview.data.splits import Labels, check_folder, class_labels, find_splits, pick_split, sibling_classes


class Folder:
    r"""All images below `root`, as uint8 RGB (3, H, W) as the modality `image`.

    split       "train", "test", "val" or "unlabeled" picks the folder of that name in `root`. A root without such
                folders is all train. None takes everything, whatever the folders are called.
    labels      True: the first folder below the root or split is the class. "auto": the same if every image lies
                exactly one folder deep, in at least two folders. False: none. A pattern such as "([a-z]+)_\d+": what
                its group finds in a file's name is the class; or a CSV file (file, label): `named_labels`. Classes
                have one number in all splits.
    max_pixels  of a picture; one with more is unreadable

    An id is a hash of the path relative to `root`, split folder included: the same on every machine, whatever else is
    added. The index counts the sorted paths. Names are listed and nothing is decoded before it is asked for; a file
    that cannot be read raises `Unreadable` then.

    Links are followed, and a file reached in two ways counts once. Hidden files and folders are passed over.

    >>> photos = Folder("photos"); photos[0].modalities["image"].shape
    """

    modalities = ("image",)
    threads = True  # may be read by several at once

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        split: str | None = "train",
        labels: Labels = "auto",
        max_pixels: MaxPixels = MAX_PIXELS,
    ) -> None:
        self.root, self.max_pixels = os.fspath(root), max_pixels
        check_folder(self.root)
        self.split_folder = pick_split(self.root, split)
        self.found: Found = scan(os.path.join(self.root, self.split_folder), EXTENSIONS)
        self._files = self.found.files
        if not len(self._files):
            raise UserError(None, _nothing(os.path.join(self.root, self.split_folder), self.found))
        self._prefix = self.split_folder + "/" if self.split_folder else ""
        self.labels, self.classes = class_labels(
            self._files, labels, sibling_classes(self.root, self.split_folder),
            prefix=self._prefix, elsewhere=self._elsewhere,
        )  # fmt: skip
        self.ids = torch.tensor([id_of(self._prefix + file) for file in self._files])

    def _elsewhere(self) -> list[str]:
        """The files of other splits, relative to the root."""
        others = [folder for folder in find_splits(self.root).values() if self._prefix and folder != self.split_folder]
        found = {folder: scan(os.path.join(self.root, folder), EXTENSIONS).files for folder in others}
        return [f"{folder}/{file}" for folder, files in found.items() for file in files]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Sample:
        return self.smaller(index, None)

    def smaller(self, index: int, shrink: Shrink | None) -> Sample:
        """A sample whose picture, if it is a JPEG, is decoded as many times smaller as `shrink` says."""
        index = range(len(self))[index]
        image, size = decode_smaller(self.path(index), self.max_pixels, shrink)
        return Sample(int(self.ids[index]), index, {"image": image}, label_target(self.labels, index), size)

    def name(self, index: int) -> str:
        """The path relative to the root, safe to print."""
        return printable(self._prefix + self._files[index])

    def path(self, index: int) -> str:
        """Where the file is."""
        return os.path.join(self.root, self._prefix + self._files[index])

    def paths(self, index: int) -> dict[str, str]:
        """Where the files of a sample are; here it is one."""
        return {"image": self.path(index)}

    def decode(self, modality: str, source: Source) -> Tensor:
        """A file, or its bytes, as the modality has it."""
        return decode(source, self.max_pixels)

    def __repr__(self) -> str:
        return f"Folder({printable(self.root)!r}, {len(self)} images, {len(self.classes)} classes)"


def _nothing(root: str, found: Found) -> str:
    """One line about a folder without images: what is there instead."""
    others = ", ".join(f"{count} {printable(ending)}" for ending, count in list(found.ignored.items())[:5])
    closed = f"; {len(found.closed)} folders may not be read" if found.closed else ""
    return (
        f"data: no images below {printable(root)!r}; found {others or 'no files'}{closed}; "
        f"expected files that end in {', '.join(EXTENSIONS)}"
    )
