"""Scripts in processes of their own, where every warning is an error and leaks are told."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CALM = """
import logging
logging.getLogger("asyncio").addFilter(lambda record: not record.getMessage().startswith("Executing "))
"""
"""Asyncio's debug mode, which `-X dev` turns on, complains of callbacks of 0.1 s: on a busy machine, of any."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a child that finds the package."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", **more}


def run_child(script: str, *arguments: str, **more: str) -> str:
    """Run a script under `-W error -X dev`, and give what it printed; it has to end well, and without complaint."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-W", "error", "-X", "dev", "-c", _CALM + textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,  # s; the test itself may take 300
        cwd=ROOT,
        env=environment(**more),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
