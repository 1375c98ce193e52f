"""The tree of errors, and what each carries, says and keeps through pickling."""

import copy
import math
import pickle
import re
from datetime import UTC, datetime
from inspect import getdoc
from typing import Any

import pytest

from agentjobs_async import errors
from agentjobs_async._polling.reading import with_ref
from agentjobs_async.errors import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    JobFailedError,
    JournalError,
    NotFoundError,
    NotSentError,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ResponseError,
    ServerError,
    SessionClosedError,
    TransportError,
    UserLimitError,
    WaitTimeoutError,
)
from agentjobs_async.models import AgentJob, JobRef
from tests.rows import failures

REF = JobRef("docs", "job 1")
JOB = AgentJob("job 1", "docs", "active", raw={"id": "job 1"})
RESPONSES = [ResponseError, AuthError, NotFoundError, RateLimitedError, RejectedError, ServerError]

# Each error made by position, with the data that it must carry and keep.
SAMPLES: list[tuple[AgentJobsError, dict[str, Any]]] = [
    (AgentJobsError("broke"), {"outcome": None}),
    (AgentJobsError("broke", public_message="It was given up."), {"public_message": "It was given up."}),
    (InvalidInputError("timeout must be above 0"), {"reason": None}),
    (InvalidInputError("of another prompt", reason="key_taken"), {"reason": "key_taken"}),
    (UserLimitError(20), {"most_open": 20, "retry_after": 60.0}),
    (SessionClosedError("the session is closed"), {}),
    (NotSentError("refused"), {"reason": "connect"}),
    (NotSentError("no such name", "dns"), {"reason": "dns"}),
    (TransportError("reset"), {}),
    (CreateOutcomeUnknownError("it broke"), {"outcome": CreateOutcome.UNKNOWN, "phase": "request", "status": None}),
    (CreateOutcomeUnknownError("HTTP 500", "response", 500), {"phase": "response", "status": 500}),
    (CreateOutcomeUnknownError("HTTP 503", "response", 503, 30.0), {"status": 503, "retry_after": 30.0}),
    (
        CreateOutcomeUnknownError("it broke", project_id="docs", sent_at=datetime(2025, 3, 3, tzinfo=UTC)),
        {"project_id": "docs", "sent_at": datetime(2025, 3, 3, tzinfo=UTC)},
    ),
    *(
        (kind(499, "r-1", 7.5, "no"), {"status": 499, "request_id": "r-1", "retry_after": 7.5, "excerpt": "no"})
        for kind in RESPONSES
    ),
    (ResponseError(418), {"status": 418, "request_id": None, "retry_after": None, "excerpt": ""}),
    (ProtocolError("not_json", "it is HTML", 3.0), {"reason": "not_json", "retry_after": 3.0}),
    (
        WaitTimeoutError(REF, JOB, TransportError("reset"), 4, 1.5),
        {"ref": REF, "last_job": JOB, "polls": 4, "elapsed": 1.5},
    ),
    (WaitTimeoutError(REF, None, None, 0, 0.5), {"last_job": None, "last_error": None, "polls": 0}),
    (JobFailedError(JOB), {"job": JOB}),
    (JournalError("in use", "locked"), {"reason": "locked"}),
]


def pickled(error: AgentJobsError) -> AgentJobsError:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert isinstance(again, AgentJobsError)
    return again


def test_keeps_its_data() -> None:
    """Every error carries its data, and keeps it, its words and a create's outcome through pickling and copying."""

    def check(error: AgentJobsError, data: dict[str, Any]) -> None:
        own = error.outcome
        error.outcome = own or CreateOutcome.NOT_SENT
        expected = data | {"outcome": error.outcome}
        for twin in (pickled(error), copy.copy(error), copy.deepcopy(error)):
            assert type(twin) is type(error)
            assert str(twin) == str(error)
            assert twin.args == error.args
            assert vars(twin).keys() == vars(error).keys()
            assert {name: getattr(twin, name) for name in expected} == expected
        error.outcome = own

    assert failures(check, *SAMPLES) == {}


REFUSED_CREATE = ServerError(520)
REFUSED_CREATE.outcome = CreateOutcome.REJECTED
UNAVAILABLE = "Jobs cannot be handled at the moment. Try again."
PUBLIC: list[tuple[AgentJobsError, str]] = [
    (AgentJobsError("broke"), "Something went wrong."),
    (AgentJobsError("broke", public_message="It was given up."), "It was given up."),
    (InvalidInputError("s3cret is no key"), "The request is not valid."),
    (InvalidInputError("'s3cret' is taken", reason="key_taken"), "Another job has this key already."),
    (InvalidInputError("'s3cret' is the key of no job", reason="no_such_key"), "There is no such job."),
    (InvalidInputError("s3cret is active", reason="wrong_state"), "The job's state does not allow this."),
    (UserLimitError(20), "You have as many jobs under way as you may. Try again when one has ended."),
    (NotSentError("refused", "refused"), "The agent service cannot be reached. Try again."),
    (NotSentError("not trusted", "certificate"), "The agent service cannot be reached."),
    (NotSentError("api_key raised", "key"), UNAVAILABLE),
    (NotSentError("before_send returned false", "withheld"), UNAVAILABLE),
    (TransportError("reset"), "The agent service did not answer as expected."),
    (ServerError(500), "The agent service did not answer as expected."),
    (ServerError(503), "The agent service did not answer as expected."),
    (ServerError(503, None, 30.0), UNAVAILABLE),
    (REFUSED_CREATE, UNAVAILABLE),
    (ProtocolError("not_json", "it is HTML"), "The agent service did not answer as expected."),
    (AuthError(401, None, None, "s3cret"), "The agent service refused the request."),
    (RejectedError(422), "The agent service refused the request."),
    (RateLimitedError(429), "Too many requests. Try again later."),
    (
        SessionClosedError("closed"),
        "The service is restarting. A job continues: wait for it again by its token or key.",
    ),
    (NotFoundError(404), "There is no such job or project."),
    (CreateOutcomeUnknownError("it broke"), "The job may have been started. Look for it before you start it again."),
    (WaitTimeoutError(REF, JOB, None, 4, 1.5), "The job continues. Ask again later."),
    (WaitTimeoutError(REF, None, None, 4, 1.5), "Nothing is known of the job yet. Ask again later."),
    (JobFailedError(JOB), "The agent could not complete the job."),
    (JournalError("in use", "locked"), UNAVAILABLE),
]


def test_public_message() -> None:
    """What an end user is told follows from what happened, survives pickling, and is no text of the error's own."""

    def check(error: AgentJobsError, told: str) -> None:
        assert (error.public_message, pickled(error).public_message) == (told, told)

    assert failures(check, *PUBLIC) == {}
    assert [error for error, _ in SAMPLES if error.message in error.public_message or error.ref] == [
        error for error, _ in SAMPLES if isinstance(error, WaitTimeoutError)
    ]


def test_message_of_a_limit() -> None:
    """The message of a user's limit names the number of jobs, in words that fit one of them as well."""
    messages = [UserLimitError(number).message for number in (1, 20)]
    assert messages == [f"the user has {jobs} under way, and may have no more" for jobs in ("1 job", "20 jobs")]


def test_public_message_of_own_subclass() -> None:
    """A user's subclass tells what its base does, whatever arguments it has."""

    class MineError(NotFoundError):
        def __init__(self, name: str) -> None:
            super().__init__(404, None, None, name)

    assert MineError("s3cret").public_message == NotFoundError(404).public_message


class Unpicklable(Exception):  # noqa: N818 - stands for a foreign exception of any name
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.held = lambda: code


def test_last_error() -> None:
    """A wait's timeout pickles whatever error of a user's it holds, keeping at least its words."""
    for foreign in (Unpicklable(code=7), ValueError(lambda: None)):
        twin = pickled(WaitTimeoutError(REF, JOB, foreign, 1, 2.0))
        assert isinstance(twin, WaitTimeoutError)
        assert type(twin.last_error) is AgentJobsError
        assert str(twin.last_error) == f"{type(foreign).__name__}: {foreign}"
        assert twin.last_job == JOB
    twin = pickled(WaitTimeoutError(REF, None, ServerError(503, "r", 2.0, "busy"), 1, 2.0))
    assert isinstance(twin, WaitTimeoutError)
    assert isinstance(twin.last_error, ServerError)
    assert (twin.last_error.status, twin.last_error.retry_after) == (503, 2.0)


def test_names_its_job() -> None:
    """An error that came of a read or a wait names the job first, then what happened, then what to do."""
    error = NotFoundError(404, "r-1", None, "no such job")
    assert str(error) == f"HTTP 404: no such job; request id r-1; {error.advice}"
    assert with_ref(error, REF) is error
    assert str(error) == f"job docs~.job~201: HTTP 404: no such job; request id r-1; {error.advice}"
    assert with_ref(error, JobRef("docs", "other")).ref == REF
    assert pickled(error).ref == REF
    foreign = ValueError("mine")
    assert with_ref(foreign, REF) is foreign
    assert not hasattr(foreign, "ref")


def test_one_line() -> None:
    """Every message is one printable line that says something."""
    errors = [
        *(error for error, _ in SAMPLES),
        WaitTimeoutError(REF, None, ValueError("two\nlines\x1b[31m"), 1, 1.0),
        WaitTimeoutError(REF, AgentJob("job", "docs", "odd\nstatus\x07"), None, 1, 1.0),
    ]
    assert [repr(error) for error in errors if not str(error) or not str(error).isprintable()] == []


TREE: dict[type[AgentJobsError], tuple[type, ...]] = {
    AgentJobsError: (Exception,),
    InvalidInputError: (AgentJobsError, ValueError),
    UserLimitError: (AgentJobsError,),
    SessionClosedError: (AgentJobsError, RuntimeError),
    NotSentError: (AgentJobsError, ConnectionError),
    TransportError: (AgentJobsError, ConnectionError),
    CreateOutcomeUnknownError: (AgentJobsError,),
    ResponseError: (AgentJobsError,),
    **dict.fromkeys(RESPONSES[1:], (ResponseError,)),
    ProtocolError: (AgentJobsError,),
    WaitTimeoutError: (AgentJobsError, TimeoutError),
    JobFailedError: (AgentJobsError,),
    JournalError: (AgentJobsError,),
}


def test_tree() -> None:
    """Each error has exactly the bases that the tree draws, the built-in ones included."""
    assert {kind: kind.__bases__ for kind in TREE} == TREE


def test_drawing_is_complete() -> None:
    """The tree at the module's top names every error of the module, with its built-in base."""
    drawn = dict(re.findall(r"(\w+Error)(?: \((\w+)\))?", getdoc(errors) or ""))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AgentJobsError)]
    assert set(drawn) >= {kind.__name__ for kind in kinds}
    for kind in kinds:
        builtin = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception]
        assert drawn[kind.__name__] == "".join(builtin)


def test_error_of_a_status() -> None:
    """A status has the class of error that a session makes of it; one that is no error's is refused."""
    found = {
        status: ResponseError.of_status(status, "r-1", 2.0, "no") for status in (301, 401, 403, 404, 410, 422, 429)
    }
    kinds = (RejectedError, AuthError, AuthError, NotFoundError, NotFoundError, RejectedError, RateLimitedError)
    assert tuple(map(type, found.values())) == kinds
    assert {type(ResponseError.of_status(status)) for status in (500, 503, 599)} == {ServerError}
    assert str(found[404]) == str(NotFoundError(404, "r-1", 2.0, "no"))
    for status in (200, 299, 600, 0):
        with pytest.raises(InvalidInputError, match="from 300 to 599"):
            ResponseError.of_status(status)
    wrong: list[Any] = ["7", "Wed, 21 Oct 2015 07:28:00 GMT", -1, math.nan, ()]  # headers as they are, among them
    for wish in wrong:
        with pytest.raises(InvalidInputError, match="retry_after must be seconds"):
            ResponseError.of_status(429, retry_after=wish)
    assert ResponseError.of_status(429, retry_after=0).retry_after == 0


def test_response_message() -> None:
    """A response error says the status, the server's words, the request id, its wish, and what to do next."""
    text = str(RateLimitedError(429, "r-1", 2.0, "slow down"))
    assert text == ("HTTP 429: slow down; request id r-1; Retry-After: 2 s; nothing was done; ask again later")
    assert str(ResponseError(418)) == "HTTP 418"
    assert [kind for kind in RESPONSES[1:] if len(kind.advice) < 10 or not str(kind(499)).endswith(kind.advice)] == []


def test_advice_by_status() -> None:
    """A refusal that may pass is not said to come again, and one that lasts is not said to pass."""
    for status in (408, 425):
        assert "refused again" not in str(RejectedError(status))
        assert "may be accepted later" in str(RejectedError(status))
    for status in (501, 505):
        assert "may be tried again" not in str(ServerError(status))
        assert "would refuse it again" in str(ServerError(status))
    assert "the proxy wants a user and a password" in str(RejectedError(407))


def test_far_wishes() -> None:
    """A Retry-After is told in seconds below an hour, and from there on in words: a far date, too."""
    told = {seconds: str(RateLimitedError(429, None, seconds)).split("; ")[1] for seconds in (1.5, 90.0, 5400.0, 1e9)}
    assert list(told.values()) == [f"Retry-After: {words}" for words in ("1.5 s", "90 s", "1.5 h", "32 years")]


def test_timeout_message() -> None:
    """A wait's timeout names the job by its token, what was seen last and what went wrong, and how to go on."""
    text = str(WaitTimeoutError(REF, JOB, TransportError("reset"), 4, 1.54))
    for words in ("docs~.job~201", "1.5 s", "4 polls", "last seen active", "last error: reset", "by its ref"):
        assert words in text
    assert "; it continues remotely: " in text
    unseen = str(WaitTimeoutError(REF, None, None, 0, 1.0))
    assert "never seen" in unseen
    assert "; if it exists, it continues" in unseen
