"""How far a create has come, and what outcome that leaves."""

from collections.abc import Callable

import pytest
from multidict import CIMultiDict

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    NotSentError,
    RateLimitedError,
)
from agentjobs_async._http.progress import Progress, WithheldError
from agentjobs_async._http.responses import Response


def head(status: int) -> Response:
    return Response(status, CIMultiDict(), b"")


def decode(response: Response) -> AgentJob | AgentJobsError:
    """Return a rejected create for 429, an unknown one for anything else."""
    if response.status != 429:
        return CreateOutcomeUnknownError("what now?", "response", response.status)
    error = RateLimitedError(429)
    error.outcome = CreateOutcome.REJECTED
    return error


def test_before_and_within_a_try() -> None:
    """Nothing is sent before a try starts; from there on, a byte may leave at any moment."""
    progress = Progress(decode)
    assert (progress.outcome, progress.tries) == (CreateOutcome.NOT_SENT, 0)
    progress.start_try()
    assert (progress.outcome, progress.tries) == (CreateOutcome.UNKNOWN, 1)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, CreateOutcome.UNKNOWN), (429, CreateOutcome.REJECTED), (500, CreateOutcome.UNKNOWN)],
)
def test_head(status: int, outcome: CreateOutcome) -> None:
    """The head of a refusal settles the outcome before its body is read; any other head leaves it open."""
    progress = Progress(decode)
    progress.start_try()
    progress.take_head(head(status))
    assert (progress.outcome, progress.status) == (outcome, status)


def test_refusal_is_kept_until_the_next_proof() -> None:
    """Between tries the last refusal counts; a try under way is unknown; a later proof replaces the refusal."""
    progress = Progress(decode)
    progress.start_try()
    progress.take_head(head(429))
    refusal = progress.refusal
    progress.end_try()
    assert (progress.outcome, progress.refusal) == (CreateOutcome.REJECTED, refusal)
    progress.start_try()
    assert (progress.outcome, progress.status, progress.tries) == (CreateOutcome.UNKNOWN, None, 2)
    progress.end_try(NotSentError("refused"))
    assert progress.outcome is CreateOutcome.NOT_SENT


def fault() -> bool:
    raise LookupError("before_send is broken")


@pytest.mark.parametrize("before_send", [lambda: False, fault])
def test_withheld(before_send: Callable[[], bool]) -> None:
    """A `before_send` that returns false or raises keeps the body from being read: nothing has left."""
    progress = Progress(decode, before_send)
    progress.start_try()
    with pytest.raises(WithheldError):
        progress.request_body(b"{}").read()
    assert progress.outcome is CreateOutcome.NOT_SENT


def test_allowed() -> None:
    """A `before_send` that returns true is called once, before the first byte of the body, which may leave then."""
    calls: list[CreateOutcome] = []

    def before_send() -> bool:
        calls.append(progress.outcome)
        return True

    progress = Progress(decode, before_send)
    progress.start_try()
    body = progress.request_body(b"{}")
    assert (body.read(1), body.read(1)) == (b"{", b"}")
    assert (calls, progress.outcome) == ([CreateOutcome.NOT_SENT], CreateOutcome.UNKNOWN)
