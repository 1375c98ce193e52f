"""What the end of a row tells its callbacks, and the end users behind them."""

from datetime import UTC, datetime
from typing import Any

from agentjobs_async import AgentJobsError, NotFoundError
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.durable.entry import abandoned_error, end_of_row
from agentjobs_async.web import http_answer
from tests.rows import failures

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECRET = "s3cret"


def row(state: State, job_id: str | None = None, **times: Any) -> JournalRow:
    """Return a row that ended with an error that no end user may see."""
    return JournalRow("k", SECRET, "docs", state, job_id, None, SECRET, NOW, 1, **times)


def test_public_message() -> None:
    """An end without a response says what became of the job, and no more: withdrawn, given up, refused, or unknown."""

    def check(ended: JournalRow, told: str) -> None:
        error = end_of_row(ended, None)
        assert isinstance(error, AgentJobsError)
        assert SECRET in str(error)
        assert error.public_message.startswith(told)
        assert SECRET not in error.public_message
        if ended.state is State.ABANDONED:
            assert abandoned_error(ended).public_message == told
            assert (abandoned_error(ended).outcome, error.outcome) == ("abandoned", "abandoned")
            assert (http_answer(error).status, http_answer(error).body["error"]) == (410, "abandoned")

    withdrawn, given_up = "The job was withdrawn before it was started.", "The job was given up."
    rows = [
        (row(State.ABANDONED), withdrawn),
        (row(State.ABANDONED, sent_at=NOW), given_up),
        (row(State.ABANDONED, "job_1"), given_up),
        (row(State.REJECTED), "The job was refused, and not started."),
        (row(State.UNKNOWN, sent_at=NOW), "The job may have been started."),
        (row(State.FAILED, "job_1"), "Something went wrong."),
    ]
    assert failures(check, *rows) == {}


def test_with_a_response() -> None:
    """Where the journal has the response that ended a row, its error says what that means."""
    error = end_of_row(row(State.FAILED, "job_1"), NotFoundError(404))
    assert isinstance(error, NotFoundError)
    assert error.public_message == "There is no such job or project."
