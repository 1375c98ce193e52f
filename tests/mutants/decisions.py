"""Let mutmut change the pure decisions, one operator at a time, and print which changes the tests do not find.

.ci/run decisions                                   # all that `tool.mutmut` in pyproject.toml names
.ci/run decisions 'agentjobs_async.batch.limits.*'  # some of them, by mutmut's names
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.checkout import copied

_AGREED: Final = 0.8
"""The share of the changes that is found at least: the others have no effect, or only reword a message."""


def main(names: Sequence[str]) -> bool:
    """Change the decisions in a copy of the checkout; return whether enough of the changes were found."""
    with copied() as copy:
        done = _mutmut(copy, "run", *names)
        _mutmut(copy, "export-cicd-stats")
        stats = copy / "mutants" / "mutmut-cicd-stats.json"
        if done.returncode or not stats.is_file():
            print(done.stdout[-2000:], done.stderr[-2000:])  # noqa: T201 - a command
            return False
        left = survivors(_mutmut(copy, "results").stdout)
        for name in left:
            print(name, *changed_lines(_mutmut(copy, "show", name).stdout), sep="\n", flush=True)  # noqa: T201 - a command
        counts: dict[str, int] = json.loads(stats.read_text())
    print(", ".join(f"{count} {name}" for name, count in counts.items() if count))  # noqa: T201 - a command
    return is_enough(counts)


def survivors(results: str) -> list[str]:
    """Return the names of the changes that were not found, from the output of `mutmut results`."""
    pairs = [line.strip().rpartition(": ") for line in results.splitlines()]
    return [name for name, _, result in pairs if name and result in {"survived", "no tests", "suspicious"}]


def changed_lines(shown: str) -> list[str]:
    """Return what a change takes away and puts in its place, from the output of `mutmut show`."""
    return [line for line in shown.splitlines() if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}]


def is_enough(counts: dict[str, int]) -> bool:
    """Return whether as many changes were found as agreed, of those that were tried; a hanging test finds one."""
    found = counts["killed"] + counts["timeout"] + counts["segfault"]
    return found >= _AGREED * (found + counts["survived"] + counts["no_tests"] + counts["suspicious"])


def _mutmut(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    return subprocess.run(command, cwd=copy, check=False, capture_output=True, text=True)  # noqa: S603 - a fixed program


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
