"""Pictures as data addresses of JPEGs, which a page holds."""

from __future__ import annotations

import base64
import io

from PIL import Image


def jpeg_uri(image: Image.Image, *, widest: int, quality: int = 85) -> str:
    """Writes a picture, at most so many pixels wide or high, as the address of a JPEG."""
    rgb = image.convert("RGB")
    if rgb.width > widest:
        rgb = rgb.resize((widest, max(1, round(rgb.height * widest / rgb.width))))
    file = io.BytesIO()
    rgb.save(file, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
