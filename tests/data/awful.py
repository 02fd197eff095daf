"""A folder of deliberately awful files, each with what should become of it."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

GOOD = {  # name -> (channels, height, width) after decoding
    "1x1.png": (3, 1, 1),
    "wide.png": (3, 2, 20000),
    "grey16.png": (3, 4, 5),
    "grey16.tif": (3, 4, 5),
    "rgb16.png": (3, 4, 5),
    "int32.tif": (3, 4, 5),
    "float.tif": (3, 4, 5),
    "cmyk.jpg": (3, 8, 8),
    "palette.png": (3, 4, 5),
    "grey-alpha.png": (3, 4, 5),
    "rgba.png": (3, 4, 5),
    "bilevel.png": (3, 4, 5),
    "animated.gif": (3, 4, 5),
    "animated.webp": (3, 4, 5),
    "rotated.jpg": (3, 16, 8),
    "rotated.tif": (3, 16, 8),
    "wrong-ending.png": (3, 4, 5),
    "picture.bmp": (3, 4, 5),
    "UPPER.PNG": (3, 4, 5),
    "<img src=x onerror=alert(1)>.png": (3, 4, 5),
    "new\nline.png": (3, 4, 5),
    "deep/er/and/deeper/a.png": (3, 4, 5),
    "folder.png/inside.png": (3, 4, 5),
}
BROKEN = {  # name -> a part of the reason
    "truncated.jpg": "truncated",
    "empty.png": "empty",
    "text.png": "not an image",
    "bomb.png": "too large",
    "bad-data.png": "broken|zlib|truncated|decod",
    "dangling.png": "leads nowhere",
    "self.png": "[Ss]ymbolic links",
}
IGNORED = {".txt": 2, ".csv": 1, "no extension": 1}
HIDDEN = 4
STRAY = os.fsdecode(b"caf\xe9.png")  # latin-1: not a text in UTF-8


def make_awful(root: Path) -> Path:
    """Fills a folder and returns it. Of a file system that refuses names of bytes, the stray name is missing."""
    root.mkdir(parents=True, exist_ok=True)
    _good(root)
    _broken(root)
    _clutter(root)
    return root


def picture(width: int = 5, height: int = 4, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png16(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint16]], colour: int) -> bytes:
    """A PNG of 16 bits a channel, which Pillow cannot write in colour. colour: 0 grey, 2 RGB."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return _png(header, zlib.compress(rows))


def _png(header: bytes, data: bytes) -> bytes:
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def rotated(path: Path) -> None:
    """Stored 16 wide and 8 high, to be shown 8 wide and 16 high; the left half is red, which then is the upper half."""
    image = Image.new("RGB", (16, 8), "blue")
    image.paste("red", (0, 0, 8, 8))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(path, exif=exif, quality=95)  # TIFF takes no notice of the quality


def _good(root: Path) -> None:
    grey16 = np.full((4, 5), 0x8000, np.uint16)
    picture(1, 1).save(root / "1x1.png")
    picture(20000, 2).save(root / "wide.png")
    Image.fromarray(grey16).save(root / "grey16.png")
    Image.fromarray(grey16).save(root / "grey16.tif")
    (root / "rgb16.png").write_bytes(png16(np.full((4, 5, 3), 0x80FF, np.uint16), 2))
    Image.fromarray(np.full((4, 5), 40000, np.int32)).save(root / "int32.tif")
    Image.fromarray(np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)).save(root / "float.tif")
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(root / "cmyk.jpg", quality=95)
    palette = Image.new("P", (5, 4), 1)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((0, 0), 0)
    palette.save(root / "palette.png", transparency=0)
    Image.new("LA", (5, 4), (0, 0)).save(root / "grey-alpha.png")
    Image.new("RGBA", (5, 4), (255, 0, 0, 128)).save(root / "rgba.png")
    Image.new("1", (5, 4), 1).save(root / "bilevel.png")
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "green", "blue")]
    frames[0].save(root / "animated.gif", save_all=True, append_images=frames[1:])
    frames[0].save(root / "animated.webp", save_all=True, append_images=frames[1:], lossless=True)
    rotated(root / "rotated.jpg")
    rotated(root / "rotated.tif")
    picture(seed=1).save(root / "wrong-ending.png", "JPEG")
    picture(seed=2).save(root / "picture.bmp")
    picture(seed=3).save(root / "UPPER.PNG", "PNG")
    picture(seed=4).save(root / "<img src=x onerror=alert(1)>.png")
    picture(seed=5).save(root / "new\nline.png")
    for number, folder in enumerate(("deep/er/and/deeper", "folder.png")):
        (root / folder).mkdir(parents=True)
        picture(seed=6 + number).save(root / folder / ("inside.png" if number else "a.png"))


def _broken(root: Path) -> None:
    picture(64, 64).save(root / "truncated.jpg")
    whole = (root / "truncated.jpg").read_bytes()
    (root / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "empty.png").touch()
    (root / "text.png").write_text("not an image at all\n")
    (root / "bomb.png").write_bytes(
        _png(struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0), zlib.compress(b"\0" * 99))
    )
    (root / "bad-data.png").write_bytes(_png(struct.pack(">IIBBBBB", 9, 9, 8, 2, 0, 0, 0), b"no zlib stream"))
    (root / "dangling.png").symlink_to("nowhere.png")
    (root / "self.png").symlink_to("self.png")


def _clutter(root: Path) -> None:
    """Loops, doubles, hidden files and what is no image."""
    (root / "deep" / "loop").symlink_to(root)
    (root / "again").symlink_to(root / "deep" / "er")
    (root / "a-link.png").symlink_to(root / "1x1.png")
    (root / ".hidden").mkdir()
    (root / "__MACOSX").mkdir()
    for name in (".hidden/a.png", "__MACOSX/a.png", ".dot.png"):
        picture().save(root / name)
    (root / "Thumbs.db").touch()
    for name in ("notes.txt", "deep/more.txt", "labels.csv", "README"):
        (root / name).write_text("words")
    try:
        picture(seed=8).save(os.path.join(root, STRAY))
    except OSError:
        return  # the file system takes only UTF-8
