from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from manyview.evaluate.kept_scores import KeptScores
from manyview.features.feature_cache import FeatureCache
from tests.evaluate.pictures import task


def never() -> list[float]:
    raise AssertionError("computed again")


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    judged = replace(task(), cache=FeatureCache(tmp_path))
    assert KeptScores(judged, ["a", 1]).of("first", lambda: [0.5, 2.0]) == [0.5, 2.0]
    assert KeptScores(judged, ["a", 1]).of("first", never) == [0.5, 2.0]
    with pytest.raises(AssertionError):
        KeptScores(judged, ["a", 2]).of("first", never)
    assert len(judged.checkpoints) == 3
    for path in set(judged.checkpoints):
        path.unlink(missing_ok=True)  # as is done when the protocol's scores are written down
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_costs_its_scores_and_no_cache_keeps_none(tmp_path: Path) -> None:
    judged = replace(task(), cache=FeatureCache(tmp_path))
    kept = KeptScores(judged, ["a"])
    kept.of("first", lambda: [1.0])
    judged.checkpoints[0].write_bytes(b"nothing")
    assert KeptScores(judged, ["a"]).of("first", lambda: [2.0]) == [2.0]
    assert KeptScores(task(), ["a"]).of("first", lambda: [3.0]) == [3.0]
