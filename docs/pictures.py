"""Draw the pictures of the pages: live.svg, a batch on a terminal, and report.png, its report in a browser.

docs/cli.md shows the terminal, docs/reports.md and README.md the report. Both are of a real run on the emulator.

    pip install -e '.[test,browser,cli]'
    python docs/pictures.py
"""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.report import write_report
from agentjobs_async.testing import Emulator, RandomScripts

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.browser import launched, visit

PICTURES = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 80, 18
ITEMS = 240
RUN_SECONDS = 60
SCRIPTS = RandomScripts(failed=0.06, archived=0.02, seed=3)
SPEEDS = {"terminal": 12, "report": 60}  # jobs of 1 to 5 minutes take 5 to 25 s: as many are active as a terminal shows
COMMAND = "run --file prompts.jsonl --journal run.db --create-rate 2/s --yes"
FONT = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
PROMPTS = ("Document the endpoint", "Fix the broken links of page", "Raise the test coverage of module")
PROJECTS = ("docs", "billing", "search")


def screen(directory: Path) -> str:
    """Return the last view of a run that Ctrl-C ended after `RUN_SECONDS`, with its colours as escape sequences."""
    prompts = [{"key": f"page-{n}", "prompt": f"Document page {n}"} for n in range(1, ITEMS + 1)]
    (directory / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)), encoding="utf-8")
    with Emulator.in_thread(script=SCRIPTS, speed=SPEEDS["terminal"]) as emulator:
        emulator.call(emulator.inject("500", prompt="Document page 42"))
        written = terminal_output(directory, {**os.environ, **emulator.environment("docs"), "TERM": "xterm-256color"})
    last = re.split(r"(?:\x1b\[2K|\x1b\[1A)+", written)[-1]
    lines = last.replace("\r", "").splitlines()
    first = next(number for number, line in enumerate(lines) if re.match(r"(\x1b\[[0-9;]*m)*\d+ % in ", line))
    return "\n".join(lines[first:])


def terminal_output(directory: Path, environment: dict[str, str]) -> str:
    """Run the command on a terminal; return what it wrote in `RUN_SECONDS`, then end it by Ctrl-C."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT + 1, WIDTH, 0, 0))
    command = [sys.executable, "-m", "agentjobs_async", *COMMAND.split()]
    with subprocess.Popen(  # noqa: S603 - the command of this package
        command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=directory, env=environment
    ) as run:
        os.close(terminal)
        written = read_until(ours, time.monotonic() + RUN_SECONDS)
        run.send_signal(signal.SIGINT)
        read_until(ours, time.monotonic() + RUN_SECONDS)
        os.close(ours)
    return written.decode("utf-8", "replace")


def read_until(ours: int, end: float) -> bytes:
    """Return what is written to the terminal before `end`, or before its last writer closes it."""
    written = b""
    while (left := end - time.monotonic()) > 0 and select.select([ours], [], [], left)[0]:
        try:
            written += os.read(ours, 65536)
        except OSError:  # how Linux says that the last writer has closed it
            break
    return written


def svg(shown: str) -> str:
    """Return the picture of a screen. It names fonts of the reader's system, and fetches none."""
    console = Console(width=WIDTH, file=StringIO(), record=True, force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown), highlight=False)
    drawn = console.export_svg(title=f"agentjobs {COMMAND}", unique_id="live")
    drawn = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", drawn.replace("Fira Code, monospace", FONT), flags=re.MULTILINE)


async def run(journal: Journal) -> None:
    """Run items; some fail, some are rejected, some are unknown."""
    items = [BatchItem(f"page-{n}", f"{PROMPTS[n % 3]} {n}", PROJECTS[n % 3]) for n in range(1, ITEMS + 1)]
    async with Emulator(script=SCRIPTS, speed=SPEEDS["report"]) as emulator:
        for item in items[20::60]:
            await emulator.inject("500", prompt=item.prompt)
        for item in items[40::60]:
            await emulator.inject("422", prompt=item.prompt)
        settings = {"journal": journal, "max_active": 24, "unknown_for": 0}
        async with emulator.session() as session, run_batch(session, items, **settings) as results:
            async for _ in results:
                pass


async def draw_report(folder: Path) -> None:
    """Run a batch, write its report, and draw it."""
    page = folder / "report.html"
    async with Journal.open(folder / "report.db") as journal:
        await run(journal)
        with page.open("w", encoding="utf-8") as stream:
            await write_report(journal, stream)
    size = {"width": 1280, "height": 960}
    async with launched() as browser, visit(browser, page.as_uri(), viewport=size) as seen:
        await seen.page.wait_for_selector("html[data-ready]", state="attached")
        # Instead of the path of this machine.
        await seen.page.evaluate("document.querySelector('h1').textContent = '/srv/docs/run.db'")
        await seen.page.wait_for_timeout(500)
        await seen.page.screenshot(path=PICTURES / "report.png")


def main() -> None:
    """Draw both."""
    with TemporaryDirectory() as folder:
        (PICTURES / "live.svg").write_text(svg(screen(Path(folder))), encoding="utf-8")
        asyncio.run(draw_report(Path(folder)))


if __name__ == "__main__":
    main()
