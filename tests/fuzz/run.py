"""Fuzzes everything that is read from outside: `python -m tests.fuzz.run --cases 50000`, `make fuzz`.

Each case is drawn from (seed, kind, number) alone, so that a failure can be had again: `--kind image --only 1234`.
Cases run in processes of their own, some thousand in each: with a limit of memory, an alarm for each case, and a watch
for code that a file has brought along. A case passes if it is read, or refused as a person is told it: `UserError`, or
a sample that counts as unreadable.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from manyview.core.errors import UserError
from manyview.data.dataset import Unreadable
from tests.fuzz.kinds import SPRUNG, Kind, kinds

SECONDS, WAIT = 20, 300  # of computing for a case, and in all on a machine that has other things to do
MEMORY = 3 * 2**30  # that a process may take beyond what its imports did
CHUNK = 2500
STARTS_SOMETHING = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect")
Failure = tuple[str, int, str]


class Hang(BaseException):
    """A case has taken too long."""


def cases(kind: Kind, numbers: Iterable[int], seed: int, home: Path) -> tuple[Counter[str], list[Failure]]:
    """Runs cases of one kind in this process: how they ended, and those that should not have ended so."""
    started: list[str] = []
    watching = True
    sys.addaudithook(lambda event, _: started.append(event) if watching and event in STARTS_SOMETHING else None)
    previous = {each: signal.signal(each, _hang) for each in (signal.SIGALRM, signal.SIGPROF)}
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    for number in numbers:
        draw = random.Random(f"{seed} {kind.name} {number}")
        signal.alarm(WAIT)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind.read(kind.damage(draw))
            end = "read"
        except (UserError, OSError) as error:  # of the system's errors the command line says what file they are of
            told = isinstance(error, UserError) or error.filename is not None
            end = "refused" if told and str(error).strip() else f"line: {error!r:.80}"
        except Unreadable:
            end = "refused"
        except Hang:
            end = "hang"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            ours = [each for each in traceback.extract_tb(error.__traceback__) if "manyview/" in each.filename][-1:]
            places = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in [where, *ours])
            end = f"{type(error).__name__} at {places}: {str(error)[:100]!r}"
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if started or (home / SPRUNG).exists():
            end = f"CODE RUN {started}"
            started.clear()
            (home / SPRUNG).unlink(missing_ok=True)
        counts[end if end in ("read", "refused") else "failed"] += 1
        if end not in ("read", "refused"):
            failures.append((kind.name, number, end))
    watching = False
    for each, handler in previous.items():
        signal.signal(each, handler)
    return counts, failures


def _hang(number: int, frame: Any) -> None:
    raise Hang


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50_000, help="of all kinds together")
    parser.add_argument("--seconds", type=float, default=1800, help="after which no more are begun")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="one kind alone")
    parser.add_argument("--only", type=int, help="one case of it, in this process, with its traceback")
    parser.add_argument("--chunk", help=argparse.SUPPRESS)  # FIRST:END, in a process of its own
    given = parser.parse_args()
    if given.only is not None:
        return _again(given.kind, given.only, given.seed)
    if given.chunk is not None:
        first, end = map(int, given.chunk.split(":"))
        with tempfile.TemporaryDirectory() as home:
            _limit()
            print(json.dumps(cases(_kind(given.kind, home), range(first, end), given.seed, Path(home))))
        return 0
    return _all(given)


def _limit() -> None:
    faulthandler.enable()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _all(given: argparse.Namespace) -> int:
    names = [given.kind] if given.kind else _names()
    share, began = -(-given.cases // len(names)), time.monotonic()
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    failures: list[Failure] = []
    for first in range(0, share, CHUNK):
        for name in names:
            if time.monotonic() - began > given.seconds:
                continue
            end = min(first + CHUNK, share)
            words = ["--kind", name, "--seed", str(given.seed), "--chunk", f"{first}:{end}"]
            found, failed = _chunk(words, name, first)
            counts[name] += found
            failures += failed
            print(f"{name} {end}/{share}", "".join(f"\n  {each}" for each in failed[:5]), file=sys.stderr, flush=True)
    print(f"{'kind':<16}{'cases':>8}{'read':>8}{'refused':>9}{'failed':>8}")
    for name, found in counts.items():
        print(f"{name:<16}{found.total():>8}{found['read']:>8}{found['refused']:>9}{found['failed']:>8}")
    total = sum((each.total() for each in counts.values()), 0)
    print(f"{total:,} cases in {time.monotonic() - began:.0f} s, seed {given.seed}: {len(failures)} failed")
    seen: set[str] = set()
    for kind, number, end in failures:
        if (key := f"{kind} {end.partition(':')[0]} {end[:60]}") not in seen:
            seen.add(key)
            print(f"  --kind {kind} --only {number}  {end}")
    return 1 if failures else 0


def _chunk(words: list[str], name: str, first: int) -> tuple[Counter[str], list[Failure]]:
    command = [sys.executable, "-m", "tests.fuzz.run", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        counts, failures = json.loads(done.stdout.splitlines()[-1])
        return Counter(counts), [(kind, number, end) for kind, number, end in failures]
    except subprocess.TimeoutExpired:
        return Counter(failed=1), [(name, first, f"hang between {first} and {first + CHUNK}")]
    except (IndexError, ValueError):
        return Counter(failed=1), [(name, first, f"ended with {done.returncode}: {done.stderr[-800:]}")]


def _names() -> list[str]:
    with tempfile.TemporaryDirectory() as home:
        return [each.name for each in kinds(Path(home))]


def _kind(name: str, home: str) -> Kind:
    return next(each for each in kinds(Path(home)) if each.name == name)


def _again(kind: str, number: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as home:
        one = _kind(kind, home)
        case = one.damage(random.Random(f"{seed} {kind} {number}"))
        print(repr(case)[:2000])
        one.read(case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
