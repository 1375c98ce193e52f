import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AuthError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    JobRef,
    NotFoundError,
    NotSentError,
    ProtocolError,
    RejectedError,
    SessionClosedError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.cli.outcomes import ExitCode, Outcome, Result, described, exit_code, exit_code_of

REF = JobRef("docs", "job_1")


def of_create(error: AgentJobsError, outcome: CreateOutcome) -> Result:
    error.outcome = outcome
    return Result(1, "a", error=error)


def ended(status: str) -> Result:
    return Result(1, "a", REF, AgentJob("job_1", "docs", status))


RESULTS = {
    Outcome.COMPLETED: ended("completed"),
    Outcome.FAILED: ended("failed"),
    Outcome.ARCHIVED: ended("archived"),
    Outcome.REJECTED: of_create(RejectedError(400), CreateOutcome.REJECTED),
    Outcome.NOT_SENT: Result(1, "a"),
    Outcome.UNKNOWN: Result(1, "a", error=CreateOutcomeUnknownError("cut")),
    Outcome.TIMED_OUT: Result(1, "a", REF, error=WaitTimeoutError(REF, None, None, 1, 1.0)),
    Outcome.UNFINISHED: Result(1, "a", REF, AgentJob("job_1", "docs", "active"), TransportError("cut")),
}


@pytest.mark.parametrize("outcome", Outcome)
def test_outcome(outcome: Outcome) -> None:
    """Each outcome follows from the job, the ref and the error."""
    assert RESULTS[outcome].outcome is outcome


def test_outcome_of_foreign_errors() -> None:
    """A create that ended with an error which says nothing of its fate counts as unknown."""
    assert Result(1, "a", error=RuntimeError("bug")).outcome is Outcome.UNKNOWN
    assert Result(1, "a", error=TransportError("cut")).outcome is Outcome.UNKNOWN
    assert of_create(NotSentError("dns"), CreateOutcome.NOT_SENT).outcome is Outcome.NOT_SENT


def test_goes_on() -> None:
    """Only jobs that may still run are worth waiting for again; one that does not exist isn't."""
    assert {outcome for outcome, result in RESULTS.items() if result.goes_on} == {
        Outcome.TIMED_OUT,
        Outcome.UNFINISHED,
    }
    assert not Result(1, None, REF, error=NotFoundError(404)).goes_on


def test_stopped() -> None:
    """Stopped is what the session's closing ended, and what was never begun."""
    assert Result(1, None, REF, error=SessionClosedError("closed")).stopped
    assert [outcome for outcome, result in RESULTS.items() if result.stopped] == [Outcome.NOT_SENT]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["completed", "completed"], ExitCode.COMPLETED),
        (["completed", "failed"], ExitCode.FAILED),
        (["completed", "archived"], ExitCode.FAILED),
        (["completed", "rejected"], ExitCode.FAILED),
        (["failed", "not_sent"], ExitCode.UNFINISHED),
        (["failed", "unknown"], ExitCode.UNFINISHED),
        (["completed", "timed_out"], ExitCode.UNFINISHED),
        (["unfinished"], ExitCode.UNFINISHED),
    ],
)
def test_exit_code(outcomes: list[str], code: ExitCode) -> None:
    """All completed is 0, anything open 4, else 1."""
    assert exit_code(RESULTS[Outcome(outcome)] for outcome in outcomes) is code


def test_refused_key_counts_most() -> None:
    """One refused key makes the exit code 3."""
    refused = of_create(AuthError(401), CreateOutcome.REJECTED)
    assert exit_code([RESULTS[Outcome.UNKNOWN], refused]) is ExitCode.AUTHENTICATION


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInputError("x"), ExitCode.USAGE),
        (AuthError(403), ExitCode.AUTHENTICATION),
        (NotFoundError(404), ExitCode.UNFINISHED),
        (CreateOutcomeUnknownError("x"), ExitCode.UNFINISHED),
        (RuntimeError("x"), ExitCode.UNFINISHED),
    ],
)
def test_exit_code_of_an_error(error: Exception, code: ExitCode) -> None:
    """An error that ends a whole command has its exit code."""
    assert exit_code_of(error) is code


def test_described() -> None:
    """An error is one printable line; a foreign one is named."""
    assert described(RuntimeError("a\nb\x1b")) == r"RuntimeError: a\nb\x1b"
    assert described(TransportError("cut")) == "cut; a read may be tried again"
    assert described(ProtocolError("not_json", "HTML")) == "unusable answer (not_json): HTML; check --base-url"
    assert described(InvalidInputError("base_url: allow_insecure=True")) == "--base-url: --allow-insecure"
    assert described(NotFoundError(404, excerpt="base_url")).startswith("HTTP 404: base_url; check --base-url, the")
    closed = SessionClosedError("the session was closed meanwhile")
    assert described(closed) == "stopped"
    closed.outcome = CreateOutcome.NOT_SENT
    assert described(closed) == "stopped; nothing was sent"
