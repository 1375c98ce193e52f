"""How far a create has come, and what outcome that leaves."""

from multidict import CIMultiDict

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    NotSentError,
    RateLimitedError,
)
from agentjobs_async._http.progress import Progress
from agentjobs_async._http.responses import Response


def decode(response: Response) -> AgentJob | AgentJobsError:
    """Return a rejected create for 429, an unknown one for anything else."""
    if response.status != 429:
        return CreateOutcomeUnknownError("what now?", "response", response.status)
    error = RateLimitedError(429)
    error.outcome = CreateOutcome.REJECTED
    return error


def test_outcome() -> None:
    """Before a try nothing is sent, within one nobody knows; between tries the last proof counts, as soon as known."""
    progress = Progress(decode)
    assert (progress.outcome, progress.tries) == (CreateOutcome.NOT_SENT, 0)
    progress.start_try()
    assert (progress.outcome, progress.tries) == (CreateOutcome.UNKNOWN, 1)
    for status, outcome in ((200, CreateOutcome.UNKNOWN), (500, CreateOutcome.UNKNOWN), (429, CreateOutcome.REJECTED)):
        progress.take_head(Response(status, CIMultiDict()))
        assert (progress.outcome, progress.status) == (outcome, status)
    refusal = progress.refusal
    progress.end_try()
    assert (progress.outcome, progress.refusal) == (CreateOutcome.REJECTED, refusal)
    progress.start_try()
    assert (progress.outcome, progress.status, progress.tries) == (CreateOutcome.UNKNOWN, None, 2)
    progress.end_try(NotSentError("refused"))
    assert progress.outcome is CreateOutcome.NOT_SENT


def test_before_send() -> None:
    """`before_send` is called once, before the first byte of the body, which may leave then."""
    calls: list[CreateOutcome] = []

    def before_send() -> bool:
        calls.append(progress.outcome)
        return True

    progress = Progress(decode, before_send)
    progress.start_try()
    body = progress.request_body(b"{}")
    assert (body.read(1), body.read(1)) == (b"{", b"}")
    assert (calls, progress.outcome) == ([CreateOutcome.NOT_SENT], CreateOutcome.UNKNOWN)
