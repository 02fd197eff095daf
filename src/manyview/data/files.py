"""The files under a folder: found quickly, in a fixed order, and kept small."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

_CLUTTER = (b"__MACOSX", b"@eaDir", b"Thumbs.db", b"desktop.ini")


class Files(Sequence[str]):
    """Sorted relative paths, with forward slashes, in one piece of memory.

    A list of a million strings is a million objects, and a worker process copies each as soon as it looks at it.
    """

    def __init__(self, paths: Iterable[bytes]) -> None:
        ordered = sorted(paths)  # bytes, so the order is the same in every locale
        self._blob = np.frombuffer(b"".join(ordered), dtype=np.uint8)
        self._ends = np.cumsum([0, *map(len, ordered)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return os.fsdecode(self.raw(index))

    def __iter__(self) -> Iterator[str]:
        blob, ends = self._blob.tobytes(), self._ends.tolist()
        return (os.fsdecode(blob[start:end]) for start, end in pairwise(ends))

    def raw(self, index: int) -> bytes:
        """The path as the file system has it, of any encoding."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"index: expected less than {len(self)} files, got {index}")
        index %= len(self)
        return self._blob[self._ends[index] : self._ends[index + 1]].tobytes()


@dataclass
class Found:
    """What a scan found: the files asked for, and how much of what else."""

    files: Files
    ignored: dict[str, int]  # other files by extension
    hidden: int  # names that start with a dot, and what systems leave behind; a folder counts once
    twice: int  # links to a file that is there under another name
    closed: list[str] = field(default_factory=list)  # folders that may not be read


def scan(root: str, extensions: tuple[str, ...]) -> Found:
    """Finds all files below `root` with these extensions; links are followed, each folder is read once, so a loop ends.

    What can be reached in two ways counts once, under its own name rather than a link's. A link that leads nowhere
    is kept if its name is right: that a file is missing should be seen. No file is opened.
    """
    walk = _Walk(os.fsencode(root), tuple(os.fsencode(e) for e in extensions))
    walk.run()
    links = walk.new_links()
    return Found(
        files=Files(walk.files + links),
        ignored=dict(walk.ignored.most_common()),
        hidden=walk.hidden,
        twice=len(walk.links) - len(links),
        closed=sorted(walk.closed),
    )


def is_folder(entry: os.DirEntry[bytes]) -> bool:
    """Tells whether an entry is a folder or a link to one. `entry.is_dir()` raises on a link to itself."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir(follow_symlinks=False)


class _Walk:
    """A walk through folders: those still to be read, and what was met so far, in bytes, as names need not be text."""

    def __init__(self, root: bytes, extensions: tuple[bytes, ...]) -> None:
        self.root, self.extensions = root, extensions
        self.files: list[bytes] = []
        self.links: list[bytes] = []  # to files
        self.ignored: Counter[str] = Counter()
        self.hidden = 0
        self.closed: list[str] = []
        self._folders: list[bytes] = [b""]
        self._linked_folders: list[bytes] = []
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Reads real folders first, so that a folder goes by its own name and not by that of a link to it."""
        while self._folders or self._linked_folders:
            if not self._folders:
                self._linked_folders.sort(reverse=True)
                self._folders.append(self._linked_folders.pop())
            self._read(self._folders.pop())

    def _read(self, folder: bytes) -> None:
        path = os.path.join(self.root, folder)
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in self._seen:
                return
            self._seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                for entry in entries:
                    self._meet(entry, folder)
        except OSError:
            self.closed.append(os.fsdecode(folder) or ".")

    def _meet(self, entry: os.DirEntry[bytes], folder: bytes) -> None:
        name = entry.name
        if name.startswith(b".") or name in _CLUTTER:
            self.hidden += 1
            return
        relative = folder + name
        link = entry.is_symlink()
        if is_folder(entry):
            (self._linked_folders if link else self._folders).append(relative + b"/")
        elif not name.lower().endswith(self.extensions) or not (link or entry.is_file()):
            self.ignored[os.fsdecode(os.path.splitext(name)[1].lower()) or "no extension"] += 1
        else:
            (self.links if link else self.files).append(relative)

    def new_links(self) -> list[bytes]:
        """The links to files that are not there already; of several to one file, the first by name."""
        root, own = os.path.realpath(self.root) + b"/", set(self.files if self.links else ())
        kept: dict[bytes, bytes] = {}
        for link in sorted(self.links):
            target = os.path.realpath(os.path.join(self.root, link))
            if not (target.startswith(root) and target[len(root) :] in own):
                kept.setdefault(target, link)
        return list(kept.values())
