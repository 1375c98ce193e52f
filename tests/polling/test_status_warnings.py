"""Statuses that this version does not know are logged, each once."""

import logging

import pytest

from agentjobs_async._polling.status_warnings import StatusWarnings
from agentjobs_async.models import AgentJob


def test_unknown_status(caplog: pytest.LogCaptureFixture) -> None:
    """Each unknown status is warned about once, on one line, with the job's token; a known one is not."""
    warnings = StatusWarnings()
    for status in ("paused\n\x07", "paused\n\x07", "failed"):
        warnings.check(AgentJob("job 1", "docs", status))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == r"job docs/job%201 has the unknown status paused\n\x07: taken as not ended"


def test_flood_of_statuses(caplog: pytest.LogCaptureFixture) -> None:
    """A server that makes up ever new statuses gets a hundred warnings, and no memory beyond them."""
    warnings = StatusWarnings()
    for number in range(1000):
        warnings.check(AgentJob("job", "docs", f"paused {number}"))
    assert len(caplog.records) == 100
