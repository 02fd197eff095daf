"""UserError: which setting, what is wrong, and the section that it belongs to."""

from __future__ import annotations

import errno

from manyview.core.errors import UserError, hint, is_memory, nearest


def test_it_says_the_setting_and_what_is_wrong() -> None:
    error = UserError("temperature", "expected a number above 0, got 0")
    assert (str(error), error.setting) == ("temperature: expected a number above 0, got 0", "temperature")
    assert str(UserError(None, "there is no room")) == "there is no room"
    assert isinstance(error, ValueError)


def test_a_section_comes_before_the_setting_once() -> None:
    inner = UserError("layers", "expected 2 or 3, got 4").within("head")
    assert str(inner) == "head.layers: expected 2 or 3, got 4"
    assert str(inner.within("method")) == str(inner)  # a head inside a method is the head's
    assert str(UserError(None, "cannot be made").within("head")) == "head: cannot be made"


def test_what_kind_of_error_it_is_stays() -> None:
    class Full(UserError):
        exit_code = 1

    error = Full("disk", "is full").within("out")
    assert isinstance(error, Full)
    assert error.exit_code == 1


def test_the_nearest_name_is_the_one_most_like_it() -> None:
    assert nearest("mocov2", ["moco_v1", "moco_v2", "simclr"]) == "moco_v2"
    assert nearest("zzz", ["moco_v1"]) is None
    assert nearest("moco", ["moco_v1"], cutoff=0.9) is None
    assert nearest(3, ["moco_v1"]) is None


def test_a_hint_names_the_nearest_or_all() -> None:
    assert hint("dlc", ["dcl", "jcl"]) == "did you mean 'dcl'?"
    assert hint("zzz", ["dcl", "jcl"]) == "there are dcl, jcl"


def test_what_says_that_there_is_no_memory_left() -> None:
    full = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"
    assert all(is_memory(each) for each in (MemoryError(), RuntimeError(full), OSError(errno.ENOMEM, "no")))
    assert is_memory(RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB"))
    assert not any(is_memory(each) for each in (RuntimeError("shapes differ"), ValueError(full), OSError(2, "no")))
