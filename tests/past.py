"""Histories of polls, for the tests of what comes after them."""

import tenacity
from attrs import define

from agentjobs_async._polling.decision import Again, Answer, decide
from agentjobs_async.models import AgentJob
from agentjobs_async.policy import PollPolicy

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
    shown: int = 0
    refused_since: float | None = None
    job: AgentJob | None = None
    created: float = NOW

    def after(self, decision: Again) -> "Past":
        return Past(
            self.started, decision.seen, self.polls + 1, decision.bad_answers, decision.shown, decision.refused_since
        )


START = Past(NOW, NOW)


def again(answer: Answer, policy: PollPolicy = POLICY, history: Past = START, now: float = NOW) -> Again:
    decision = decide(policy, history, answer, now)
    assert isinstance(decision, Again)
    return decision
