"""What each answer means, and when to ask again."""

import asyncio
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import tenacity
from attrs import define, evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st
from tenacity.wait import wait_base

from agentjobs_async.errors import (
    AgentJobsError,
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
from agentjobs_async.models import AgentJob, Paced
from agentjobs_async.policy import (
    Again,
    Answer,
    Done,
    Failed,
    PollBudget,
    PollPolicy,
    create_attempts,
    decide,
    moved_to_last_poll,
)

ACTIVE = AgentJob("job", "docs", "active")
NOW = 1000.0
POLICY = PollPolicy(wait=tenacity.wait_fixed(5))


@define
class Past:
    """A history of which the poll to be decided on is the last."""

    started: float
    seen: float
    polls: int = 1
    bad_answers: int = 0

    def after(self, decision: Again) -> "Past":
        return Past(self.started, decision.seen, self.polls + 1, decision.bad_answers)


START = Past(NOW, NOW)


def again(answer: Answer, policy: PollPolicy = POLICY, history: Past = START, now: float = NOW) -> Again:
    decision = decide(policy, history, answer, now)
    assert isinstance(decision, Again)
    return decision


# The contract's table of a poll, row by row.

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
    answer = job if wish is None else Paced(job, wish)
    assert decide(POLICY, START, answer, NOW) == Done(job)


@pytest.mark.parametrize("status", ["active", "paused", "COMPLETED", "done", " "])
def test_progress(status: str) -> None:
    """An active job, or one of an unknown status, is asked for again by the policy."""
    decision = again(evolve(ACTIVE, status=status), now=NOW + 1)
    assert decision == Again(due=NOW + 6, earliest=NOW + 1, seen=NOW + 1)


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_transient(error: Exception) -> None:
    """A passing fault is ridden out, however often it comes; it changes neither what was seen nor the pace."""
    history = START
    for polls in range(1, 20):
        decision = again(error, history=history, now=NOW + polls)
        assert decision == Again(due=NOW + polls + 5, earliest=NOW + polls, seen=NOW)
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


@pytest.mark.parametrize("between", [ACTIVE, Paced(ACTIVE, 1.0), *TRANSIENT, NotFoundError(404)], ids=repr)
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
    seen = START.after(again(ACTIVE, now=NOW + 100))
    assert seen.seen == NOW + 100
    faulty = seen.after(again(TransportError("reset"), history=seen, now=NOW + 125))
    assert isinstance(decide(POLICY, faulty, NotFoundError(404), NOW + 129), Again)
    assert isinstance(decide(POLICY, faulty, NotFoundError(404), NOW + 130), Failed)


@pytest.mark.parametrize(
    "answer",
    [
        lambda wish: Paced(ACTIVE, wish),
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
    assert decision.earliest == NOW + min(wish, cap)


@given(st.floats(0, 100), st.floats(0, 1e6), st.floats(0, 100))
def test_never_sooner(delay: float, wish: float, cap: float) -> None:
    """The same strategy paces after an error as after a success: the delay is the larger of its own and the wish."""
    policy = PollPolicy(wait=tenacity.wait_fixed(delay), max_retry_after=cap)
    good = again(Paced(ACTIVE, wish), policy)
    bad = again(ServerError(503, None, wish), policy)
    assert good.due == bad.due == NOW + max(delay, min(wish, cap))


class OwnWait(wait_base):
    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return retry_state.attempt_number * 2.0


def plain_wait(retry_state: tenacity.RetryCallState) -> float:
    return retry_state.attempt_number * 3.0


def delay_after_error(error: BaseException) -> float:
    return 0.5 if isinstance(error, tenacity.TryAgain) else 9.0


@pytest.mark.parametrize(
    ("wait", "good", "bad"),
    [
        (tenacity.wait_fixed(4), (4, 4), (4, 4)),
        (tenacity.wait_none(), (0, 0), (0, 0)),
        (tenacity.wait_incrementing(2, 3), (5, 5), (5, 5)),
        (tenacity.wait_exponential(multiplier=1, max=60) + tenacity.wait_random(0, 1), (2, 3), (2, 3)),
        (tenacity.wait_random_exponential(multiplier=1, max=60), (0, 2), (0, 2)),
        (tenacity.wait_exponential_jitter(initial=1, max=60, jitter=1), (2, 3), (2, 3)),
        (tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(7)), (7, 7), (7, 7)),
        (tenacity.wait_combine(tenacity.wait_fixed(1), tenacity.wait_fixed(2)), (3, 3), (3, 3)),
        (tenacity.wait_exception(delay_after_error), (0.5, 0.5), (9, 9)),
        (tenacity.wait_exception(delay_after_error) + tenacity.wait_fixed(1), (1.5, 1.5), (10, 10)),
        (OwnWait(), (4, 4), (4, 4)),
        (plain_wait, (6, 6), (6, 6)),
        (lambda _: 2, (2, 2), (2, 2)),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_any_strategy(wait: Any, good: tuple[float, float], bad: tuple[float, float]) -> None:
    """Any wait strategy of tenacity's, an own one and a plain function pace after answers and errors alike."""
    policy = PollPolicy(wait=wait)
    second = evolve(START, polls=2)
    assert good[0] <= again(ACTIVE, policy, second).due - NOW <= good[1]
    assert bad[0] <= again(TransportError("reset"), policy, second).due - NOW <= bad[1]


def test_call_state() -> None:
    """A strategy sees the attempt's number from 1, its outcome and loop times, and nothing slept."""
    states: list[tenacity.RetryCallState] = []

    def wait(state: tenacity.RetryCallState) -> float:
        states.append(state)
        return 0

    policy = PollPolicy(wait=wait)
    error = ServerError(503)
    after = START.after(again(ACTIVE, policy, now=NOW + 2))
    again(error, policy, after, NOW + 7)
    good, bad = states
    assert (good.attempt_number, good.start_time, good.outcome_timestamp) == (1, NOW, NOW + 2)
    assert (bad.attempt_number, bad.start_time, bad.outcome_timestamp) == (2, NOW, NOW + 7)
    assert (bad.seconds_since_start, bad.idle_for, bad.args, bad.kwargs) == (7, 0, (), {})
    assert good.outcome is not None
    assert bad.outcome is not None
    assert good.outcome.done()
    assert (good.outcome.failed, good.outcome.exception(), good.outcome.result()) == (False, None, ACTIVE)
    assert (bad.outcome.failed, bad.outcome.exception(), bad.outcome.attempt_number) == (True, error, 2)
    assert "attempt 2" in repr(bad.outcome)
    with pytest.raises(ServerError) as caught:
        bad.outcome.result()
    assert caught.value is error


@pytest.mark.parametrize(
    "delay", [-1, -0.001, nan, inf, -inf, None, "5", True, 5j, 10**400, [1]], ids=lambda value: repr(value)[:9]
)
@pytest.mark.parametrize("answer", [ACTIVE, TransportError("reset")])
def test_no_delay(delay: Any, answer: Answer) -> None:
    """A strategy that gives no delay is refused by name, on one short line."""
    with pytest.raises(InvalidInputError, match=r"policy\.wait .* from 0 on, not ") as caught:
        decide(PollPolicy(wait=lambda _: delay), START, answer, NOW)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("answer", [ACTIVE, TransportError("reset")])
@pytest.mark.parametrize("error", [RuntimeError("own"), ZeroDivisionError()])
def test_faulty_strategy(error: Exception, answer: Answer) -> None:
    """What a strategy itself raises comes out as it is; it is not asked again about a fault."""
    numbers: list[int] = []

    def wait(state: tenacity.RetryCallState) -> float:
        numbers.append(state.attempt_number)
        raise error

    with pytest.raises(type(error)) as caught:
        decide(PollPolicy(wait=wait), START, answer, NOW)
    assert caught.value is error
    assert numbers == [1] or (answer is ACTIVE and isinstance(error, RuntimeError))


@pytest.mark.parametrize(
    ("retry", "error", "rides"),
    [
        (tenacity.retry_if_exception_type(ValueError), ValueError(), True),
        (tenacity.retry_if_exception_type(ValueError), KeyError(), False),
        (tenacity.retry_if_exception_type(ValueError), OSError(), False),
        (tenacity.retry_if_exception(lambda error: "busy" in str(error)), ValueError("busy"), True),
        (tenacity.retry_if_exception_message(match="busy.*"), ValueError("busy now"), True),
        (tenacity.retry_any(tenacity.retry_if_exception_type(KeyError), tenacity.retry_never), KeyError(), True),
        (tenacity.retry_all(tenacity.retry_if_exception_type(KeyError), tenacity.retry_never), KeyError(), False),
        (tenacity.retry_always, ValueError(), True),
        (tenacity.retry_never, OSError(), False),
        (lambda state: state.attempt_number < 3, ValueError(), True),
        (lambda state: state.attempt_number < 2, ValueError(), False),
    ],
)
def test_own_faults(retry: Any, error: Exception, rides: bool) -> None:  # noqa: FBT001 - a table's column
    """Which exceptions of a user's own get-job pass is any plain retry strategy's to say."""
    decision = decide(PollPolicy(wait=tenacity.wait_none(), retry=retry), evolve(START, polls=2), error, NOW)
    assert isinstance(decision, Again if rides else Failed)


@pytest.mark.parametrize("error", [*TRANSIENT[:8], *BAD], ids=repr)
def test_retry_is_for_own_faults(error: Exception) -> None:
    """The service's own faults have their meaning from the contract: `retry` is not asked about them."""
    assert isinstance(decide(PollPolicy(retry=tenacity.retry_never), START, error, NOW), Again)
    assert isinstance(decide(PollPolicy(retry=tenacity.retry_always), START, AuthError(401), NOW), Failed)


def test_default_pace() -> None:
    """By default polls go out more slowly the longer it takes: from 1 to 2 s apart up to 15 to 16 s, with jitter."""
    policy = PollPolicy()
    for polls, low, high in ((0, 1, 2), (10, 2.5, 3.7), (60, 15, 16), (100_000, 15, 16)):
        delays = {again(ACTIVE, policy, evolve(START, polls=polls + 1)).due - NOW for _ in range(20)}
        assert low <= min(delays) <= max(delays) <= high
        assert len(delays) > 1


def test_pure() -> None:
    """Deciding twice on the same gives the same, and changes nothing."""
    history = evolve(START, bad_answers=2, polls=7)
    error = ProtocolError("schema", "")
    assert again(error, history=history) == again(error, history=history)
    assert history == evolve(START, bad_answers=2, polls=7)


async def async_retry(_: BaseException) -> bool:
    return True


async def async_strategy(_: object) -> float:
    return 1.0


class AsyncWait(wait_base):
    async def __call__(self, retry_state: tenacity.RetryCallState) -> float:  # type: ignore[override]  # the mistake itself
        return float(retry_state.attempt_number)


BAD_SECONDS = [-1, nan, inf, True, None, "30", 10**400]
BAD_COUNTS = [0, -1, 2.0, True, None, "5", nan]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("not_found_grace", value) for value in BAD_SECONDS),
        *(("max_retry_after", value) for value in BAD_SECONDS),
        *(("max_bad_answers", value) for value in BAD_COUNTS),
        *(("wait", value) for value in (None, 5, "5", async_strategy, AsyncWait())),
        *(
            ("retry", value)
            for value in (None, OSError(), async_strategy, tenacity.asyncio.retry_if_exception(async_retry))
        ),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_no_policy(name: str, value: Any) -> None:
    """A setting that makes no sense is refused by its name."""
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidInputError, match=rf"^{name} must be "):
        PollPolicy(**arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("in_flight", value) for value in BAD_COUNTS),
        *(("per_second", value) for value in (0, -1, nan, inf, True, "3")),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_no_budget(name: str, value: Any) -> None:
    """A budget that makes no sense is refused by the setting's name."""
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidInputError, match=rf"^{name} must be a "):
        PollBudget(**arguments)


def test_settings() -> None:
    """Zero is legal where it means something, and what is given is what is kept."""
    policy = PollPolicy(not_found_grace=0, max_bad_answers=1, max_retry_after=0)
    assert (policy.not_found_grace, policy.max_bad_answers, policy.max_retry_after) == (0, 1, 0)
    defaults = PollPolicy()
    assert (defaults.not_found_grace, defaults.max_bad_answers, defaults.max_retry_after) == (30.0, 5, 60.0)
    assert (PollBudget().in_flight, PollBudget().per_second) == (100, None)
    assert PollBudget(1, 0.5) == PollBudget(in_flight=1, per_second=0.5)


def test_identity() -> None:
    """A policy is frozen and compared by identity: its strategies can't be compared."""
    assert PollPolicy() != PollPolicy()
    assert len({POLICY, POLICY, PollPolicy()}) == 2
    for value, name in ((POLICY, "max_bad_answers"), (PollBudget(), "in_flight")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 1)


@pytest.mark.parametrize(
    ("now", "due", "earliest", "deadline", "timeout", "moved"),
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
    now: float, due: float, earliest: float, deadline: float | None, timeout: float | None, moved: float
) -> None:
    """A last poll starts `min(1 s, timeout / 10)` before the deadline, unless the server wishes none."""
    assert moved_to_last_poll(Again(due, earliest, now), now, deadline, timeout) == pytest.approx(moved)


class Creates:
    """Runs a create's engine over scripted errors on a clock that only its own sleeping moves."""

    def __init__(self, *errors: AgentJobsError, deadline: float = 120.0, cap: float = 60.0) -> None:
        self.now = 0.0
        self.tries: list[float] = []
        self._errors = list(errors)
        self._attempts = create_attempts(lambda: self.now, deadline, cap)
        self._attempts.sleep = self._sleep  # type: ignore[assignment]  # tenacity awaits it; its type says otherwise

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def run(self) -> str:
        async for attempt in self._attempts:
            with attempt:
                self.tries.append(self.now)
                if self._errors:
                    raise self._errors.pop(0)
        return "created"


async def test_create_backs_off() -> None:
    """What was not sent goes again with a growing pause, from a tenth of a second up to ten."""
    creates = Creates(*[NotSentError("refused", "refused")] * 12)
    assert await creates.run() == "created"
    gaps = [after - before for before, after in zip(creates.tries, creates.tries[1:], strict=False)]
    assert len(gaps) == 12
    assert 0.1 <= gaps[0] <= 0.2
    assert 0.2 <= gaps[1] <= 0.3
    assert 10 <= gaps[-1] <= 10.1


@pytest.mark.parametrize("reason", ["dns", "refused", "tls", "timeout", "connect"])
async def test_create_until_its_time(reason: str) -> None:
    """It goes on until its time is up; the last error comes out as it is, and nothing starts after the deadline."""
    errors = [NotSentError(str(number), reason) for number in range(1000)]
    creates = Creates(*errors, deadline=50.0)
    with pytest.raises(NotSentError) as caught:
        await creates.run()
    assert caught.value is errors[len(creates.tries) - 1]
    assert 35 < creates.tries[-1] < 50


@pytest.mark.parametrize(
    "error",
    [
        NotSentError("bad certificate", "certificate"),
        CreateOutcomeUnknownError("reset"),
        TransportError("reset"),
        ServerError(503, None, 1.0),
        RejectedError(400),
        RejectedError(408),
        AuthError(401),
        ProtocolError("schema", ""),
        RateLimitedError(429, None, 60.1),
        RateLimitedError(429, None, inf),
    ],
    ids=repr,
)
async def test_create_once(error: AgentJobsError) -> None:
    """Whatever may have started an agent, can't help, or asks for too much patience is raised at once."""
    creates = Creates(error)
    with pytest.raises(type(error)) as caught:
        await creates.run()
    assert caught.value is error
    assert creates.tries == [0.0]


async def test_create_is_patient() -> None:
    """A 429 goes again after its wish, never earlier; without a wish by our own backoff."""
    creates = Creates(RateLimitedError(429, None, 7.0), RateLimitedError(429), RateLimitedError(429, None, 60.0))
    assert await creates.run() == "created"
    first, second, third, fourth = creates.tries
    assert (first, second) == (0.0, 7.0)
    assert 7.1 < third < 8
    assert fourth == third + 60.0


async def test_create_wish_beyond_its_time() -> None:
    """A 429 whose wish reaches beyond the time left is raised at once."""
    error = RateLimitedError(429, None, 20.0)
    creates = Creates(error, deadline=20.0)
    with pytest.raises(RateLimitedError) as caught:
        await creates.run()
    assert caught.value is error
    assert creates.now == 0.0
