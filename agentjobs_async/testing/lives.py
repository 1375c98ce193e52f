"""Scripted lives: how long a job of the emulator runs, and how it ends."""

import random
from collections.abc import Callable
from typing import Literal

import attrs

__all__ = ["JobLife", "LifeOf", "LifeScripts", "RandomLives"]

Outcome = Literal["completed", "failed", "archived"]


@attrs.frozen(kw_only=True)
class JobLife:
    """The script of one job; the emulator divides every time in it by its `speed`.

    Args:
        duration: Seconds from the creation until the job has ended; infinity never ends it.
        outcome: The status it ends with.
        pull_request: Whether a completed job has a `prLink`.
        visible_after: Seconds from the creation during which reading the job answers 404.
        stages: Statuses on the way, each with the second from which on it is shown, in rising order.
        job_id: The id the service gives to the job; `None` numbers it.
    """

    duration: float = 0.1
    outcome: Outcome = "completed"
    pull_request: bool = True
    visible_after: float = 0.0
    stages: tuple[tuple[float, str], ...] = ()
    job_id: str | None = None

    def status_at(self, age: float) -> str:
        """Give the status that a job of this age, in seconds, shows."""
        if age >= self.duration:
            return self.outcome
        reached = [status for start, status in self.stages if age >= start]
        return reached[-1] if reached else "active"


LifeOf = Callable[[str, str], JobLife]
"""Chooses a life for a project id and a prompt."""


@attrs.frozen(kw_only=True)
class RandomLives:
    """Lives drawn from a seed: the same seed, project and prompt give the same life.

    Args:
        seed: Any whole number.
        shortest: Seconds.
        longest: Seconds.
        failed: The share of jobs that fail, from 0 to 1.
        archived: The share of jobs that get archived, from 0 to 1.
        unchanged: The share of completed jobs that changed no file and have no pull request, from 0 to 1.
    """

    seed: int = 0
    shortest: float = 60.0
    longest: float = 300.0
    failed: float = 0.0
    archived: float = 0.0
    unchanged: float = 0.0

    def __call__(self, project_id: str, prompt: str) -> JobLife:
        """Draw the life of a job."""
        draw = random.Random(f"{self.seed}/{project_id}/{prompt}")  # noqa: S311 - a script, not a secret
        return JobLife(
            duration=draw.uniform(self.shortest, self.longest),
            outcome=self._outcome(draw.random()),
            pull_request=draw.random() >= self.unchanged,
        )

    def _outcome(self, share: float) -> Outcome:
        if share < self.failed:
            return "failed"
        return "archived" if share < self.failed + self.archived else "completed"


class LifeScripts:
    """Chooses the newest script that fits a project and a prompt."""

    def __init__(self, default: JobLife | LifeOf) -> None:
        self._default = default
        self._scripts: list[tuple[JobLife, str | None, str | None]] = []

    def add(self, life: JobLife, project_id: str | None, prompt: str | None) -> None:
        """Add a script; `None` fits any."""
        self._scripts.append((life, project_id, prompt))

    def __call__(self, project_id: str, prompt: str) -> JobLife:
        """Choose a life."""
        for life, for_project, for_prompt in reversed(self._scripts):
            if for_project in (None, project_id) and for_prompt in (None, prompt):
                return life
        default = self._default
        return default if isinstance(default, JobLife) else default(project_id, prompt)
