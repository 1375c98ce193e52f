"""What each answer means, and when to ask again."""

from math import inf

import pytest
import tenacity
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._polling.decision import Again, Answer, Done, Failed, decide, moved_to_last_poll, timed_out
from agentjobs_async.errors import (
    AuthError,
    CreateOutcomeUnknownError,
    InvalidInputError,
    NotFoundError,
    NotSentError,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ResponseError,
    ServerError,
    SessionClosedError,
    TransportError,
)
from agentjobs_async.models import JobWithRetryAfter
from agentjobs_async.policy import PollPolicy
from tests.past import ACTIVE, NOW, POLICY, START, Past, again
from tests.polled import failures

TRANSIENT: list[Exception] = [
    NotSentError("refused"),
    NotSentError("bad certificate", "certificate"),
    TransportError("reset"),
    *(ResponseError(status) for status in (408, 425)),
    RejectedError(408),
    RejectedError(425),
    RateLimitedError(429),
    *(ServerError(status) for status in (500, 502, 503, 504, 507, 511, 599)),
    OSError("the user's own"),
    ConnectionResetError(),
    TimeoutError(),
]


BAD: list[Exception] = [
    ProtocolError(reason, "")
    for reason in ("not_json", "too_large", "encoding", "bad_json", "schema", "wrong_id", "http", "unexpected_status")
]


PERMANENT: list[Exception] = [
    *(RejectedError(status) for status in (300, 301, 302, 303, 304, 307, 308, 399)),
    *(RejectedError(status) for status in (400, 402, 405, 409, 413, 418, 421, 422, 426, 431, 451, 499)),
    AuthError(401),
    AuthError(403),
    NotFoundError(410),
    ServerError(501),
    ServerError(505),
    SessionClosedError("closed"),
    CreateOutcomeUnknownError("of another call"),
    InvalidInputError("a broken callable"),
    ValueError("the user's own"),
    KeyError("the user's own"),
]


def test_terminal() -> None:
    """Completed, archived and failed end the wait at once, whatever wish came with them."""

    def check(status: str) -> None:
        job = evolve(ACTIVE, status=status)
        for answer in (job, JobWithRetryAfter(job, 0.0), JobWithRetryAfter(job, 30.0)):
            assert decide(POLICY, START, answer, NOW) == Done(job)

    assert failures(check, "completed", "archived", "failed") == {}


def test_progress() -> None:
    """An active job, or one of an unknown status, is asked for again by the policy."""

    def check(status: str) -> None:
        decision = again(evolve(ACTIVE, status=status), now=NOW + 1)
        assert decision == Again(due=NOW + 6, not_before=NOW + 1, seen=NOW + 1, shown=1)

    assert failures(check, "active", "paused", "COMPLETED", "done", " ") == {}


def test_transient() -> None:
    """A passing fault is ridden out, however often it comes; it changes neither what was seen nor the pace."""

    def check(error: Exception) -> None:
        history = START
        for polls in range(1, 20):
            decision = again(error, history=history, now=NOW + polls)
            assert decision == Again(due=NOW + polls + 5, not_before=NOW + polls, seen=NOW)
            history = history.after(decision)

    assert failures(check, *TRANSIENT) == {}


def test_bad_answer() -> None:
    """An answer that is none is ridden out until `max_bad_answers` came in a row; the last one is what ends it."""

    def check(error: Exception) -> None:
        policy = evolve(POLICY, max_bad_answers=3)
        first = again(error, policy)
        second = again(error, policy, START.after(first))
        assert (first.bad_answers, second.bad_answers) == (1, 2)
        assert decide(policy, START.after(second), error, NOW) == Failed(error)
        assert decide(evolve(POLICY, max_bad_answers=1), START, error, NOW) == Failed(error)

    assert failures(check, *BAD) == {}


def test_count_starts_anew() -> None:
    """A good or a passing answer between bad ones starts their count anew."""
    history = evolve(START, bad_answers=4)

    def check(between: Answer) -> None:
        assert again(between, history=history).bad_answers == 0

    assert failures(check, ACTIVE, JobWithRetryAfter(ACTIVE, 1.0), *TRANSIENT, NotFoundError(404)) == {}
    assert isinstance(decide(POLICY, history, ProtocolError("schema", ""), NOW), Failed)


def test_permanent() -> None:
    """An answer after which asking is no use is raised at once, as it is."""

    def check(error: Exception) -> None:
        decision = decide(POLICY, START, error, NOW)
        assert isinstance(decision, Failed)
        assert decision.error is error

    assert failures(check, *PERMANENT) == {}


def test_grace() -> None:
    """A 404 is "not visible yet" within the grace from the start or from the last answer that showed the job."""

    def check(grace: float, after: float, kind: type) -> None:
        policy = evolve(POLICY, not_found_grace=grace)
        for seen in (NOW, NOW + 500):
            decision = decide(policy, Past(NOW, seen, polls=3), NotFoundError(404), seen + after)
            assert isinstance(decision, kind)

    rides = (30.0, 0.0, Again), (30.0, 29.9, Again), (0.5, 0.4, Again)
    assert failures(check, *rides, (30.0, 30.0, Failed), (0, 0.0, Failed), (0.5, 0.6, Failed)) == {}


def test_grace_from_last_sight() -> None:
    """Each answer that shows the job renews the grace; a passing fault does not."""
    policy = evolve(POLICY, answer_grace=0)
    seen = START.after(again(ACTIVE, now=NOW + 100))
    assert seen.seen == NOW + 100
    faulty = seen.after(again(TransportError("reset"), history=seen, now=NOW + 125))
    assert isinstance(decide(policy, faulty, NotFoundError(404), NOW + 129), Again)
    assert isinstance(decide(policy, faulty, NotFoundError(404), NOW + 130), Failed)


def test_refusal_after_first_sight() -> None:
    """Once a poll has shown the job, a refusal is ridden out until refusals have lasted for the grace since then."""
    policy = evolve(POLICY, answer_grace=40)

    def check(refusal: Exception) -> None:
        history = START.after(again(ACTIVE, now=NOW))
        for seconds in (10, 20, 30, 39.9):
            history = history.after(again(refusal, policy, history, NOW + seconds))
        assert decide(policy, history, refusal, NOW + 40) == Failed(refusal)
        assert isinstance(decide(policy, history.after(again(ACTIVE, policy, history)), refusal, NOW + 999), Again)
        assert isinstance(decide(evolve(policy, answer_grace=0, not_found_grace=0), history, refusal, NOW + 1), Failed)

    refusals = [error for error in PERMANENT if isinstance(error, ResponseError)]
    assert failures(check, *BAD, *refusals, NotFoundError(404)) == {}


def test_no_answer_has_no_grace() -> None:
    """What is no answer of the service's has no grace: it passes through at once, whatever was seen."""

    def check(error: Exception) -> None:
        assert isinstance(decide(POLICY, START.after(again(ACTIVE)), error, NOW), Failed)

    assert failures(check, *(error for error in PERMANENT if not isinstance(error, ResponseError))) == {}


def test_faults_and_the_grace() -> None:
    """After passing faults, refusals count from their own first; faults between them do not start that anew."""
    policy = evolve(POLICY, answer_grace=40)

    def check(error: Exception) -> None:
        history = START.after(again(ACTIVE, now=NOW))
        for seconds in (1, 100):
            history = history.after(again(error, policy, history, NOW + seconds))
        for answer in (AuthError(401), error, AuthError(401), error):
            history = history.after(again(answer, policy, history, NOW + 10 * history.polls + 70))
        assert isinstance(decide(policy, history, AuthError(401), NOW + 150), Failed)

    assert failures(check, *TRANSIENT) == {}


def test_plain_response_errors() -> None:
    """What a status means does not depend on the class by which a user's own get_job raises it."""

    def check(status: int, kind: type) -> None:
        assert isinstance(decide(POLICY, START, ResponseError(status), NOW), kind)

    rides = [(status, Again) for status in (404, 408, 429, 500, 503)]
    assert failures(check, *rides, (410, Failed), (501, Failed)) == {}


def test_wish() -> None:
    """A server's wish on any answer is a lower bound of the delay, cut to `max_retry_after`, which 0 makes nothing."""

    def check(wish: float, cap: float, due: float) -> None:
        answers: list[Answer] = [JobWithRetryAfter(ACTIVE, wish), ProtocolError("not_json", "", wish)]
        answers += [RateLimitedError(429, None, wish), ServerError(503, None, wish), ServerError(500, None, wish)]
        answers += [RejectedError(408, None, wish), NotFoundError(404, None, wish)]
        for answer in answers:
            decision = again(answer, evolve(POLICY, max_retry_after=cap))
            assert (decision.due, decision.not_before) == (NOW + due, NOW + min(wish, cap))

    rows = (0.0, 60.0, 5.0), (3.0, 60.0, 5.0), (20.0, 60.0, 20.0), (900.0, 60.0, 60.0), (inf, 60.0, 60.0)
    assert failures(check, *rows, (20.0, 0, 5.0)) == {}
    for wish in (float("nan"), -5.0):  # of a user's own error
        assert again(ServerError(503, None, wish)).not_before == NOW


@given(st.floats(0, 100), st.floats(0, 1e6), st.floats(0, 100))
def test_never_sooner(delay: float, wish: float, cap: float) -> None:
    """The same strategy paces after an error as after a success: the delay is the larger of its own and the wish."""
    policy = PollPolicy(wait=tenacity.wait_fixed(delay), max_retry_after=cap)
    good = again(JobWithRetryAfter(ACTIVE, wish), policy)
    bad = again(ServerError(503, None, wish), policy)
    assert good.due == bad.due == NOW + max(delay, min(wish, cap))


def test_retry_is_for_own_faults() -> None:
    """The service's own faults have their meaning from the contract: `retry` is not asked about them."""

    def check(error: Exception) -> None:
        assert isinstance(decide(PollPolicy(retry=tenacity.retry_never), START, error, NOW), Again)

    assert failures(check, *TRANSIENT[:8], *BAD) == {}
    assert isinstance(decide(PollPolicy(retry=tenacity.retry_always), START, AuthError(401), NOW), Failed)


def test_pure() -> None:
    """Deciding twice on the same gives the same, and changes nothing."""
    history = evolve(START, bad_answers=2, polls=7)
    error = ProtocolError("schema", "")
    assert again(error, history=history) == again(error, history=history)
    assert history == evolve(START, bad_answers=2, polls=7)


def test_last_poll() -> None:
    """A last poll starts `min(1 s, timeout / 10)` before the deadline, unless the server wishes none."""

    def check(now: float, due: float, not_before: float, timeout: float | None, moved: float) -> None:
        assert moved_to_last_poll(due, not_before, now, timeout, timeout) == pytest.approx(moved)

    rows: list[tuple[float | None, ...]] = [
        (0.0, 5.0, 0.0, None, 5.0),  # no deadline
        (0.0, 5.0, 0.0, 100.0, 5.0),  # far from it
        (95.0, 110.0, 95.0, 100.0, 99.0),  # the last poll starts 1 s before it
        (95.0, 99.5, 95.0, 100.0, 99.0),
        (0.0, 5.0, 0.0, 2.0, 1.8),  # of a short wait, a tenth of it
        (98.5, 104.0, 98.5, 100.0, 99.0),
        (99.0, 104.0, 99.0, 100.0, 104.0),  # that was the last one
        (99.5, 104.0, 99.5, 100.0, 104.0),
        (98.9999, 104.0, 98.9999, 100.0, 104.0),  # a clock's rounding makes no second last poll
        (95.0, 110.0, 99.4, 100.0, 99.4),  # what the server does not wish earlier
        (95.0, 155.0, 155.0, 100.0, 155.0),  # or not at all
    ]
    assert failures(check, *rows) == {}


def test_timed_out() -> None:
    """The error of a wait at its deadline names the job, its last state, what went wrong last, and what it took."""

    def check(error: Exception | None, cut: bool, cause: str | None) -> None:  # noqa: FBT001 - a column of the table
        end = timed_out(ACTIVE.ref, ACTIVE, error, 7, 60.0, cut=cut)
        assert (end.ref, end.last_job, end.polls, end.elapsed) == (ACTIVE.ref, ACTIVE, 7, 60.0)
        assert (end.last_error and repr(end.last_error)) == cause

    refused = NotSentError("refused")
    rows: list[tuple[Exception | None, bool, str | None]] = [
        (None, False, None),  # the last poll was answered
        (None, True, "TransportError('no answer until the wait ended')"),
        (refused, False, "NotSentError('refused')"),
        (refused, True, "NotSentError('refused')"),  # it says more than that the next one was cut
    ]
    assert failures(check, *rows) == {}
