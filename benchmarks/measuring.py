"""The measuring of all benchmarks: interleaved rounds, each in a process of its own; medians and ratios; tables.

Absolute times on a noisy machine mean nothing. So each candidate is measured once per round, in turn, in CPU time of
its own process, and compared with the base candidate of the same round.
"""

import asyncio
import json
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from platform import python_version
from resource import getpagesize
from statistics import median, quantiles
from time import process_time, thread_time

Figures = dict[str, float]
"""The results of one run of one candidate, by the name of the measure."""


def arguments(description: str | None, rounds: int | None = None) -> ArgumentParser:
    """Return a parser with the options of every benchmark; `rounds` is `None` for one that does not measure in rounds."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="where to save all figures")
    if rounds is None:
        return parser
    parser.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds (default: %(default)s)")
    parser.add_argument("--quick", dest="rounds", action="store_const", const=1, help="one round only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure only these candidates (and the base)")
    parser.add_argument("--one", nargs="+", help=SUPPRESS)
    return parser


def chosen(candidates: Iterable[str], base: str, options: Namespace) -> list[str]:
    """Return the candidates to be measured; the base is always among them."""
    return [name for name in candidates if options.only is None or name == base or name in options.only]


def in_own_process(*one: str) -> Figures:
    """Run this script in a process of its own that measures only `one`, and return the figures that it printed."""
    command = [sys.executable, *sys.argv, "--one", *one]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - this very script
    figures: Figures = json.loads(finished.stdout.splitlines()[-1])
    print(".", end="", file=sys.stderr, flush=True)
    return figures


class Rounds:
    """The figures of all candidates, one for each round; the ratios are of the same round."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._figures: dict[str, dict[str, list[float]]] = {}

    def take(self, candidates: Sequence[str], rounds: int, measure: Callable[[str], Figures]) -> None:
        """Measure each candidate in turn, round after round."""
        for _ in range(rounds):
            for name in candidates:
                self.add(name, measure(name))
        print(file=sys.stderr)

    def add(self, name: str, figures: Figures) -> None:
        """Add the results of one run of a candidate."""
        for what, value in figures.items():
            self._figures.setdefault(name, {}).setdefault(what, []).append(value)

    def median(self, name: str, what: str) -> float:
        """Return the median of a candidate's figures."""
        return median(self._figures[name][what])

    def ratio(self, name: str, what: str, base: str | None = None) -> float:
        """Return the median of the ratios to the base."""
        pairs = zip(self._figures[name][what], self._figures[base or self._base][what], strict=True)
        return median(own / max(other, 1e-12) for own, other in pairs)

    def save(self, path: Path | None, **conditions: object) -> None:
        """Save all figures as JSON, unless `path` is `None`."""
        if path is not None:
            document = {"python": python_version(), **conditions, "base": self._base, "figures": self._figures}
            path.write_text(json.dumps(document, indent=1) + "\n")


Call = Callable[[], Awaitable[object]]


async def cpu_of(call: Call, in_flight: int, calls: int) -> float:
    """Make `calls` calls, `in_flight` at a time, and return the CPU seconds of one."""

    async def worker() -> None:
        for _ in range(calls // in_flight):
            await call()

    before = process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return (process_time() - before) / (calls // in_flight * in_flight)


ALL = "all"
"""The name of a measure that takes all candidates in turn."""


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table, its columns aligned."""
    lines = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    print(f"\n{title} (Python {python_version()})\n")
    for number, line in enumerate(lines):
        first, *others = widths
        cells = [line[0].ljust(first), *(cell.rjust(width) for cell, width in zip(line[1:], others, strict=True))]
        print(f"| {' | '.join(cells)} |")
        if number == 0:
            rules = ["-" * first, *("-" * (width - 1) + ":" for width in others)]
            print(f"| {' | '.join(rules)} |")


def resident_bytes() -> int:
    """Return how much memory this process holds in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


class Ticker:
    """Ticks every 10 ms; records how late the loop called it, and the CPU used since the last tick: of all threads, its own."""

    EVERY = 0.01

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._late: list[float] = []
        self._busy: list[float] = []
        self._held: list[float] = []
        self._cpu = process_time()
        self._own = thread_time()
        self._due = loop.time() + self.EVERY
        self._timer = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        now, cpu, own = self._loop.time(), process_time(), thread_time()
        self._late.append(now - self._due)
        self._busy.append(cpu - self._cpu)
        self._held.append(own - self._own)
        self._cpu, self._own = cpu, own
        self._due = now + self.EVERY
        self._timer = self._loop.call_at(self._due, self._tick)

    def stop(self) -> Figures:
        """Return the pauses in seconds: by the clock, and by CPU time between two ticks, of all threads and of the loop's own."""
        self._timer.cancel()
        return {
            "late_p99": quantiles(self._late, n=100)[98],
            "late_worst": max(self._late),
            "busy_p99": quantiles(self._busy, n=100)[98],
            "busy_worst": max(self._busy),
            "held_worst": max(self._held),
        }
