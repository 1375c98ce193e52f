"""What each answer means, and when to ask again."""

from collections.abc import Callable
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

TERMINAL = ["completed", "archived", "failed"]


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


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("wish", [None, 0.0, 30.0])
def test_terminal(status: str, wish: float | None) -> None:
    """Completed, archived and failed end the wait at once, whatever wish came with them."""
    job = evolve(ACTIVE, status=status)
    answer = job if wish is None else JobWithRetryAfter(job, wish)
    assert decide(POLICY, START, answer, NOW) == Done(job)


@pytest.mark.parametrize("status", ["active", "paused", "COMPLETED", "done", " "])
def test_progress(status: str) -> None:
    """An active job, or one of an unknown status, is asked for again by the policy."""
    decision = again(evolve(ACTIVE, status=status), now=NOW + 1)
    assert decision == Again(due=NOW + 6, not_before=NOW + 1, seen=NOW + 1, shown=1)


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_transient(error: Exception) -> None:
    """A passing fault is ridden out, however often it comes; it changes neither what was seen nor the pace."""
    history = START
    for polls in range(1, 20):
        decision = again(error, history=history, now=NOW + polls)
        assert decision == Again(due=NOW + polls + 5, not_before=NOW + polls, seen=NOW)
        history = history.after(decision)


@pytest.mark.parametrize("error", BAD, ids=repr)
def test_bad_answer(error: Exception) -> None:
    """An answer that is none is ridden out until `max_bad_answers` came in a row; the last one is what ends it."""
    policy = evolve(POLICY, max_bad_answers=3)
    first = again(error, policy)
    second = again(error, policy, START.after(first))
    assert (first.bad_answers, second.bad_answers) == (1, 2)
    assert decide(policy, START.after(second), error, NOW) == Failed(error)
    assert decide(evolve(POLICY, max_bad_answers=1), START, error, NOW) == Failed(error)


@pytest.mark.parametrize("between", [ACTIVE, JobWithRetryAfter(ACTIVE, 1.0), *TRANSIENT, NotFoundError(404)], ids=repr)
def test_count_starts_anew(between: Answer) -> None:
    """A good or a passing answer between bad ones starts their count anew."""
    history = evolve(START, bad_answers=4)
    assert again(between, history=history).bad_answers == 0
    assert isinstance(decide(POLICY, history, ProtocolError("schema", ""), NOW), Failed)


@pytest.mark.parametrize("error", PERMANENT, ids=repr)
def test_permanent(error: Exception) -> None:
    """An answer after which asking is no use is raised at once, as it is."""
    decision = decide(POLICY, START, error, NOW)
    assert isinstance(decision, Failed)
    assert decision.error is error


@pytest.mark.parametrize(
    ("grace", "after", "rides"),
    [(30.0, 0.0, True), (30.0, 29.9, True), (30.0, 30.0, False), (0, 0.0, False), (0.5, 0.4, True), (0.5, 0.6, False)],
)
@pytest.mark.parametrize("seen", [NOW, NOW + 500])
def test_grace(grace: float, after: float, rides: bool, seen: float) -> None:  # noqa: FBT001 - a table's column
    """A 404 is "not visible yet" within the grace from the start or from the last answer that showed the job."""
    policy = evolve(POLICY, not_found_grace=grace)
    decision = decide(policy, Past(NOW, seen, polls=3), NotFoundError(404), seen + after)
    assert isinstance(decision, Again if rides else Failed)


def test_grace_from_last_sight() -> None:
    """Each answer that shows the job renews the grace; a passing fault does not."""
    policy = evolve(POLICY, answer_grace=0)
    seen = START.after(again(ACTIVE, now=NOW + 100))
    assert seen.seen == NOW + 100
    faulty = seen.after(again(TransportError("reset"), history=seen, now=NOW + 125))
    assert isinstance(decide(policy, faulty, NotFoundError(404), NOW + 129), Again)
    assert isinstance(decide(policy, faulty, NotFoundError(404), NOW + 130), Failed)


REFUSALS = [*BAD, *(error for error in PERMANENT if isinstance(error, ResponseError)), NotFoundError(404)]


@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
def test_refusal_after_first_sight(refusal: Exception) -> None:
    """Once a poll has shown the job, a refusal is ridden out until refusals have lasted for the grace since then."""
    policy = evolve(POLICY, answer_grace=40)
    history = START.after(again(ACTIVE, now=NOW))
    for seconds in (10, 20, 30, 39.9):
        history = history.after(again(refusal, policy, history, NOW + seconds))
    assert decide(policy, history, refusal, NOW + 40) == Failed(refusal)
    assert isinstance(decide(policy, history.after(again(ACTIVE, policy, history)), refusal, NOW + 999), Again)
    assert isinstance(decide(evolve(policy, answer_grace=0, not_found_grace=0), history, refusal, NOW + 1), Failed)


@pytest.mark.parametrize("error", [error for error in PERMANENT if not isinstance(error, ResponseError)], ids=repr)
def test_no_answer_has_no_grace(error: Exception) -> None:
    """What is no answer of the service's has no grace: it passes through at once, whatever was seen."""
    assert isinstance(decide(POLICY, START.after(again(ACTIVE)), error, NOW), Failed)


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_faults_and_the_grace(error: Exception) -> None:
    """After passing faults, refusals count from their own first; faults between them do not start that anew."""
    policy = evolve(POLICY, answer_grace=40)
    history = START.after(again(ACTIVE, now=NOW))
    for seconds in (1, 100):
        history = history.after(again(error, policy, history, NOW + seconds))
    for answer in (AuthError(401), error, AuthError(401), error):
        history = history.after(again(answer, policy, history, NOW + 10 * history.polls + 70))
    assert isinstance(decide(policy, history, AuthError(401), NOW + 150), Failed)


@pytest.mark.parametrize("status", [404, 408, 410, 429, 500, 503, 501])
def test_plain_response_errors(status: int) -> None:
    """What a status means does not depend on the class by which a user's own get_job raises it."""
    passes = status not in {410, 501}
    assert isinstance(decide(POLICY, START, ResponseError(status), NOW), Again if passes else Failed)


def test_wish_that_is_no_number() -> None:
    """A user's own error that wishes for NaN or for less than nothing wishes for nothing."""
    for wish in (float("nan"), -5.0):
        assert again(ServerError(503, None, wish)).not_before == NOW


@pytest.mark.parametrize(
    "answer",
    [
        lambda wish: JobWithRetryAfter(ACTIVE, wish),
        lambda wish: RateLimitedError(429, None, wish),
        lambda wish: ServerError(503, None, wish),
        lambda wish: ServerError(500, None, wish),
        lambda wish: RejectedError(408, None, wish),
        lambda wish: NotFoundError(404, None, wish),
        lambda wish: ProtocolError("not_json", "", wish),
    ],
)
@pytest.mark.parametrize(
    ("wish", "cap", "due"),
    [(0.0, 60.0, 5.0), (3.0, 60.0, 5.0), (20.0, 60.0, 20.0), (900.0, 60.0, 60.0), (inf, 60.0, 60.0), (20.0, 0, 5.0)],
)
def test_wish(answer: Callable[[float], Answer], wish: float, cap: float, due: float) -> None:
    """A server's wish on any answer is a lower bound of the delay, cut to `max_retry_after`, which 0 makes nothing."""
    decision = again(answer(wish), evolve(POLICY, max_retry_after=cap))
    assert decision.due == NOW + due
    assert decision.not_before == NOW + min(wish, cap)


@given(st.floats(0, 100), st.floats(0, 1e6), st.floats(0, 100))
def test_never_sooner(delay: float, wish: float, cap: float) -> None:
    """The same strategy paces after an error as after a success: the delay is the larger of its own and the wish."""
    policy = PollPolicy(wait=tenacity.wait_fixed(delay), max_retry_after=cap)
    good = again(JobWithRetryAfter(ACTIVE, wish), policy)
    bad = again(ServerError(503, None, wish), policy)
    assert good.due == bad.due == NOW + max(delay, min(wish, cap))


@pytest.mark.parametrize("error", [*TRANSIENT[:8], *BAD], ids=repr)
def test_retry_is_for_own_faults(error: Exception) -> None:
    """The service's own faults have their meaning from the contract: `retry` is not asked about them."""
    assert isinstance(decide(PollPolicy(retry=tenacity.retry_never), START, error, NOW), Again)
    assert isinstance(decide(PollPolicy(retry=tenacity.retry_always), START, AuthError(401), NOW), Failed)


def test_pure() -> None:
    """Deciding twice on the same gives the same, and changes nothing."""
    history = evolve(START, bad_answers=2, polls=7)
    error = ProtocolError("schema", "")
    assert again(error, history=history) == again(error, history=history)
    assert history == evolve(START, bad_answers=2, polls=7)


@pytest.mark.parametrize(
    ("now", "due", "not_before", "deadline", "timeout", "moved"),
    [
        (0.0, 5.0, 0.0, None, None, 5.0),  # no deadline
        (0.0, 5.0, 0.0, 100.0, 100.0, 5.0),  # far from it
        (95.0, 110.0, 95.0, 100.0, 100.0, 99.0),  # the last poll starts 1 s before it
        (95.0, 99.5, 95.0, 100.0, 100.0, 99.0),
        (0.0, 5.0, 0.0, 2.0, 2.0, 1.8),  # of a short wait, a tenth of it
        (98.5, 104.0, 98.5, 100.0, 100.0, 99.0),
        (99.0, 104.0, 99.0, 100.0, 100.0, 104.0),  # that was the last one
        (99.5, 104.0, 99.5, 100.0, 100.0, 104.0),
        (98.9999, 104.0, 98.9999, 100.0, 100.0, 104.0),  # a clock's rounding makes no second last poll
        (95.0, 110.0, 99.4, 100.0, 100.0, 99.4),  # what the server does not wish earlier
        (95.0, 155.0, 155.0, 100.0, 100.0, 155.0),  # or not at all
    ],
)
def test_last_poll(
    now: float, due: float, not_before: float, deadline: float | None, timeout: float | None, moved: float
) -> None:
    """A last poll starts `min(1 s, timeout / 10)` before the deadline, unless the server wishes none."""
    assert moved_to_last_poll(due, not_before, now, deadline, timeout) == pytest.approx(moved)


@pytest.mark.parametrize(
    ("error", "cut", "cause"),
    [
        (None, False, None),  # the last poll was answered
        (None, True, "TransportError('no answer until the wait ended')"),
        (NotSentError("refused"), False, "NotSentError('refused')"),
        (NotSentError("refused"), True, "NotSentError('refused')"),  # it says more than that the next one was cut
    ],
)
def test_timed_out(error: Exception | None, cut: bool, cause: str | None) -> None:  # noqa: FBT001 - a row of the table
    """The error of a wait at its deadline names the job, its last state, what went wrong last, and what it took."""
    end = timed_out(ACTIVE.ref, ACTIVE, error, 7, 60.0, cut=cut)
    assert (end.ref, end.last_job, end.polls, end.elapsed) == (ACTIVE.ref, ACTIVE, 7, 60.0)
    assert (end.last_error and repr(end.last_error)) == cause
