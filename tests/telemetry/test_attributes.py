"""What spans and metrics say of events."""

import asyncio

from agentjobs_async import RunEnded, WaitEnded
from agentjobs_async.errors import CreateOutcomeUnknownError, NotFoundError, TransportError
from agentjobs_async.models import AgentJob, JobStatus
from agentjobs_async.telemetry.attributes import end_attributes, error_attributes, wait_outcome
from tests.polled import REF

JOB = AgentJob("job 1", "docs", JobStatus.FAILED, pr_link="https://example.com/pull/1")


def test_wait_outcome() -> None:
    """A wait's outcome is one of a few words, whatever the service says."""
    ends: list[tuple[AgentJob | None, BaseException | None, str]] = [
        (JOB, None, "failed"),
        (AgentJob("j", "docs", "a word of the service"), None, "other"),
        (None, asyncio.CancelledError(), "cancelled"),
        (None, TransportError("reset"), "error"),
    ]
    events = [WaitEnded(REF, job, error, 1, 1.0) for job, error, _ in ends]
    assert [wait_outcome(event) for event in events] == [outcome for _, _, outcome in ends]
    assert {type(wait_outcome(event)) for event in events} == {str}
    told = [end_attributes(event, content=False)["agentjobs.wait.outcome"] for event in events]
    assert told == [outcome for *_, outcome in ends]


def test_link_of_a_job() -> None:
    """The link is content; id and status are plain text."""
    event = RunEnded("docs", JOB, None, 1.0)
    named = {"agentjobs.job.id": "docs~.job~201", "agentjobs.job.status": "failed"}
    assert end_attributes(event, content=False) == named
    assert end_attributes(event, content=True) == named | {"agentjobs.job.pr_link": "https://example.com/pull/1"}
    assert {type(value) for value in end_attributes(event, content=True).values()} == {str}
    assert end_attributes(RunEnded("docs", None, None, 1.0), content=True) == {}


def test_error_attributes() -> None:
    """An error is named by its class and the status of its response; a cancellation is none."""
    unknown = CreateOutcomeUnknownError("secret words", "response", 502)
    assert error_attributes(None) == error_attributes(asyncio.CancelledError()) == {}
    assert error_attributes(TransportError("secret words")) == {"error.type": "TransportError"}
    named = {"error.type": "NotFoundError", "http.response.status_code": 404}
    assert error_attributes(NotFoundError(404, "secret words")) == named
    named = {"error.type": "CreateOutcomeUnknownError", "http.response.status_code": 502}
    assert error_attributes(unknown) == named
