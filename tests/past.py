"""States of waits, for the tests of what the next answer means."""

from typing import Any

import tenacity

from agentjobs_async._polling.wait_state import Answer, WaitState
from agentjobs_async.models import AgentJob, JobRef, Seen
from agentjobs_async.policy import PollPolicy

ACTIVE = AgentJob("job", "docs", "active")


NOW = 1000.0


POLICY = PollPolicy(wait=tenacity.wait_fixed(5))


def past(**fields: Any) -> WaitState:
    """Return the state of a wait that began now, whose first poll is in flight, but for `fields`."""
    state = WaitState(JobRef("docs", "job"), None, NOW)
    for name, value in ({"polls": 1} | fields).items():
        setattr(state, name, value)
    return state


def again(
    answer: AgentJob | Answer, policy: PollPolicy = POLICY, state: WaitState | None = None, now: float = NOW
) -> WaitState:
    """Return the state after an answer that ends no wait."""
    state = state or past()
    assert state.apply(policy, Seen(answer) if isinstance(answer, AgentJob) else answer, now) is None
    return state
