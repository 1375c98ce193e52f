"""Durations and jobs for the tests of this directory."""

import random
from math import log

from agentjobs_async import AgentJob, History, JobRef
from agentjobs_async.policy import CallState


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
    job: AgentJob | None = None
    polls = 1
    ref = JobRef("docs", "job_1")


def poll_at(age: float, answer: object = None) -> CallState:
    """Return what a strategy is called with after a poll at `age` seconds, which showed `answer` or an active job."""
    return CallState(OnePoll(), answer or AgentJob("job_1", "docs", "active"), age)
