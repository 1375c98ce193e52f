"""Questions that a person is asked before a command does anything, where there is a terminal."""

import sys

from agentjobs_async.cli._output.columns import fitted


def confirmed(question: str) -> bool:
    """Ask a question on standard error and return whether the answer is yes; no without a terminal."""
    if not can_ask():
        return False
    sys.stderr.write(f"{fitted(question, sys.stderr)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def can_ask() -> bool:
    """Return whether there is a terminal to ask at."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
