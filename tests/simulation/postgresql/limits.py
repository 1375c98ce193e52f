"""Whether the limits of the journal held, for all processes together."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from agentjobs_async.batch import State
from tests.simulation.postgresql.records import Agent, Records

_ROUNDING_SECONDS: Final = 0.01
_CLEAN: Final = (State.PLANNED, State.SENDING, State.ACTIVE, State.COMPLETED, State.ARCHIVED, State.FAILED)


def rate(records: Records) -> Iterator[str]:
    """Rate: no span sees more creates arrive than the rate allows, those that were refused among them."""
    limit = records.plan.limits.create_rate
    if limit is None:
        return
    sent: dict[str, list[float]] = defaultdict(list)
    for one in records.creates:
        sent[one.project if limit.scope == "project" else "all"].append(one.at)
    for which, moments in sent.items():
        for first, last in zip(sorted(moments), sorted(moments)[limit.count :], strict=False):
            if last - first < limit.per - _ROUNDING_SECONDS - records.lateness_in(first - 1, last):
                yield (
                    f"Rate: {limit.count + 1} creates of {which} within {last - first:.3f} s, at {first:.3f}; "
                    f"allowed are {limit.count} in {limit.per:g} s"
                )


def active(records: Records) -> Iterator[str]:
    """Active: no create is sent while `max_active` agents are at work, of rows that were never in doubt."""
    most = records.plan.limits.max_active
    if most is None:
        return
    agents = [agent for agent in records.agents if _is_clean(records, agent)]
    for one in records.creates:
        at_work = [agent for agent in agents if agent.started < one.at < agent.ended and agent.prompt != one.subject]
        if len(at_work) >= most:
            yield f"Active: {one.sender} sends {one.subject} at {one.at:.3f} beside {len(at_work)} agents, of {most}"


def _is_clean(records: Records, agent: Agent) -> bool:
    changes = records.of_prompt(agent.prompt)
    has_error = any(change.error is not None for change in changes if change.job_id is not None)
    return (
        bool(changes)
        and not has_error
        and all(
            change.state in _CLEAN and not change.is_unfollowed and change.job_id in {None, agent.job_id}
            for change in changes
        )
    )


def polls(records: Records) -> Iterator[str]:
    """Polls: in no second more of them start than the limit and one for each owner."""
    limit = records.plan.limits.polls_per_second
    if limit is None:
        return
    most = limit + len(records.plan.programs)
    starts = [one.at for one in sorted(records.said("polled"), key=lambda one: one.at)]
    for first, last in zip(starts, starts[int(most) :], strict=False):
        if last - first < 1 - _ROUNDING_SECONDS:
            yield f"Polls: more than {most:g} polls begin in the second from {first:.3f} on"
            return


def stood_still(records: Records) -> Iterator[str]:
    """Polls: an owner that stood still past its timeout polls nothing before its next heartbeat."""
    if records.plan.limits.polls_per_second is None:
        return
    for stop in [one for one in records.happened if one.what == "stop"]:
        process = records.processes.get(stop.sender or "")
        if stop.until - stop.at <= records.plan.owner_timeout or process is None:
            continue
        beat = min((at for at, of in records.beats if of == process and at > stop.until), default=inf)
        for one in records.said("polled"):
            if one.sender == stop.sender and stop.until < one.at < beat:
                yield f"Polls: {one.sender} polls at {one.at:.3f}, before its next heartbeat at {beat:.3f}"
