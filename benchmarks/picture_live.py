"""A picture of the live view of a batch on a terminal of 80 columns: plots/live.svg, for the README.

The figures are made up; the code that draws them is that of the live view.
"""

import re
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agentjobs_async import AgentJob, JobPolled, JobRef
from agentjobs_async.batch import ActiveItem, BatchStats, State
from agentjobs_async.cli._output.live import PollCounts, View, live_lines
from agentjobs_async.cli.estimates import RunEstimate

WIDTH, HEIGHT = 80, 18
TITLE = "agentjobs run --file tasks.jsonl --journal run.db --create-rate 100/h"
FONT = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
COUNTS = {State.PLANNED: 3401, State.CREATED: 20, State.COMPLETED: 561, State.FAILED: 6, State.ARCHIVED: 10}


def scene(polls: PollCounts) -> View:
    """Return a view of made-up figures, and record the polls of its jobs in `polls`."""
    active = []
    for number in range(16):
        ref = JobRef("docs", f"job_{number}")
        age = 1900 - 117.0 * number
        link = f"https://code.example/acme/docs/pull/{512 + number}" if number in {0, 2, 3} else None
        polls(JobPolled(AgentJob(ref.job_id, ref.project_id, "active", pr_link=link), int(age / 14) + 1))
        active.append(ActiveItem(f"page-{579 + number:04}", State.CREATED, age, ref, f"Document page {579 + number}"))
    stats = BatchStats(waiting=4, active=len(active), next_create=31.0, outcomes={}, stopped=False)
    counts = dict.fromkeys(State, 0) | COUNTS | {State.UNKNOWN: 2}
    return View(
        counts,
        stats=stats,
        active=active,
        elapsed=20_400.0,
        estimate=RunEstimate(3400 * 36 + 31.0, "100/h decides"),
        job_seconds=1090.0,
        now=time.time(),
    )


def svg() -> str:
    """Return the picture. It names fonts of the reader's system, and fetches none."""
    polls = PollCounts()
    console = Console(width=WIDTH, file=StringIO(), record=True, force_terminal=True, color_system="truecolor")
    for line in live_lines(scene(polls), polls, WIDTH, HEIGHT):
        parts = [(part, "") if isinstance(part, str) else part for part in line]
        console.print(Text.assemble(*parts), highlight=False)
    drawn = console.export_svg(title=TITLE, unique_id="live")
    drawn = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", drawn.replace("Fira Code, monospace", FONT), flags=re.MULTILINE)


def main() -> None:
    """Write the picture."""
    path = Path(__file__).parent / "plots" / "live.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(svg(), encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
