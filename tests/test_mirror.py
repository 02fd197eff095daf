"""tests/ mirrors src/manyview one to one: `ROOM/test_FILE.py` tests `ROOM/FILE.py`."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "manyview"
OF_MANY_FILES = {  # tests that are about no single file, and what they are about
    "test_docs.py": "the documents",
    "test_imports.py": "the lines between rooms",
    "test_mirror.py": "the tree of tests",
    "test_package.py": "what pip installs",
    "encoders/test_fake_cuda.py": "encoders and heads, on a GPU that is not there",
    "fuzz/test_fuzz.py": "whatever is read from outside",
    "losses/test_fake_cuda.py": "all losses, on a GPU that is not there",
    "losses/test_gradients.py": "all losses",
    "losses/test_identities.py": "all losses: where one is a special case of another",
    "losses/test_memory.py": "all losses: their memory, seen from outside",
    "losses/test_precision.py": "all losses: half, single and double precision",
    "losses/test_properties.py": "all losses: what holds for any input",
    "methods/test_fake_cuda.py": "the whole floor on fake CUDA tensors",
    "methods/test_toys.py": "methods that no paper has, as whole runs",
    "report/test_browser.py": "style.css and script.js, in a browser",
    "training/test_many_views.py": "whole runs of several views: banks, queues, missing views",
    "training/test_kills.py": "whole runs that are killed, and go on",
    "training/test_without_negatives.py": "whole runs of methods without negatives",
    "transfer/test_several_processes.py": "whole transfers in several processes",
    "training/test_train_distributed.py": "whole runs in several processes",
}
WITHOUT_CODE = {"__init__.py", "__main__.py"}  # they import; a command line's test runs `python -m manyview`


def sources() -> set[str]:
    files = (file.relative_to(SOURCE) for file in SOURCE.rglob("*.py") if file.name not in WITHOUT_CODE)
    return {file.as_posix() for file in files}


def subjects() -> dict[str, str]:
    """The file that each test file is about, by its name."""
    files = (file.relative_to(TESTS) for file in TESTS.rglob("test_*.py"))
    return {file.as_posix(): file.with_name(file.name.removeprefix("test_")).as_posix() for file in files}


def test_every_file_has_its_test() -> None:
    assert sources() - set(subjects().values()) == set()


def test_every_test_has_its_file() -> None:
    alone = {test: source for test, source in subjects().items() if test not in OF_MANY_FILES}
    assert {test for test, source in alone.items() if source not in sources()} == set()


def test_what_is_said_to_be_about_no_single_file_is_there() -> None:
    assert OF_MANY_FILES.keys() <= subjects().keys()
    assert not {subjects()[test] for test in OF_MANY_FILES} & sources()
