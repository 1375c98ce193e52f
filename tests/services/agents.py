"""What is behind the HTTP of a small service: agents that go on by one stage each time that somebody looks at them."""

from collections import Counter
from typing import Any

import attrs
from attrs import field

BREAK, CANCEL = "Break it", "Cancel it"
"""The prompts of jobs that fail, and of jobs that are cancelled at the service."""


@attrs.define
class Agent:
    """An agent at work on a prompt.

    Args:
        number: Its number, from 1001.
        prompt: The prompt.
        settings: What else its create said.
        looks: How often its job was read.
    """

    number: int
    prompt: str
    settings: dict[str, Any]
    looks: int = 0

    @property
    def link(self) -> str:
        """The address of its pull request."""
        return f"https://code.example/acme/pull/{self.number}"


@attrs.define
class Agents:
    """The agents of one service.

    Args:
        started: All of them, in order.
        held: Whether they stay at work until it is taken back.
    """

    started: list[Agent] = field(factory=list)
    held: bool = False

    @property
    def counts(self) -> Counter[str]:
        """The number of agents for each prompt."""
        return Counter(agent.prompt for agent in self.started)

    @property
    def looked_at(self) -> int:
        """The number of agents whose jobs have been read."""
        return sum(agent.looks > 0 for agent in self.started)

    def start(self, prompt: str, **settings: Any) -> Agent:
        """Start an agent."""
        agent = Agent(1001 + len(self.started), prompt, settings)
        self.started.append(agent)
        return agent

    def find(self, number: str) -> Agent | None:
        """Return the agent of a job, which is read now; `None` if there is none."""
        for agent in self.started:
            if str(agent.number) == number:
                agent.looks += 1
                return agent
        return None

    def stage(self, agent: Agent) -> str:
        """Return `queued` until the first read, `working` at that, and then how it ended."""
        if agent.looks < 2 or self.held:
            return "working" if agent.looks else "queued"
        return {BREAK: "broken", CANCEL: "cancelled"}.get(agent.prompt, "done")
