"""Scripted lives: how long a job of the emulator runs, and how it ends."""

import random
from collections.abc import Callable
from typing import Literal, get_args

import attrs
from attrs import field
from attrs.validators import and_, ge, in_, le

__all__ = ["JobLife", "LifeOf", "LifeScripts", "RandomLives"]

Outcome = Literal["completed", "failed", "archived"]

_SECONDS = ge(0.0)
_SHARE = and_(ge(0.0), le(1.0))


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

    Raises:
        ValueError: A time is negative, or the outcome no terminal status; other statuses go into `stages`.
    """

    duration: float = field(default=0.1, validator=_SECONDS)
    outcome: Outcome = field(default="completed", validator=in_(get_args(Outcome)))
    pull_request: bool = True
    visible_after: float = field(default=0.0, validator=_SECONDS)
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

    Raises:
        ValueError: A time is negative, or a share not from 0 to 1.
    """

    seed: int = 0
    shortest: float = field(default=60.0, validator=_SECONDS)
    longest: float = field(default=300.0, validator=_SECONDS)
    failed: float = field(default=0.0, validator=_SHARE)
    archived: float = field(default=0.0, validator=_SHARE)
    unchanged: float = field(default=0.0, validator=_SHARE)

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
