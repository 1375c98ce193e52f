"""Open an issue for each promise that a search found broken and no open issue names: the nightly workflow's last step.

python -m tests.simulation.findings FILE COMMAND...

FILE has what COMMAND printed, and COMMAND --seed N explains a seed. `gh` opens the issues.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_FOUND: Final = re.compile(r"^(seed (\d+): ([^:\n]+):.*)$", re.MULTILINE)
_PATIENCE_SECONDS: Final = 1200.0  # of one explanation: shrinking a large world takes minutes
_SHOWN_LINES: Final = 60
_LONGEST_LINE: Final = 500  # characters: an issue has room for 65,536


def lines_by_promise(printed: str) -> dict[str, dict[str, str]]:
    """Return the seeds that broke each promise, each with the line that a search printed of it, in its order."""
    found: dict[str, dict[str, str]] = {}
    for line, seed, promise in _FOUND.findall(printed):
        found.setdefault(promise, {})[seed] = line
    return found


def title_of(promise: str) -> str:
    """Return the title of a promise's issue, by which an open one is known."""
    return f"Search: {promise} is broken"


def body_of(
    printed: Mapping[str, str], command: Sequence[str], explanation: str, environment: Mapping[str, str]
) -> str:
    """Return the text of an issue: how to see it again, what was printed, and the first lines of what happened then.

    Real processes may keep the promise when the seed is run again.
    """
    seeds = [*printed]
    said = [printed[seeds[0]], "", *explanation.splitlines()[:_SHOWN_LINES]]
    lines = [line[:_LONGEST_LINE].replace("```", "'''") for line in said]
    again = f"At {environment['GITHUB_SHA']}, `{' '.join(command)} --seed {seeds[0]}` explains it."
    others = f"Other seeds that break it: {', '.join(seeds[1:20])}"
    run = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format_map(environment)
    shown = "\n".join(["```text", *lines, "```"])
    return "\n\n".join([again, *([others] if seeds[1:] else []), shown, f"Found by {run}"]) + "\n"


def _explained(command: Sequence[str], seed: str) -> str:
    """Return what explains a seed, as far as it came in time."""
    whole = [*command, "--seed", seed]
    child = subprocess.Popen(whole, stdout=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603 - the search that found it
    try:
        return child.communicate(timeout=_PATIENCE_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # the command has children
        return child.communicate()[0]


def _gh(*arguments: str, text: str = "") -> str:
    command = ["gh", "issue", *arguments]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603 - fixed but for texts


def main(file: str, *command: str) -> None:
    """Open the issues of a file that a search printed."""
    titles = _gh("list", "--state", "open", "--limit", "1000", "--json", "title", "--jq", ".[].title").splitlines()
    for promise, printed in lines_by_promise(Path(file).read_text(encoding="utf-8")).items():
        if title_of(promise) not in titles:
            body = body_of(printed, command, _explained(command, next(iter(printed))), os.environ)
            _gh("create", "--title", title_of(promise), "--body-file", "-", text=body)


if __name__ == "__main__":
    main(*sys.argv[1:])
