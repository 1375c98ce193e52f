"""The gates of a run's creates: what holds back one project, and what holds back all."""

import asyncio

import pytest

from agentjobs_async import AgentJobsError, CreateOutcomeUnknownError
from agentjobs_async.batch import Rate
from agentjobs_async.batch._run.create_gate import Reason
from agentjobs_async.batch._run.create_gates import CreateGates, Permit
from agentjobs_async.batch._store.claims import NoRoomError
from tests.batch.stage import rate_limited, refused_key

pytestmark = pytest.mark.looptime

WHY = AgentJobsError("nothing goes")


def gates_of(rate: Rate | None = None) -> CreateGates:
    return CreateGates(rate, [], refused_for=60.0)


async def passed(gates: CreateGates, project: str) -> Permit:
    """Return a permit that has passed both gates of a project."""
    permit = gates.permit(project)
    for _ in permit.gates:
        assert await permit.pass_next()
    return permit


async def seconds_until(gates: CreateGates, *projects: str) -> list[float]:
    """Let a create of each project go and be answered; return after how many seconds each went."""
    loop = asyncio.get_running_loop()
    began, gone = loop.time(), []
    for project in projects:
        permit = await passed(gates, project)
        gone.append(round(loop.time() - began, 1))
        permit.spend()
    return gone


async def test_a_rate_of_each_project() -> None:
    """A rate counts each project for itself; one of all projects counts them together, with those of earlier runs."""
    assert await seconds_until(gates_of(Rate(1, per=10)), "a", "b", "a", "b") == [0, 0, 10, 10]
    assert await seconds_until(gates_of(Rate(1, per=10, scope="all")), "a", "b", "c") == [0, 10, 20]
    earlier = CreateGates(Rate(2, per=10, scope="all"), [("a", 4.0), ("b", 3.0)], refused_for=60.0)
    assert await seconds_until(earlier, "c", "c") == [6, 7]


async def test_what_holds_back_one_project() -> None:
    """A 429, a refused key and an outage hold back their own project alone; what can't be sent holds back all."""
    loop = asyncio.get_running_loop()
    gates = gates_of()
    gates.limit(await passed(gates, "limited"), rate_limited(50.0), loop.time())
    gates.refuse(await passed(gates, "refused"), refused_key())
    for permit in [await passed(gates, "broken") for _ in range(3)]:
        gates.count_unknown(permit, CreateOutcomeUnknownError("it broke"))
    held = {name: gates.may_go(name) for name in ("limited", "refused", "broken", "free")}
    assert held == {"limited": False, "refused": False, "broken": False, "free": True}
    assert {name for name in held if gates.is_refused(name)} == {"refused"}
    assert gates.paused_by(["free"]) is None
    assert isinstance(gates.paused_by(["broken", "free"]), CreateOutcomeUnknownError)
    gates.hold_all(20.0, WHY)
    assert gates.paused_by(["free"]) is WHY
    gates.common.hold(Reason.FULL, 20.0, NoRoomError("max_active"))
    assert gates.paused_by(["free"]) == gates.common.paused_by
    assert isinstance(gates.paused_by(["broken", "free"]), CreateOutcomeUnknownError)  # no fault hides what failed
    assert await seconds_until(gates, "free", "limited") == [20, 50]


async def test_a_refused_permit() -> None:
    """A create of a refused project is not let go, and takes no part of the rate; after its time one tries again."""
    gates = gates_of(Rate(2, per=1000))
    gates.refuse(await passed(gates, "a"), refused_key())
    permit = gates.permit("a")
    assert not await permit.pass_next()
    permit.refund()
    await asyncio.sleep(60)
    permit = await passed(gates, "a")
    assert gates.next_at("a") is None  # one at a time
    assert not gates.accept(permit)
    assert (gates.is_refused("a"), gates.succeeded) == (False, True)


async def test_a_success_ends_a_refusal() -> None:
    """A create that was let go before its project was refused, and that succeeds, ends the refusal at once."""
    gates = gates_of()
    first, second = await passed(gates, "a"), await passed(gates, "a")
    gates.refuse(first, refused_key())
    assert gates.accept(second)
    assert gates.may_go("a")


async def test_a_permit_that_was_recalled() -> None:
    """A create that was let go and not sent is held back by what is learned meanwhile, be it of its project or all."""
    gates = gates_of()
    own, other = await passed(gates, "a"), await passed(gates, "b")
    gates.limit(await passed(gates, "a"), rate_limited(5.0), 0.0)
    assert (own.is_current, other.is_current) == (False, True)
    gates.hold_all(1.0, WHY)
    assert not other.is_current


async def test_a_permit_counts_once() -> None:
    """A create that was counted is not discarded after that, nor the other way round."""
    gates = gates_of(Rate(1, per=100))
    counted, discarded = await passed(gates, "a"), await passed(gates, "b")
    counted.spend()
    counted.refund()
    discarded.refund()
    discarded.spend()
    assert (gates.may_go("a"), gates.may_go("b")) == (False, True)
    assert await seconds_until(gates, "b", "a") == [0, 100]


async def test_a_hold_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Many creates that are refused at once, or can't be sent, are one line of a log; a longer hold is another."""
    loop, gates = asyncio.get_running_loop(), gates_of()
    permits = [await passed(gates, "a") for _ in range(40)]
    for permit in permits:
        gates.limit(permit, rate_limited(5.0), loop.time())
    for seconds in (*[1.0] * 20, 4.0, *[1.0] * 20):
        gates.hold_all(seconds, WHY)
    await asyncio.sleep(4.0)
    for _ in range(20):
        gates.hold_all(1.0, WHY)
    said = [message.split(":")[0] for message in caplog.messages]
    assert said == [
        "creates of project a are held back for 5 s",
        *(f"all creates are held back for {seconds} s" for seconds in (1, 4, 1)),
    ]
