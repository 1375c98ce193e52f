"""The measuring of all benchmarks: interleaved rounds, each in a process of its own; medians and ratios; tables.

Absolute times on a noisy machine mean nothing. So each candidate is measured once per round, in turn, in CPU time of
its own process, and compared with the base candidate of the same round.
"""

import asyncio
import json
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from platform import python_version
from resource import getpagesize
from statistics import median
from time import thread_time

Figures = dict[str, float]
"""The results of one run of one candidate, by the name of the measure."""


def arguments(description: str | None, rounds: int | None = None) -> ArgumentParser:
    """Return a parser with the options of every benchmark; `rounds` is `None` for one that does not measure in rounds."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to save all figures")
    parser.add_argument("--quick", action="store_true", help="one round of little: whether it works, no figures")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds (default: %(default)s)")
        parser.add_argument("--only", nargs="+", metavar="NAME", help="measure only these candidates (and the base)")
    parser.add_argument("--one", nargs="+", help=SUPPRESS)
    return parser


def parsed(parser: ArgumentParser, **quick: object) -> Namespace:
    """Return the options; `quick` are those that `--quick` sets, beside one round."""
    options = parser.parse_args()
    if options.quick:
        vars(options).update(quick | {"rounds": 1})
    return options


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

    def measure(self, candidates: Sequence[str], rounds: int, measured: Callable[[str], Figures]) -> None:
        """Measure each candidate in turn, round after round."""
        for _ in range(rounds):
            for name in candidates:
                self.add(name, measured(name))
        print(file=sys.stderr)

    def add(self, name: str, figures: Figures) -> None:
        """Add the results of one run of a candidate."""
        for what, value in figures.items():
            self._figures.setdefault(name, {}).setdefault(what, []).append(value)

    def median(self, name: str, what: str) -> float:
        """Return the median of a candidate's figures."""
        return median(self._figures[name][what])

    def ratio(self, name: str, what: str) -> float:
        """Return the median of the ratios to the base."""
        pairs = zip(self._figures[name][what], self._figures[self._base][what], strict=True)
        return median(own / max(base, 1e-12) for own, base in pairs)

    def save(self, options: Namespace) -> None:
        """Save all figures as JSON beside the options, if these name a file."""
        if options.json is not None:
            document = {"python": python_version(), "base": self._base, "figures": self._figures}
            document["options"] = {name: str(value) for name, value in vars(options).items()}
            options.json.write_text(json.dumps(document, indent=1) + "\n")


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
    """Return how much memory this process has in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


class Ticker:
    """Ticks every 10 ms; records how late the loop called it, and the CPU that the loop's thread used since the last tick."""

    EVERY_SECONDS = 0.01

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = self._busy = 0.0
        self._start_tick()

    def _start_tick(self) -> None:
        self._cpu, self._due = thread_time(), self._loop.time() + self.EVERY_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._late = max(self._late, self._loop.time() - self._due)
        self._busy = max(self._busy, thread_time() - self._cpu)
        self._start_tick()

    def stop(self) -> Figures:
        """Return the longest pause of the loop in seconds: by the clock, and by the CPU of its thread."""
        self._timer.cancel()
        return {"late": self._late, "busy": self._busy}
