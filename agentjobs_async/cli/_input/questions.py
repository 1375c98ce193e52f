"""Questions that a person is asked before a command does anything, where there is a terminal."""

import sys

from agentjobs_async.cli._output.columns import fitted


def confirmed(question: str) -> bool:
    """Return whether the answer to a question, asked on standard error, is yes; `False` without a terminal."""
    if not can_ask():
        return False
    sys.stderr.write(f"{fitted(question, sys.stderr)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def can_ask() -> bool:
    """Return whether there is a terminal to ask at."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
