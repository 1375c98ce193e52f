"""What pickles does so by every protocol, and comes back as the value that it was."""

import pickle
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import has

import agentjobs_async
from agentjobs_async import batch, chat, durable, web
from agentjobs_async.batch.states import State
from tests.polled import ACTIVE, DONE, REF

ITEM: Final = batch.BatchItem("k", "Fix it", "docs", {"page": 1})
ROW: Final = batch.JournalRow("k", "Fix it", "docs", State.ACTIVE, "job_1", None, None, datetime.now(UTC), 1)
VALUES: Final[tuple[Any, ...]] = (
    agentjobs_async.Dialect(body={"input": {"text": "{prompt}"}}, statuses={"done": "completed"}),
    agentjobs_async.KeyRequested(changed=True, error=None),
    *(ACTIVE, REF, agentjobs_async.JobSource("repository", "main"), agentjobs_async.JobStatus.FAILED),
    *(agentjobs_async.CreateOutcome.UNKNOWN, agentjobs_async.History(), agentjobs_async.Estimate(1.0, 2.0)),
    *(agentjobs_async.HttpTimeouts(), agentjobs_async.PollBudget(), agentjobs_async.TrackerStats()),
    *(agentjobs_async.WaitResult(REF, DONE), agentjobs_async.RunStarted("docs", label="order-17")),
    *(agentjobs_async.RunEnded("docs", DONE, None, 1.0), agentjobs_async.CreateStarted("docs", "api.example.com")),
    *(agentjobs_async.JobCreated(ACTIVE, 0.1), agentjobs_async.JobPolled(DONE, 3), agentjobs_async.WaitStarted(REF)),
    *(agentjobs_async.JobChanged(DONE, ACTIVE), agentjobs_async.WaitEnded(REF, DONE, None, 3, 1.0)),
    *(ITEM, ROW, batch.BatchResult(ITEM, batch.Outcome.COMPLETED, DONE, None, REF, ROW), batch.Rate(1, 36.0)),
    *(batch.BatchStats(0, 0, None, {}, stopped=False), batch.ActiveItem("k", State.ACTIVE, 1.0, REF), batch.Where()),
    *(batch.Limits(), State.PLANNED, batch.Outcome.FAILED, durable.DurableEntry("k", State.ACTIVE, REF)),
    durable.DurableStats({State.PLANNED: 1}, 1),
    chat.Place(50, "U7", "1.5", thread=3),
    web.HttpAnswer(200, {}, {}),
)
BY_TEXT: Final = {"CreateFailed", "CreateRetried", "PollFailed"}  # they hold errors, which tests/test_errors.py pickles
BY_IDENTITY: Final = {"PollPolicy", "InvalidItems"}
"""What is equal to itself alone; the strategies of a policy do not pickle with each version of tenacity."""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values(protocol: int) -> None:
    """Every public value comes back equal, by every protocol."""
    twins = [pickle.loads(pickle.dumps(value, protocol)) for value in VALUES]  # noqa: S301 - our own bytes
    assert twins == list(VALUES)
    assert [type(twin) for twin in twins] == [type(value) for value in VALUES]


def test_all_values_are_there() -> None:
    """No public value is missing above."""
    public = {
        name: kind
        for module in (agentjobs_async, batch, chat, durable, web)
        for name in module.__all__
        if isinstance(kind := getattr(module, name), type) and has(kind)
    }
    assert set(public) - {type(value).__name__ for value in VALUES} - BY_TEXT - BY_IDENTITY == set()
