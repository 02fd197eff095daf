"""The pieces of a column."""

from __future__ import annotations

import numpy as np

from manyview.embeddings.columns import Pieces


def test_the_first_piece_tells_what_all_are_like_and_is_still_among_them() -> None:
    pieces = Pieces.of(np.full((2, 3), number) for number in range(3))
    assert pieces.first.shape == (2, 3)
    assert [int(each[0, 0]) for each in pieces.every] == [0, 1, 2]
