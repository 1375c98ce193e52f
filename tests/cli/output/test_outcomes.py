from agentjobs_async import (
    AuthError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    JobRef,
    NotFoundError,
    ProtocolError,
    RejectedError,
    SessionClosedError,
    TransportError,
)
from agentjobs_async.batch import State
from agentjobs_async.cli._output.outcomes import ExitCode, Outcome, described, exit_code
from agentjobs_async.cli._output.results import Result, outcomes_of
from tests.cli.checks import unexpected


def test_exit_code() -> None:
    """All completed is 0, anything open 4, else 1; one refused key makes it 3."""
    codes = {
        ("completed", "completed"): ExitCode.COMPLETED,
        ("completed", "failed"): ExitCode.FAILED,
        ("completed", "archived"): ExitCode.FAILED,
        ("completed", "rejected"): ExitCode.FAILED,
        ("completed", "refused"): ExitCode.FAILED,
        ("failed", "planned"): ExitCode.UNFINISHED,
        ("failed", "unknown"): ExitCode.UNFINISHED,
        ("completed", "timed_out"): ExitCode.UNFINISHED,
        ("active",): ExitCode.UNFINISHED,
    }
    assert unexpected(codes, lambda outcomes: exit_code([Outcome(outcome) for outcome in outcomes])) == {}
    assert exit_code([Outcome.UNKNOWN], AuthError(401)) is ExitCode.AUTHENTICATION


def test_settled_after_its_time_was_up() -> None:
    """An item whose time was up, and which was abandoned or ended since, counts as the journal has it."""
    late = Result(1, Outcome.TIMED_OUT, ref=JobRef("docs", "job_1"))
    assert outcomes_of({State.ABANDONED: 1}, [late]) == {Outcome.ABANDONED: 1}
    assert outcomes_of({State.ACTIVE: 2}, [late]) == {Outcome.ACTIVE: 1, Outcome.TIMED_OUT: 1}


def test_open_results() -> None:
    """A result is open if it can be resumed or has to be resolved."""
    assert {outcome for outcome in Outcome if outcome.is_unfinished} == {
        Outcome.PLANNED,
        Outcome.UNKNOWN,
        Outcome.TIMED_OUT,
        Outcome.ACTIVE,
        Outcome.SENDING,
    }


def test_exit_code_of_an_error() -> None:
    """An error that ends a whole command has its exit code."""
    codes = {
        InvalidInputError("x"): ExitCode.USAGE,
        AuthError(403): ExitCode.AUTHENTICATION,
        NotFoundError(404): ExitCode.UNFINISHED,
        CreateOutcomeUnknownError("x"): ExitCode.UNFINISHED,
        RuntimeError("x"): ExitCode.UNFINISHED,
    }
    assert unexpected(codes, lambda error: exit_code(error=error)) == {}


def test_exit_code_of_a_refused_create() -> None:
    """A create that the server refused counts as failed; beside an open job it counts less."""
    error = RejectedError(400)
    error.outcome = CreateOutcome.REJECTED
    assert exit_code(error=error) is ExitCode.FAILED
    assert exit_code([Outcome.UNKNOWN], error) is ExitCode.UNFINISHED


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
