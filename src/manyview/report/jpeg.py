"""Pictures as a page holds them."""

from __future__ import annotations

import base64
import io

from PIL import Image


def jpeg_uri(image: Image.Image, *, widest: int, quality: int = 85) -> str:
    """A picture of at most so many pixels across as a JPEG in an address."""
    rgb = image.convert("RGB")
    if rgb.width > widest:
        rgb = rgb.resize((widest, max(1, round(rgb.height * widest / rgb.width))))
    file = io.BytesIO()
    rgb.save(file, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
