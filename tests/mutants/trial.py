"""The trial of one fault: put into a copy of the checkout, searched by simulated worlds, and tested by its room."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.checkout import ROOT, copied
from tests.mutants.mutant import Mutant

_FIRST_SEED: Final = 1  # of all trials, so that they can be repeated
_LONGEST_WORLD_SECONDS: Final = 120.0  # of CPU time; the longest without a fault takes a tenth of that
_LONGEST_SECONDS: Final = 3600.0  # of a hunt or a room, each of which takes a minute or two on a quiet machine
_LONGEST_TEST_SECONDS: Final = 120.0  # the slowest takes a fifth of that; a machine may stall
_ENDLESS: Final = "a world never ends"
_FOUND: Final = re.compile(r"(\d+) (\S+) (.*)")
"""What a hunt prints: the seed, the seconds of CPU time, and the promise."""

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
"""A line of the summary: after the level of a captured line of a log, which may be `ERROR`, come several spaces."""


@frozen
class Verdict:
    """What found a fault.

    Attributes:
        name: The fault's.
        search: The world that broke a promise, after how many seconds of CPU time, and which; `None` where none did.
        test: The first test that failed; `None` where none did.
    """

    name: str
    search: str | None
    test: str | None

    @property
    def is_found(self) -> bool:
        """Whether anything found it."""
        return self.search is not None or self.test is not None

    def __str__(self) -> str:
        found = [f"search ({self.search})" if self.search else "", f"test ({self.test})" if self.test else ""]
        return f"{self.name}: found by {' and by '.join(filter(None, found)) or 'NONE'}"


def tried(mutant: Mutant, seconds: float) -> Verdict:
    """Return what finds a fault: `seconds` of worlds, none for 0, and the tests of its room.

    Raises:
        RuntimeError: The worlds or the tests can't run, which says nothing of the fault.
    """
    with copied() as copy:
        mutant.put_into(copy)
        return Verdict(mutant.name, _searched(copy, seconds), _tested(copy, mutant.places))


def _searched(copy: Path, seconds: float) -> str | None:
    """Return the first world that breaks a promise, unless the same seed breaks one without the fault, too."""
    first, left = _FIRST_SEED, seconds
    while left > 0:
        try:
            done = _hunted(copy, first, left)
        except subprocess.TimeoutExpired:
            return _ENDLESS
        if done.returncode == -signal.SIGPROF:
            return _ENDLESS
        if not done.returncode:
            return None
        if not (found := _FOUND.match(done.stdout)):
            raise RuntimeError(f"worlds can't run: {_last_line(done.stderr)}")
        seed, spent, promise = int(found[1]), float(found[2]), found[3]
        if not _hunted(ROOT, seed, seconds, worlds=1).returncode:
            return f"seed {seed}, after {seconds - left + spent:.0f} s: {promise}"
        first, left = seed + 1, left - spent
    return None


def _hunted(checkout: Path, first: int, seconds: float, worlds: int | None = None) -> subprocess.CompletedProcess[str]:
    bound = [] if worlds is None else [f"--worlds={worlds}"]
    longest = f"--longest={_LONGEST_WORLD_SECONDS}"
    return _run(checkout, "tests.mutants.hunt", f"--first={first}", f"--seconds={seconds}", longest, *bound)


def _tested(copy: Path, places: tuple[str, ...]) -> str | None:
    """Return the first test that fails, unless it fails without the fault, too."""
    deselected: list[str] = []
    while True:
        try:
            done = _pytest(copy, *places, *(f"--deselect={test}" for test in deselected))
        except subprocess.TimeoutExpired:
            return "the tests hang"
        if not done.returncode:
            return None
        failed = first_failed(done.stdout)
        if failed is None or "::" not in failed:
            raise RuntimeError(f"{failed or 'the tests'} can't run: {_last_line(done.stdout + done.stderr)}")
        if not _pytest(ROOT, failed).returncode:
            return failed
        deselected.append(failed)


def first_failed(output: str) -> str | None:
    """Return the test or the file that the summary of pytest names first as failed; `None` without one."""
    found = _FAILED.search(output)
    return None if found is None else found[1]


def _pytest(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", f"--timeout={_LONGEST_TEST_SECONDS:.0f}")
    return _run(checkout, "pytest", *settings, *arguments)


def _run(checkout: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of a checkout: its own package comes before an installed one, in children as well.

    Coverage is not measured: a copy is gone before the report reads its lines.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
    environment = {**kept, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(  # noqa: S603 - this Python, and a module of the checkout
        [sys.executable, "-m", module, *arguments],
        cwd=checkout,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
    )


def _last_line(output: str) -> str:
    return next(iter(reversed(output.strip().splitlines())), "it said nothing")


def summary(verdicts: Iterable[Verdict]) -> str:
    """Return in words how many faults were found by what, and the names of those that nothing found."""
    given = list(verdicts)
    by_search = sum(one.search is not None for one in given)
    by_tests = sum(one.test is not None for one in given)
    both = sum(one.search is not None and one.test is not None for one in given)
    none = [one.name for one in given if not one.is_found]
    figures = f"{len(given)} faults: {by_search} found by search, {by_tests} by tests, {both} of these by both"
    return ": ".join([f"{figures}; {len(none)} by none", *([", ".join(none)] if none else [])])
