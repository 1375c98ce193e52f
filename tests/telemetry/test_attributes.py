"""What spans and metrics say of events."""

import asyncio

import pytest

from agentjobs_async.errors import CreateOutcomeUnknownError, NotFoundError, TransportError
from agentjobs_async.models import AgentJob, JobStatus
from agentjobs_async.telemetry import Event, WaitEnded
from agentjobs_async.telemetry.attributes import (
    error_attributes,
    job_attributes,
    project_of,
    wait_attributes,
    wait_outcome,
)
from tests.polled import REF
from tests.telemetry.test_logging_hook import EXTRAS

JOB = AgentJob("job 1", "docs", JobStatus.FAILED, pr_link="https://example.com/pull/1")


@pytest.mark.parametrize("event", [event for event, _ in EXTRAS], ids=lambda event: type(event).__name__)
def test_project_of(event: Event) -> None:
    """Every event belongs to a project."""
    assert project_of(event) == "docs"


@pytest.mark.parametrize(
    ("job", "error", "outcome"),
    [
        (JOB, None, "failed"),
        (AgentJob("j", "docs", "a word of the service"), None, "other"),
        (None, asyncio.CancelledError(), "cancelled"),
        (None, TransportError("reset"), "error"),
    ],
)
def test_wait_outcome(job: AgentJob | None, error: BaseException | None, outcome: str) -> None:
    """A wait's outcome is one of a few words, whatever the service says."""
    event = WaitEnded(REF, job, error, 1, 1.0)
    assert wait_outcome(event) == outcome
    assert type(wait_outcome(event)) is str
    assert wait_attributes(event)["agentjobs.wait.outcome"] == outcome


def test_link_of_a_job() -> None:
    """The link is content; id and status are plain text."""
    named = {"agentjobs.job.id": "docs/job%201", "agentjobs.job.status": "failed"}
    assert job_attributes(JOB, content=False) == named
    assert job_attributes(JOB, content=True) == named | {"agentjobs.job.pr_link": "https://example.com/pull/1"}
    assert job_attributes(None, content=True) == {}
    assert {type(value) for value in job_attributes(JOB, content=True).values()} == {str}


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (None, {}),
        (asyncio.CancelledError(), {}),
        (TransportError("secret words"), {"error.type": "TransportError"}),
        (NotFoundError(404, "secret words"), {"error.type": "NotFoundError", "http.response.status_code": 404}),
        (
            CreateOutcomeUnknownError("secret words", "response", 502),
            {"error.type": "CreateOutcomeUnknownError", "http.response.status_code": 502},
        ),
    ],
)
def test_error_attributes(error: BaseException | None, attributes: dict[str, object]) -> None:
    """An error is named by its class and the status of its response; a cancellation is none."""
    assert error_attributes(error) == attributes
