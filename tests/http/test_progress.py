"""How far a create has come, and what outcome that leaves."""

import asyncio
from collections.abc import Callable
from datetime import UTC

import pytest
from multidict import CIMultiDict

from agentjobs_async import CreateOutcome, NotSentError
from agentjobs_async._http.progress import Progress, StoppedError
from agentjobs_async._http.responses import Response
from tests.decoders import decoder_of

NOT_SENT, REJECTED, UNKNOWN = CreateOutcome.NOT_SENT, CreateOutcome.REJECTED, CreateOutcome.UNKNOWN


def progress_of(before_send: Callable[[], bool] | None = None) -> Progress:
    return Progress("docs", decoder_of("0123456789", 1_000), before_send)


def test_outcome_of_each_step() -> None:
    """Only before a try, while it connects and once it is decided is it certain that nothing was started."""
    progress = progress_of()
    assert (progress.outcome, progress.tries, progress.may_have_left) == (NOT_SENT, 0, False)
    moves = (progress.start_try, progress.connecting, progress.connected, progress.sending, progress.decided)
    outcomes = []
    for move in moves:
        move()
        outcomes.append(progress.outcome)
    assert outcomes == [UNKNOWN, NOT_SENT, UNKNOWN, UNKNOWN, NOT_SENT]
    assert (progress.tries, progress.decision) == (1, None)


def test_outcome_of_a_head() -> None:
    """The head of a refusal decides a try; the last proof counts between two tries, and not within the next one."""
    progress = progress_of()
    progress.start_try()
    progress.sending()
    for status, outcome in ((200, UNKNOWN), (500, UNKNOWN), (429, REJECTED)):
        progress.on_head(Response(status, CIMultiDict()))
        assert (progress.outcome, progress.status) == (outcome, status)
    refusal = progress.decision
    progress.decided()
    assert (progress.outcome, progress.refusal) == (REJECTED, refusal)
    progress.start_try()
    assert (progress.outcome, progress.status, progress.tries, progress.decision) == (UNKNOWN, None, 2, None)
    progress.decided(NotSentError("refused"))
    assert progress.outcome is NOT_SENT


def test_no_step_back() -> None:
    """A second connection within a try does not prove that nothing has left on the first one."""
    progress = progress_of()
    progress.start_try()
    progress.connecting()
    progress.connected()
    for move in (progress.connecting, progress.connected):
        move()
        assert progress.outcome is UNKNOWN
    progress.sending()
    for move in (progress.connecting, progress.connected):
        move()
        assert progress.outcome is UNKNOWN


def test_connections_of_a_try() -> None:
    """The connections of each try are counted for themselves: what the second one tells proves nothing of the first."""
    progress = progress_of()
    for _ in range(2):
        progress.start_try()
        counts = [progress.connections]
        for _ in range(3):
            progress.connected()
            counts.append(progress.connections)
        assert counts == [0, 1, 2, 3]


def test_awaiting_the_answer() -> None:
    """Only a try whose body is written, and that is not decided, awaits its answer."""
    progress = progress_of()
    progress.start_try()
    awaits = []
    for move in (progress.sent, progress.sending, progress.sent, progress.decided, progress.sent):
        move()
        awaits.append(progress.awaits_answer)
    assert awaits == [False, False, True, False, False]
    assert progress.outcome is NOT_SENT


def test_when_it_was_sent() -> None:
    """A create is dated by the start of its last try, in UTC, and from its sending on by that; not before its first."""
    progress = progress_of()
    assert (progress.sent_at, progress.status) == (None, None)
    progress.start_try()
    started = progress.sent_at
    assert started is not None
    assert started.tzinfo is UTC
    progress.sending()
    assert progress.sent_at is not None
    assert progress.sent_at >= started


def test_a_try_is_sent_once() -> None:
    """A try gives its body once, a decided one not at all; the next try gives its own."""
    calls: list[bool] = []

    def before_send() -> bool:
        calls.append(True)
        return True

    progress = progress_of(before_send)
    for tries in (1, 2):
        progress.start_try()
        progress.sending()
        with pytest.raises(StoppedError):
            progress.sending()
        assert (progress.outcome, len(calls)) == (UNKNOWN, tries)
        progress.decided()
        with pytest.raises(StoppedError):
            progress.sending()
        assert (progress.outcome, len(calls)) == (NOT_SENT, tries)


def test_nothing_is_sent_before_a_try() -> None:
    """Before the first try nothing can be sent, and `before_send` is not asked."""
    calls: list[bool] = []

    def before_send() -> bool:
        calls.append(True)
        return True

    progress = progress_of(before_send)
    with pytest.raises(StoppedError):
        progress.sending()
    for move in (progress.connecting, progress.connected, progress.sent):
        move()
        assert (progress.outcome, progress.decision, progress.awaits_answer) == (NOT_SENT, None, False)
    assert calls == []


def test_withheld() -> None:
    """A try that `before_send` forbids is decided: nothing was sent."""
    progress = progress_of(lambda: False)
    progress.start_try()
    progress.connecting()
    progress.connected()
    with pytest.raises(StoppedError):
        progress.sending()
    decision = progress.decision
    assert isinstance(decision, NotSentError)
    assert (decision.reason, progress.outcome) == ("withheld", NOT_SENT)


@pytest.mark.parametrize("error", [LookupError("mine"), asyncio.CancelledError()])
def test_before_send_that_raises(error: BaseException) -> None:
    """A `before_send` that raises, be it a cancellation, forbids the try, and the error says what it raised."""

    def raising() -> bool:
        raise error

    progress = progress_of(raising)
    progress.start_try()
    with pytest.raises(StoppedError):
        progress.sending()
    decision = progress.decision
    assert isinstance(decision, NotSentError)
    assert (decision.reason, progress.outcome) == ("withheld", NOT_SENT)
    assert f"before_send raised {type(error).__name__}" in decision.message


def test_interrupted_before_sending() -> None:
    """An interrupt within `before_send` passes through: nothing was sent."""

    def interrupted() -> bool:
        raise KeyboardInterrupt

    progress = progress_of(interrupted)
    progress.start_try()
    progress.connecting()
    progress.connected()
    with pytest.raises(KeyboardInterrupt):
        progress.sending()
    assert progress.outcome is NOT_SENT
