from agentjobs_async import (
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    SessionClosedError,
)
from agentjobs_async.batch._failures import Failure, classify, ends_the_run, pause_after
from tests.batch.stage import gateway_refusal, not_sent, rate_limited, refused_key, rejected, unknown, with_outcome

MEANINGS: list[tuple[Exception, Failure]] = [
    (with_outcome(InvalidInputError("no"), CreateOutcome.NOT_SENT), Failure.INVALID),
    (not_sent("withheld"), Failure.WITHHELD),
    (not_sent("refused"), Failure.NOT_SENT),
    (not_sent("certificate"), Failure.FATAL),
    (not_sent("proxy"), Failure.FATAL),
    (with_outcome(SessionClosedError("closed"), CreateOutcome.NOT_SENT), Failure.FATAL),
    (with_outcome(SessionClosedError("closed"), CreateOutcome.UNKNOWN), Failure.UNKNOWN),
    (rate_limited(5.0), Failure.LIMITED),
    (gateway_refusal(None), Failure.LIMITED),
    (refused_key(403), Failure.UNAUTHORIZED),
    (rejected(422), Failure.REJECTED),
    (unknown(), Failure.UNKNOWN),
    (CreateOutcomeUnknownError("HTTP 503", "response", 503, 30.0), Failure.UNKNOWN),
    (LookupError("not an error of the client"), Failure.UNKNOWN),
]


def test_what_a_failed_create_means() -> None:
    """Only an error that proves that no agent was started lets an item be anything but unknown."""
    assert [(error, classify(error)) for error, _ in MEANINGS] == MEANINGS


def test_what_ends_a_run() -> None:
    """A closed session, a certificate that is not trusted and a proxy that refuses would befall every item."""
    ending = [SessionClosedError("closed"), not_sent("certificate"), not_sent("proxy")]
    assert [ends_the_run(error) for error in ending] == [True, True, True]
    assert not any(map(ends_the_run, [not_sent("refused"), rate_limited(1.0), LookupError()]))


def test_pauses() -> None:
    """A pause after a create that was not sent doubles from 1 s to 60 s."""
    assert [pause_after(failures) for failures in (0, 1, 5, 6, 10_000)] == [1.0, 2.0, 32.0, 60.0, 60.0]
