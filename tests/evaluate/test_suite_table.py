from __future__ import annotations

import pytest

from manyview.evaluate.suite import ELEVATER, SuiteScores
from manyview.evaluate.suite_table import markdown, mean, rows, upright, values, wins

TABLE_6 = {  # fine-tuning and linear probing of MoCov3 and CACR, in the order of the sets
    "MoCov3": (
        "73.7 70.3 17.4 2.3 45.6 60.0 13.5 7.2 27.6 16.5 50.8 43.5 18.1 65.7 77.1 50.9 50.7 58.2 11.2 25.7",
        "80.8 78.5 60.5 4.8 57.1 77.1 20.5 11.8 36.6 31.4 50.7 46.7 64.1 79.5 76.2 54.7 50.0 61.1 13.4 47.9",
    ),
    "CACR": (
        "84.8 67.6 24.3 2.5 51.2 73.6 23.0 21.4 17.0 23.7 51.8 45.4 44.0 81.1 79.4 58.4 51.2 49.1 10.8 69.0",
        "79.3 85.4 62.9 4.7 57.1 76.1 18.3 21.6 40.9 32.9 50.9 50.3 69.2 84.6 81.2 56.9 51.8 61.7 21.1 74.4",
    ),
}


def table_6(*models: str) -> SuiteScores:
    found = SuiteScores(ELEVATER)
    for model in models:
        tuned, probed = ([float(each) / 100 for each in line.split()] for line in TABLE_6[model])
        found.by_model[model] = {
            each.name: {"5-shot finetune": a, "5-shot finetune std": 0.0, "5-shot linear": b, "5-shot linear std": 0.0}
            for each, a, b in zip(ELEVATER, tuned, probed, strict=True)
        }
    return found


def test_the_papers_numbers_give_the_papers_table() -> None:
    head, *lines = rows(table_6("MoCov3", "CACR"))
    assert head[2:5] == ["Caltech101", "CIFAR10", "CIFAR100"]
    assert [line[:2] for line in lines] == [
        ["5-shot finetune", "MoCov3"], ["", "CACR"], ["", "Gains"], ["5-shot linear", "MoCov3"], ["", "CACR"],
        ["", "Gains"],
    ]  # fmt: skip
    assert [line[-2:] for line in lines] == [
        ["39.3", "4"], ["46.5", "16"], ["+7.2", ""], ["50.2", "4"], ["54.1", "15"], ["+3.9", ""],
    ]  # fmt: skip
    assert lines[2][2:6] == ["+11.1", "-2.7", "+6.9", "+0.2"]
    assert lines[5][6] == "+0.0"  # as many as each other: nobody's win


def test_gains_are_the_differences_of_what_is_printed() -> None:
    found = table_6("MoCov3", "CACR")
    found.by_model["MoCov3"]["caltech101"]["5-shot finetune"] = 0.73649  # 73.6
    found.by_model["CACR"]["caltech101"]["5-shot finetune"] = 0.84751  # 84.8
    _, before, after, gains, *_ = rows(found)
    assert [before[2], after[2], gains[2]] == ["73.6", "84.8", "+11.2"]


def test_the_mean_is_over_the_sets_that_all_have_and_the_others_are_named() -> None:
    found = table_6("MoCov3", "CACR")
    del found.by_model["CACR"]["voc2007"]
    found.missing["voc2007"] = "not found"
    assert len(found.scored) == 19
    assert mean(values(found, "MoCov3", "5-shot finetune")) == pytest.approx(40.0)
    for text in (markdown(found), upright(found)):
        assert "over 19 of 20 sets" in text
        assert "Left out: voc2007." in text
        assert "VOC2007" not in text


def test_one_encoder_has_no_gains_and_no_wins() -> None:
    text = upright(table_6("CACR"))
    assert "Gains" not in text
    assert "Wins" not in text
    assert text.splitlines()[2].split() == ["Caltech101", "84.8", "79.3"]


def test_a_win_is_a_higher_score() -> None:
    assert wins({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 1.0, "c": 4.0}) == 1
