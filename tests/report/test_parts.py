from __future__ import annotations

from manyview.report.images import ThumbnailSheet
from manyview.report.parts import attempted, copyable, figure, left_out, section, sheet_style, signed_points, thumbnail

EVIL = '<b>"x'
SAFE = "&lt;b&gt;&quot;x"


def test_texts_of_every_part_are_escaped() -> None:
    sheet = ThumbnailSheet("data:", 5, 12, 32)
    parts = [
        section("map", EVIL, EVIL), figure(EVIL, EVIL, EVIL, source=EVIL), left_out(EVIL, EVIL), copyable(EVIL, EVIL),
        thumbnail(sheet, 7, 0, EVIL),
    ]  # fmt: skip
    for part in parts:
        assert EVIL not in part
        assert SAFE in part


def test_a_part_that_fails_is_named_with_the_reason() -> None:
    def fails() -> str:
        raise ValueError("two\n  lines <b>")

    assert attempted("The map", fails) == (
        '<p class="left-out"><strong>The map</strong> is left out: two lines &lt;b&gt;</p>'
    )
    assert attempted("The map", lambda: "drawn") == "drawn"


def test_a_thumbnail_is_placed_by_column_and_row() -> None:
    assert 'class="thumb sheet2 query" style="--x:2;--y:1"' in thumbnail(
        ThumbnailSheet("data:", 5, 12, 32), 7, 2, "a cat", "query"
    )


def test_small_thumbnails_stay_sharp() -> None:
    assert "pixelated" in sheet_style(ThumbnailSheet("data:", 5, 12, 32), 0)
    assert "pixelated" not in sheet_style(ThumbnailSheet("data:", 5, 12, 64), 0)


def test_differences_have_their_sign() -> None:
    assert (signed_points(0.1234), signed_points(-0.05), signed_points(0.0)) == ("+12.3", "\u22125.0", "+0.0")
