"""Durations and jobs for the tests of this directory."""

import random
from math import log
from typing import Final

from agentjobs_async import AgentJob, History
from agentjobs_async.policy import CallState

ACTIVE: Final = AgentJob("job_1", "docs", "active")


def two_humps(dice: random.Random) -> float:
    """Return a duration of about 20 s or of about 8 min."""
    return dice.lognormvariate(log(dice.choice((20, 480))), 0.2)


def history_of(durations: list[float]) -> History:
    """Return a history in which each duration is known to a second."""
    history = History()
    for duration in durations:
        history.add(max(duration - 1, 0), duration)
    return history


class OnePoll:
    """The polls of one job so far, as strategies read them."""

    started = created = 0.0
    polls = 1

    def __init__(self, job: AgentJob) -> None:
        self.job = job
        self.ref = job.ref


def poll_at(age: float, job: AgentJob = ACTIVE, error: Exception | None = None) -> CallState:
    """Return what a strategy is called with after a poll at `age` seconds, which showed `job`, or has failed."""
    return CallState(OnePoll(job), error or job, age)
