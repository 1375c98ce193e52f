"""A picture of the live view of a batch on a terminal of 80 columns: plots/live.svg, for the page on the command line.

It is the screen of a real run against the emulator, a minute after its start: `python benchmarks/picture_live.py`.
"""

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
import tempfile
import termios
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agentjobs_async.testing import Emulator, RandomScripts

WIDTH, HEIGHT = 80, 18
ITEMS = 240
RUN_SECONDS = 60
SPEED = 12  # jobs of 1 to 5 minutes take 5 to 25 s: as many are active as a terminal shows
COMMAND = "run --file tasks.jsonl --journal run.db --create-rate 2/s --yes"
FONT = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'


def screen(directory: Path) -> str:
    """Return the last view of a run that Ctrl-C ended after `RUN_SECONDS`, with its colours as escape sequences."""
    tasks = [{"key": f"page-{n}", "prompt": f"Document page {n}"} for n in range(1, ITEMS + 1)]
    (directory / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    with Emulator.in_thread(script=RandomScripts(failed=0.06, seed=3), speed=SPEED) as emulator:
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
    while (left := end - time.monotonic()) > 0:
        if not select.select([ours], [], [], left)[0]:
            break
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


def main() -> None:
    """Run the batch, and write the picture."""
    path = Path(__file__).parent / "plots" / "live.svg"
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        path.write_text(svg(screen(Path(directory))), encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
