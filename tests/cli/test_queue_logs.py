import logging
from contextlib import AbstractContextManager

import psycopg
import pytest

from agentjobs_async.cli.queue_logs import QueueLogs
from tests.cli.checks import Captured, screen

POOL = logging.getLogger("psycopg.pool")
QUEUE = logging.getLogger("procrastinate.worker")
GONE = psycopg.OperationalError("connection refused\nIs the server running?")


def shown() -> AbstractContextManager[None]:
    return QueueLogs(screen()).shown()


def fail(error: Exception) -> None:
    QUEUE.error("listener error", exc_info=error)


def test_an_outage(capsys: Captured) -> None:
    """Whatever the libraries log about an outage is one line, which says why and what the worker does."""
    with shown():
        POOL.warning("error connecting in %r: %s", "pool-1", GONE)
        POOL.warning("reconnection attempt in pool %r failed after %s sec", "pool-1", 300)
        fail(GONE)
        QUEUE.error("Side task heartbeat failed")
    told = capsys.readouterr()
    words = "The database can't be used (connection refused). The worker waits for it, and continues by itself."
    assert " ".join(told.err[len("12:34:56 ") :].split()) == words
    assert told.out == ""


def test_another_outage(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error a minute after the last one is of another outage, which has a line of its own."""
    counts = []
    with shown():
        for now in (0.0, 59.0, 118.0, 178.0):
            monkeypatch.setattr("agentjobs_async.cli.queue_logs.time.monotonic", lambda now=now: now)
            fail(GONE)
            counts.append(capsys.readouterr().err.count("The database"))
    assert counts == [1, 0, 0, 1]


def test_other_warnings(capsys: Captured) -> None:
    """Outside of an outage a warning of the queue is one line without a traceback; the pool's are left out."""
    with shown():
        POOL.warning("discarding closed connection: %s", "<a connection>")
        QUEUE.error("Task was not found", exc_info=ValueError("no such task"))
    assert capsys.readouterr().err[len("12:34:56 ") :] == "Task was not found\n"


def test_afterwards() -> None:
    """After the block the libraries log as before."""
    before = [(logger.propagate, list(logger.handlers)) for logger in (POOL, QUEUE.parent) if logger]
    with shown():
        pass
    assert [(logger.propagate, logger.handlers) for logger in (POOL, QUEUE.parent) if logger] == before
