"""The tree of errors, and what each carries, says and keeps through pickling."""

import copy
import pickle
import re
from collections.abc import Callable
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
    WaitTimeoutError,
)
from agentjobs_async.models import AgentJob, JobRef

REF = JobRef("docs", "job 1")
JOB = AgentJob("job 1", "docs", "active", raw={"id": "job 1"})
RESPONSES = [ResponseError, AuthError, NotFoundError, RateLimitedError, RejectedError, ServerError]

# Each error made by position, with the data that it must carry and keep.
SAMPLES: list[tuple[AgentJobsError, dict[str, Any]]] = [
    (AgentJobsError("broke"), {"outcome": None}),
    (InvalidInputError("timeout must be above 0"), {}),
    (SessionClosedError("the session is closed"), {}),
    (NotSentError("refused"), {"reason": "connect"}),
    (NotSentError("no such name", "dns"), {"reason": "dns"}),
    (TransportError("reset"), {}),
    (CreateOutcomeUnknownError("it broke"), {"outcome": CreateOutcome.UNKNOWN, "phase": "request", "status": None}),
    (CreateOutcomeUnknownError("HTTP 500", "response", 500), {"phase": "response", "status": 500}),
    (CreateOutcomeUnknownError("HTTP 503", "response", 503, 30.0), {"status": 503, "retry_after": 30.0}),
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


@pytest.mark.parametrize("again", [pickled, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize(("error", "data"), SAMPLES, ids=lambda value: type(value).__name__)
def test_keeps_its_data(
    error: AgentJobsError, data: dict[str, Any], again: Callable[[AgentJobsError], AgentJobsError]
) -> None:
    """Every error carries its data, and keeps it, its words and a create's outcome through pickling and copying."""
    error.outcome = error.outcome or CreateOutcome.NOT_SENT
    twin = again(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.args == error.args
    assert vars(twin).keys() == vars(error).keys()
    assert twin.outcome == error.outcome
    for name, value in (data | {"outcome": error.outcome}).items():
        assert getattr(twin, name) == value
    error.outcome = type(error).outcome


class Unpicklable(Exception):  # noqa: N818 - stands for a foreign exception of any name
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.held = lambda: code


@pytest.mark.parametrize("foreign", [Unpicklable(code=7), ValueError(lambda: None)], ids=["init", "args"])
def test_unpicklable_last_error(foreign: Exception) -> None:
    """A wait's timeout pickles whatever error of a user's it holds, keeping at least its words."""
    twin = pickled(WaitTimeoutError(REF, JOB, foreign, 1, 2.0))
    assert isinstance(twin, WaitTimeoutError)
    assert type(twin.last_error) is AgentJobsError
    assert str(twin.last_error) == f"{type(foreign).__name__}: {foreign}"
    assert twin.last_job == JOB


def test_picklable_last_error() -> None:
    """A last error that pickles comes back as what it was."""
    twin = pickled(WaitTimeoutError(REF, None, ServerError(503, "r", 2.0, "busy"), 1, 2.0))
    assert isinstance(twin, WaitTimeoutError)
    assert isinstance(twin.last_error, ServerError)
    assert (twin.last_error.status, twin.last_error.retry_after) == (503, 2.0)


def test_names_its_job() -> None:
    """An error that came of a read or a wait names the job first, then what happened, then what to do."""
    error = NotFoundError(404, "r-1", None, "no such job")
    assert str(error) == f"HTTP 404: no such job; request id r-1; {error.advice}"
    assert with_ref(error, REF) is error
    assert str(error) == f"job docs/job%201: HTTP 404: no such job; request id r-1; {error.advice}"
    assert with_ref(error, JobRef("docs", "other")).ref == REF
    assert pickled(error).ref == REF


def test_foreign_errors_name_nothing() -> None:
    """An exception that is not ours is left as it is."""
    error = ValueError("mine")
    assert with_ref(error, REF) is error
    assert not hasattr(error, "ref")


@pytest.mark.parametrize(
    ("last_job", "advice"), [(JOB, "it continues remotely: "), (None, "if it exists, it continues")]
)
def test_advice_after_a_timeout(last_job: AgentJob | None, advice: str) -> None:
    """A wait that ran out of time says that the job continues, or that no poll has shown it so far."""
    assert f"; {advice}" in str(WaitTimeoutError(REF, last_job, None, 3, 5.0))


@pytest.mark.parametrize(
    "error",
    [
        *(error for error, _ in SAMPLES),
        WaitTimeoutError(REF, None, ValueError("two\nlines\x1b[31m"), 1, 1.0),
        WaitTimeoutError(REF, AgentJob("job", "docs", "odd\nstatus\x07"), None, 1, 1.0),
    ],
)
def test_one_line(error: AgentJobsError) -> None:
    """Every message is one printable line that says something."""
    assert str(error)
    assert str(error).isprintable()


TREE: dict[type[AgentJobsError], type | tuple[type, ...]] = {
    AgentJobsError: Exception,
    InvalidInputError: (AgentJobsError, ValueError),
    SessionClosedError: (AgentJobsError, RuntimeError),
    NotSentError: (AgentJobsError, ConnectionError),
    TransportError: (AgentJobsError, ConnectionError),
    CreateOutcomeUnknownError: AgentJobsError,
    ResponseError: AgentJobsError,
    AuthError: ResponseError,
    NotFoundError: ResponseError,
    RateLimitedError: ResponseError,
    RejectedError: ResponseError,
    ServerError: ResponseError,
    ProtocolError: AgentJobsError,
    WaitTimeoutError: (AgentJobsError, TimeoutError),
    JobFailedError: AgentJobsError,
    JournalError: AgentJobsError,
}


@pytest.mark.parametrize(("kind", "bases"), TREE.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_tree(kind: type[AgentJobsError], bases: type | tuple[type, ...]) -> None:
    """Each error has exactly the bases that the tree draws, the built-in ones included."""
    assert kind.__bases__ == (bases if isinstance(bases, tuple) else (bases,))


def test_drawing_is_complete() -> None:
    """The tree at the module's top names every error of the module, with its built-in base."""
    drawn = dict(re.findall(r"(\w+Error)(?: \((\w+)\))?", getdoc(errors) or ""))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AgentJobsError)]
    assert set(drawn) >= {kind.__name__ for kind in kinds}
    for kind in kinds:
        builtin = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception]
        assert drawn[kind.__name__] == "".join(builtin)


def test_response_message() -> None:
    """A response error says the status, the server's words, the request id, its wish, and what to do next."""
    text = str(RateLimitedError(429, "r-1", 2.0, "slow down"))
    assert text == ("HTTP 429: slow down; request id r-1; Retry-After: 2 s; nothing was done; ask again later")
    assert str(ResponseError(418)) == "HTTP 418"


@pytest.mark.parametrize("kind", RESPONSES[1:])
def test_advice(kind: type[ResponseError]) -> None:
    """Each class of refusal says what to do next."""
    assert str(kind(499)).endswith(kind.advice)
    assert len(kind.advice) > 10


def test_timeout_message() -> None:
    """A wait's timeout names the job by its token, what was seen last and what went wrong, and how to go on."""
    text = str(WaitTimeoutError(REF, JOB, TransportError("reset"), 4, 1.54))
    for words in ("docs/job%201", "1.5 s", "4 polls", "last seen active", "last error: reset", "by its ref"):
        assert words in text
    assert "never seen" in str(WaitTimeoutError(REF, None, None, 0, 1.0))
