"""Each rule on made-up records: it says nothing of a good world, and something of one that breaks its promise."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from agentjobs_async.batch import Limits, Rate, State
from tests.simulation.postgresql.plan import KEY, extra_of, plan_of
from tests.simulation.postgresql.records import Agent, Change, Happened, Records, Report, Request
from tests.simulation.postgresql.referee import RULES, broken_promises

LIMITS = Limits(max_active=1, create_rate=Rate(1, per=1.0), polls_per_second=1.0)
PROGRAM = evolve(plan_of(0).programs[0], keys=("d0", "d1"))
PLAN = evolve(plan_of(0), owner_timeout=1.5, limits=LIMITS, programs=(PROGRAM,))


def row(at: float, state: State, key: str = "d0", **others: Any) -> Change:
    settings: dict[str, Any] = {
        "owner": 7,
        "claim": f"claim of {key}",
        "is_followed": True,
        "follower": 7,
        "prompt": key,
        "project": "docs",
    }
    return Change(at, key=key, state=state, **settings | others)


def create(at: float, key: str = "d0", **others: Any) -> Request:
    settings: dict[str, Any] = {"sender": "p0.1", "kind": "create", "project": "docs", "subject": key}
    extra = None if others.get("kind") == "poll" else extra_of(key)
    return Request(at, **settings | {"extra": extra} | others)


def report(at: float, what: str, sender: str = "p0.1", **about: Any) -> Report:
    return Report(at, sender, what, about)


def told(at: float, state: str = "completed", **others: Any) -> Report:
    about: dict[str, Any] = {"key": "d0", "state": state, "end": state, "job": "job_1", "raises": False}
    return report(at, "told", **about | others)


AGENT = Agent("job_1", "d0", "docs", started=2.0, ended=3.0, end="completed")
ROWS = (
    row(1.0, State.PLANNED, claim=None),
    row(1.5, State.SENDING),
    row(2.1, State.ACTIVE, job_id="job_1"),
    row(3.5, State.COMPLETED, job_id="job_1"),
)
OTHER = (
    row(6.0, State.SENDING, "d1"),
    row(6.6, State.ACTIVE, "d1", job_id="job_2", is_followed=False, is_unfollowed=True),
)
RESULT = report(4.2, "result", key="d0", outcome="completed", job="job_1")
GOOD = Records(
    PLAN,
    requests=(create(2.0), create(2.5, "job_1", kind="poll"), create(6.5, "d1")),
    agents=(AGENT, Agent("job_2", "d1", "docs", started=6.5, ended=60.0, end="failed")),
    changes=ROWS + OTHER,
    reports=(
        report(0.0, "begins", process=7),
        report(0.5, "enters"),
        *(report(at, "polled", job="job_1") for at in (2.5, 3.1, 3.6)),
        told(4.0),
        RESULT,
        report(7.0, "leaves"),
    ),
    beats=(*((0.4 + 0.5 * number, 7) for number in range(10)), (9.0, 7)),
    exits={"p0.1": 8.0},
)


def changed(**others: Any) -> Records:
    """Return the good world with other records."""
    return evolve(GOOD, **others)


def more(**others: Any) -> Records:
    """Return the good world with more records."""
    return evolve(GOOD, **{name: getattr(GOOD, name) + values for name, values in others.items()})


def broken() -> Iterator[tuple[str, Records]]:
    """Yield what a rule says first, and records that break its promise."""
    unknown = (*ROWS[:2], row(2.1, State.UNKNOWN))
    yield "P1: d0 has 2 agents in 1 tries", more(agents=(evolve(AGENT, job_id="job_3"),))
    yield "P3: d0 has lost", changed(changes=(*ROWS[:2], row(2.1, State.REJECTED), *OTHER))
    yield "P12: d0 has job_9", changed(changes=(*ROWS[:3], row(3.5, State.COMPLETED, job_id="job_9"), *OTHER))
    yield "P12: d0 has job_1", changed(changes=(*ROWS[:3], evolve(ROWS[3], project="blog"), *OTHER))
    yield "P12: d0 is failed", changed(changes=(*ROWS[:3], row(3.5, State.FAILED, job_id="job_1"), *OTHER))
    yield "P12: d0 was completed before", changed(changes=(*ROWS[:3], evolve(ROWS[3], at=2.9), *OTHER))
    yield "P3: d0 is active at the end", changed(changes=ROWS[:3] + OTHER)
    yield "P3: d1 is planned at the end", more(changes=(row(7.0, State.PLANNED, "d1", is_unfollowed=True),))
    yield "P3: d1 has no row", changed(changes=ROWS)
    yield "P3: p0.1 did not end", changed(stuck=("p0.1 did not end",))
    yield "P3: d0 is unknown without a cause", changed(changes=unknown + OTHER)
    yield "Place: p0.1 sends a create of d0 to blog", changed(requests=(create(2.0, project="blog"),))
    yield "Place: p0.1 sends d0 with {'of': 'd1'}, not None", changed(requests=(create(2.0, extra={"of": "d1"}),))
    yield "Place: p0.1 sends d1 with None, not {'of': 'd1'}", changed(requests=(create(6.5, "d1", extra=None),))
    yield "Place: p0.1 sends a poll of job_1", changed(requests=(create(2.5, "job_1", kind="poll", project="blog"),))
    yield "Sender: p0.1 sends d0 at 3.000 without a claim", more(requests=(create(3.0),))
    yield "Sender: p0.2 sends d0", changed(requests=(create(2.0, sender="p0.2"),))
    yield "Sender: p0.1 sends d0 at 2.900, 0.750 s after it was active", changed(requests=(create(2.9),))
    yield "Teller: d0 was told as completed before", more(reports=(told(3.4),))
    yield "Teller: d0 was told as ['completed', 'failed']", more(reports=(told(4.5, "failed"),))
    yield "Teller: d0, completed, was told as", more(reports=(told(4.5, job="job_2"),))
    yield "Teller: d0 was told as failed of job_1", more(reports=(told(4.5, end="failed"),))
    yield "Teller: p0.1 and p0.1 told the end of d0", more(reports=(told(4.5),))
    yield "Teller: the end of d0, completed, was never", changed(reports=GOOD.reports[:5] + GOOD.reports[6:])
    yield from broken_by_owners()
    unfollowed = report(2.5, "unfollowed", key="d0", was_followed=True)
    yield "Teller: p0.1 told the end of d0 at 4.000, which was unfollowed", more(reports=(unfollowed,))
    yield "Result: p0.1 says that d0 is completed, which", more(reports=(evolve(RESULT, at=3.0),))
    yield (
        "Result: p0.1 says that d0 is completed, by job_2",
        more(reports=(evolve(RESULT, about=RESULT.about | {"job": "job_2"}),)),
    )
    yield "P8: p0.1 sends a poll of job_1 at 7.500", more(requests=(create(7.5, "job_1", kind="poll"),))
    yield (
        "P8: p0.1 sends a poll of job_1 at 8.500",
        more(requests=(create(8.5, "job_1", kind="poll"),), reports=(report(7.6, "enters"),)),
    )
    yield "P10: the key was written", changed(text=f"an error with {KEY}")
    yield "P12: p0.1 failed: Type", more(reports=(report(7.0, "fails", error="TypeError", text="TypeError"),))
    yield "P12: p0.1 failed: Journal", more(reports=(report(7.0, "fails", error="JournalError", text="JournalError"),))
    yield "P12: p0.1 has not ended", changed(exits={})
    yield "Rate: 2 creates of docs", more(requests=(create(7.4, "d1"),))
    yield "Active: p0.1 sends d1", changed(requests=(create(2.5, "d1"),))
    yield "Polls: more than 2 polls", more(reports=(report(3.2, "polled", job="job_1"),))
    stopped = (Happened(5.0, 7.0, "p0.1", "stop"),)
    yield "Polls: p0.1 polls at 7.500", more(happened=stopped, reports=(report(7.5, "polled", job="job_1"),))
    silent = {"beats": GOOD.beats[:10], "happened": stopped}
    yield "Polls: p0.1 polls at 7.400", changed(**silent, reports=(*GOOD.reports, report(7.4, "polled", job="job_1")))


def broken_by_owners() -> Iterator[tuple[str, Records]]:
    """Yield the same of who has, and who tells of, a job."""
    taken = (*ROWS[:3], row(2.2, State.ACTIVE, job_id="job_1", owner=8, follower=8), *ROWS[3:], *OTHER)
    other = report(0.1, "begins", "p1.1", process=8)
    yield "Teller: p1.1 takes d0 over from p0.1", changed(changes=taken, reports=(*GOOD.reports, other))
    returned = (*GOOD.reports, other, report(0.3, "enters"), report(0.4, "leaves"))
    yield "Teller: p1.1 takes d0 over from p0.1", changed(changes=taken, reports=returned)
    yield "Owner: p0.1, which is alive, loses d0 to p1.1", changed(changes=taken, reports=(*GOOD.reports, other))
    foreign = (*GOOD.requests, create(2.6, "job_1", kind="poll", sender="p1.1"))
    yield "Owner: p1.1 polls job_1", changed(requests=foreign, reports=(*GOOD.reports, other))
    other = report(0.2, "enters", "p1.1")
    killed = {"exits": {"p0.1": 2.2}, "happened": (Happened(2.2, 2.3, "p0.1", "kill"),)}
    living = (*GOOD.reports, report(0.1, "begins", "p1.1", process=8, program="durable"), other)
    yield "Owner: d0 is still that of p0.1", changed(changes=ROWS[:3] + OTHER, reports=living, **killed)
    yield "Result: ['p0.1', 'p1.1'] say that d0", more(reports=(evolve(RESULT, sender="p1.1"),))
    owned = (row(6.6, State.ACTIVE, "b0", job_id="job_2", is_followed=False), row(6.7, State.FAILED, "b0"))
    own = tuple(evolve(one, is_followed=False, follower=None) for one in owned)
    yield "Result: p0.1 has recorded that b0 is failed", more(changes=own)
    yield "Result: the run of p0.1 has ended, and ['d1']", more(reports=(report(7.5, "finished", open=["d1"]),))


def test_good_records() -> None:
    """No rule says anything of a world in which all promises were kept."""
    assert list(broken_promises(GOOD)) == []


@pytest.mark.parametrize(("said", "records"), [pytest.param(*each, id=each[0]) for each in broken()])
def test_broken_promise(said: str, records: Records) -> None:
    """A broken promise is told of."""
    assert [one for one in broken_promises(records) if one.startswith(said)]


def test_each_rule_fires() -> None:
    """There is no rule that none of the broken worlds is told of by."""
    assert [rule.__name__ for rule in RULES if not any(list(rule(records)) for _, records in broken())] == []


@pytest.mark.parametrize("what", ["kill", "stop", "cut", "warned"])
def test_causes(what: str) -> None:
    """Unknown and told again are no wonder where the process was disturbed."""
    unknown = (*ROWS[:2], row(2.1, State.UNKNOWN), *ROWS[2:], *OTHER)
    disturbed = evolve(
        GOOD, changes=unknown, happened=(Happened(1.4, 2.0, "p0.1", what),), reports=(*GOOD.reports, told(4.5))
    )
    assert list(broken_promises(disturbed)) == []
    assert len(list(broken_promises(evolve(disturbed, happened=(Happened(1.4, 2.0, "p1.1", what),))))) == 2
    unsure = evolve(GOOD, changes=unknown, requests=(create(2.0, fault="reset on=create"), *GOOD.requests[1:]))
    assert list(broken_promises(unsure)) == []
    refused = evolve(GOOD, changes=unknown, requests=(create(2.0, fault="429 on=create"), *GOOD.requests[1:]))
    assert len(list(broken_promises(refused))) == 1
