"""What end users are answered: every error has its meaning, and nothing of its text gets out."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from inspect import getdoc
from math import inf

import pytest

from agentjobs_async import AgentJob, AgentJobsError, CreateOutcome, JobRef, WaitTimeoutError, errors
from agentjobs_async.errors import (
    InvalidInputReason,
    JobFailedError,
    NotSentError,
    RateLimitedError,
    ServerError,
    SessionClosedError,
)
from agentjobs_async.web import http_answer
from tests.rows import failures
from tests.test_errors import SAMPLES

SECRET = "s3cret-key at https://internal.example"
JOB = AgentJob("job_1", "docs", "active", raw={"key": SECRET})


def kinds(base: type[AgentJobsError] = AgentJobsError) -> Iterator[type[AgentJobsError]]:
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from kinds(kind)


def documented() -> dict[str, tuple[int, str]]:
    """Return status and code of each error, from the table of the docstring."""
    rows = re.findall(r"^`(\w+)` +(\d+) +`(\w+)`", getdoc(http_answer) or "", re.MULTILINE)
    return {name: (int(status), code) for name, status, code in rows}


def test_every_error_is_documented() -> None:
    """The table has every error of the package, and no other."""
    assert set(documented()) == {kind.__name__ for kind in kinds()}


def test_answers_are_as_documented() -> None:
    """Each error is answered with the status and code of the table, as JSON."""

    def check(error: AgentJobsError, data: Mapping[str, object]) -> None:
        answer = http_answer(error)
        if data.get("reason") in {"key_taken", "no_such_key", "wrong_state"}:  # which `test_reasons` checks
            return
        assert (answer.status, answer.body["error"]) == documented()[type(error).__name__]
        assert json.loads(json.dumps(answer.body)) == answer.body

    assert failures(check, *SAMPLES) == {}


def test_samples_are_complete() -> None:
    """No error of the package is left out of the samples."""
    assert {type(error) for error, _ in SAMPLES} == set(kinds())


def test_no_text_gets_out() -> None:
    """Nothing of an error's own text, advice and arguments is told to an end user."""
    ref = JobRef("docs", "job_1")

    def check(kind: type[AgentJobsError]) -> None:
        error = kind.__new__(kind)
        vars(error).update(last_job=JOB, last_error=ValueError(SECRET), job=JOB, ref=ref, advice=SECRET)
        vars(error).update(excerpt=SECRET, reason=SECRET, status=503, retry_after=None)
        if isinstance(error, WaitTimeoutError):
            error.last_job = JOB
        error.args = (SECRET,)
        answer = http_answer(error)
        assert SECRET not in json.dumps([answer.body, answer.headers])
        assert "project before" not in answer.body["message"]
        assert answer.body["message"] == error.public_message

    assert failures(check, *kinds()) == {}


def test_reasons() -> None:
    """Each reason of a refused key has its status; a create without a key or a leave is no fault of the network."""
    reasons: tuple[InvalidInputReason, ...] = ("key_taken", "no_such_key", "wrong_state")
    answers = [http_answer(errors.InvalidInputError(SECRET, reason=reason)) for reason in reasons]
    assert [(answer.status, answer.body["error"], answer.body["message"]) for answer in answers] == [
        (422, "key_taken", "Another job has this key already."),
        (404, "not_found", "There is no such job."),
        (409, "wrong_state", "The job's state does not allow this."),
    ]
    not_sent = (NotSentError(SECRET, "key"), NotSentError(SECRET, "withheld"), NotSentError(SECRET, "certificate"))
    codes = [http_answer(error).body["error"] for error in not_sent]
    assert codes == ["unavailable", "unavailable", "service_unreachable"]


def test_limit_of_a_user() -> None:
    """A user who has too many jobs under way is told when to try again."""
    answer = http_answer(errors.UserLimitError(20))
    assert (answer.status, answer.headers) == (429, {"Retry-After": "60"})


def test_foreign_errors_are_internal() -> None:
    """An error that is not ours is answered with 500, without its text."""
    answer = http_answer(ValueError(SECRET))
    assert (answer.status, answer.body["error"], answer.headers) == (500, "internal", {})
    assert SECRET not in json.dumps(answer.body)


def test_own_subclass_means_what_its_base_does() -> None:
    """A user's subclass of an error is answered as that error."""

    class MovedError(errors.NotFoundError):
        pass

    assert http_answer(MovedError(404)).status == 404


def test_last_known_state() -> None:
    """A time-out is answered with the job as it was last seen, or null."""
    ref = JobRef("docs", "job_1")
    assert http_answer(WaitTimeoutError(ref, JOB, None, 3, 25.0)).body["job"] == JOB.to_dict()
    unseen = http_answer(WaitTimeoutError(ref, None, None, 3, 25.0))
    assert (unseen.status, unseen.body["error"], unseen.body["job"]) == (202, "not_ended", None)
    assert "continues" not in unseen.body["message"]  # no poll has shown that there is such a job
    failed = AgentJob("job_1", "docs", "failed")
    assert http_answer(JobFailedError(failed)).body["job"] == failed.to_dict()


def test_retry_after() -> None:
    """Whole seconds, never earlier than the service asked for; 5 where it named no time. A refused create can retry.

    So can a wait that timed out.
    """
    assert http_answer(WaitTimeoutError(JobRef("docs", "job_1"), JOB, None, 3, 25.0)).headers == {"Retry-After": "5"}
    assert http_answer(RateLimitedError(429, None, 7.2)).headers == {"Retry-After": "8"}
    assert http_answer(RateLimitedError(429, None, 0.0)).headers == {"Retry-After": "1"}
    assert http_answer(RateLimitedError(429)).headers == {"Retry-After": "5"}
    assert http_answer(RateLimitedError(429, None, inf)).headers == {"Retry-After": "5"}
    assert http_answer(SessionClosedError("closed")).headers == {"Retry-After": "5"}
    refused, unknown = ServerError(520), errors.CreateOutcomeUnknownError("HTTP 503", "response", 503, 30.0)
    refused.outcome = CreateOutcome.REJECTED
    told = [http_answer(error) for error in (ServerError(503, None, 30.0), refused, unknown)]
    assert [(answer.status, answer.headers.get("Retry-After")) for answer in told] == [
        *((503, "30"), (503, "5"), (502, None))  # the last one, sent again, could start a second agent
    ]


LOG = logging.getLogger("tests.web")


def logged(caplog: pytest.LogCaptureFixture, error: Exception, request_id: str | None = None) -> tuple[str, str]:
    """Return the level and the text of the one line that is logged of an error."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        http_answer(error, log=LOG, request_id=request_id)
    (record,) = caplog.records
    assert record.name == LOG.name
    return record.levelname, caplog.text


def test_log_levels(caplog: pytest.LogCaptureFixture) -> None:
    """What is no fault of the client is an error in the log, but for a restart; without a log, nothing is logged."""
    ref = JobRef("docs", "job_1")
    infos = [errors.UserLimitError(20), SessionClosedError("closed"), WaitTimeoutError(ref, JOB, None, 3, 25.0)]
    faults = [ServerError(503), errors.JournalError("full", "full"), AgentJobsError("a bug")]
    assert [logged(caplog, error)[0] for error in infos] == ["INFO"] * 3
    assert [logged(caplog, error)[0] for error in faults] == ["ERROR"] * 3
    caplog.clear()
    http_answer(ServerError(503))
    assert caplog.records == []


def test_log_of_our_errors(caplog: pytest.LogCaptureFixture) -> None:
    """An error of ours is one line with its code and text, without the service's words, which may quote a prompt."""
    refused = errors.RejectedError(422, None, None, "Fix the secret links")

    class TwoLinesError(errors.InvalidInputError):
        pass

    _, text = logged(caplog, refused)
    assert "request -: 502 service_refused: HTTP 422; the request was refused" in text
    assert "secret" not in text
    _, text = logged(caplog, TwoLinesError("one\ntwo"))
    assert text.endswith("request -: 400 invalid_request: one\\ntwo\n")
    assert "Traceback" not in text


def test_log_of_a_fault_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    """An error that is not ours is logged with its traceback."""
    try:
        dict[str, str]()["row"]
    except LookupError as error:
        level, text = logged(caplog, error, "17")
    assert level == "ERROR"
    assert "request '17': 500 internal\nTraceback" in text
    assert text.endswith("KeyError: 'row'\n")


def test_request_id_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A request's id, which a client has chosen, is cut, and can neither break a line nor look like another text."""
    for request_id, shown in (("x" * 500, f"'{'x' * 64}'"), ("a\nb: 200", "'a\\nb: 200'"), ("é", "'\\xe9'"), ("", "-")):
        _, text = logged(caplog, errors.UserLimitError(20), request_id)
        assert f"request {shown}: 429 too_many_jobs: " in text
        assert text.count("\n") == 1


def test_outcome_of_a_create() -> None:
    """The answer to a create says whether an agent may have been started."""
    error = NotSentError("refused")
    error.outcome = CreateOutcome.NOT_SENT
    assert http_answer(error).body["outcome"] == "not_sent"
    assert "outcome" not in http_answer(NotSentError("refused")).body
