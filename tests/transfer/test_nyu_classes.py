from collections import Counter

from manyview.transfer.nyu_classes import FURNITURE, LABELS, NAMED, STRUCTURES, TO_13, class_of_13, class_of_40


def test_every_label_has_one_class_and_every_class_a_label() -> None:
    found = Counter(class_of_40(label) for label in range(1, LABELS + 1))
    assert sorted(found) == list(range(1, 41))
    assert all(found[number] == 1 for number in range(1, 38))
    assert not STRUCTURES & FURNITURE
    assert not {*NAMED} & (STRUCTURES | FURNITURE)
    assert max(STRUCTURES | FURNITURE) <= LABELS


def test_known_labels_have_the_classes_of_the_published_tables() -> None:
    labels = {"wall": 21, "floor": 11, "dishwasher": 8, "garbage bin": 12, "book": 1, "lectern": 882, "mantle": 874}
    assert [class_of_40(label) for label in labels.values()] == [1, 2, 38, 39, 40, 39, 38]
    assert [class_of_13(label) for label in labels.values()] == [12, 5, 7, 6, 7, 6, 7]
    assert set(TO_13) == set(range(1, 14))
