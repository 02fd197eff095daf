from __future__ import annotations

from pathlib import Path

from manyview.transfer.records import ABOUT, About, EndedTraining, trainings, write_about


def test_the_trainings_of_a_result_are_found_again(tmp_path: Path) -> None:
    about = About("key", "trained", "rgb")
    for name, each in (("b", about), ("a", About("key", "untrained", "rgb")), ("c", About("other", "trained", ""))):
        (tmp_path / name).mkdir()
        write_about(tmp_path / name, each)
    found = trainings(tmp_path, "key")
    assert [each.folder.name for each in found] == ["a", "b"]
    assert found[1] == EndedTraining(tmp_path / "b", about)
    assert found[1].pictures is None
    (tmp_path / "b" / "predictions.png").touch()
    assert found[1].pictures == tmp_path / "b" / "predictions.png"


def test_a_damaged_one_is_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ABOUT).write_text("{")
    assert trainings(tmp_path, "key") == []
