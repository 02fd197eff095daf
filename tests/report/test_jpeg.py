from __future__ import annotations

import base64
import io

from PIL import Image

from manyview.report.jpeg import jpeg_uri


def test_a_wide_picture_is_made_smaller_and_a_small_one_stays() -> None:
    for size, expected in (((200, 100), (50, 25)), ((40, 60), (40, 60))):
        head, _, text = jpeg_uri(Image.new("RGBA", size), widest=50).partition(",")
        assert head == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(text))) as image:
            assert image.size == expected
