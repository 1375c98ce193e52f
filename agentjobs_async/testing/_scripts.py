"""Scripts of the emulator's jobs: how long one runs, and how it ends."""

import random
from collections.abc import Callable
from math import inf
from typing import Any, Literal, get_args

import attrs
from attrs import field

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import checked_instance, checked_seconds, validator

EndStatus = Literal["completed", "failed", "archived"]

_seconds = validator(checked_seconds, zero=True)


def _check_duration(_script: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if value != inf:
        checked_seconds(attribute.name, value, zero=True)


def _check_share(_scripts: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInputError(f"{attribute.name} must be a share from 0 to 1, not {value!r:.100}")


def _check_stages(_script: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    try:
        starts = [checked_seconds("start", start, zero=True) for start, status in value if isinstance(status, str)]
        fit = len(starts) == len(value) and starts == sorted(starts)
    except (TypeError, ValueError):
        fit = False
    if not fit:
        raise InvalidInputError(
            f"{attribute.name} must be pairs of second and status, in rising order, not {value!r:.100}"
        )


def _check_outcome(_script: object, _attribute: object, value: Any) -> None:
    if value not in get_args(EndStatus):
        ends = ", ".join(get_args(EndStatus))
        raise InvalidInputError(f"outcome must be one of {ends}, not {value!r:.100}: others belong in stages")


def _check_id(_script: object, _attribute: object, value: Any) -> None:
    if not (value is None or (isinstance(value, str) and value)):
        raise InvalidInputError(f"job_id must be a non-empty string, or None, not {value!r:.100}")


@attrs.frozen(kw_only=True)
class JobScript:
    """How one job runs; the emulator divides every time in it by its `speed`.

    Args:
        duration: Seconds from the creation to the end of the job; with infinity it never ends.
        outcome: The status it ends with.
        pull_request: Whether the job has a `prLink` once it is completed.
        visible_after: Seconds from the creation during which a read is answered with 404.
        stages: Statuses before the end, each with the second at which it begins, in rising order.
        job_id: The id of the job; `None` makes one that no job of another emulator has.

    Raises:
        InvalidInputError: A time is negative, or the outcome is no terminal status; others belong in `stages`.
    """

    duration: float = field(default=0.1, validator=_check_duration)
    outcome: EndStatus = field(default="completed", validator=_check_outcome)
    pull_request: bool = True
    visible_after: float = field(default=0.0, validator=_seconds)
    stages: tuple[tuple[float, str], ...] = field(default=(), validator=_check_stages)
    job_id: str | None = field(default=None, validator=_check_id)

    def status_at(self, age: float) -> str:
        """Return the status of a job `age` seconds after its creation."""
        if age >= self.duration:
            return self.outcome
        reached = [status for start, status in self.stages if age >= start]
        return reached[-1] if reached else "active"


ScriptOf = Callable[[str, str], JobScript]
"""Returns the script of a job from its project id and prompt."""


@attrs.frozen(kw_only=True)
class RandomScripts:
    """Random scripts from a seed: the same seed, project and prompt make the same script.

    Args:
        seed: Any whole number.
        shortest: The least duration in seconds.
        longest: The greatest duration in seconds.
        failed: The share of jobs that fail, from 0 to 1.
        archived: The share of jobs that are archived, from 0 to 1.
        unchanged: The share of completed jobs that changed no file and so have no pull request, from 0 to 1.

    Raises:
        InvalidInputError: A time is negative, or a share is not from 0 to 1.
    """

    seed: int = 0
    shortest: float = field(default=60.0, validator=_seconds)
    longest: float = field(default=300.0, validator=_seconds)
    failed: float = field(default=0.0, validator=_check_share)
    archived: float = field(default=0.0, validator=_check_share)
    unchanged: float = field(default=0.0, validator=_check_share)

    def __call__(self, project_id: str, prompt: str) -> JobScript:
        """Return the script of a job."""
        draw = random.Random(f"{self.seed}/{project_id}/{prompt}")  # noqa: S311 - a script, not a secret
        return JobScript(
            duration=draw.uniform(self.shortest, self.longest),
            outcome=self._outcome(draw.random()),
            pull_request=draw.random() >= self.unchanged,
        )

    def _outcome(self, share: float) -> EndStatus:
        if share < self.failed:
            return "failed"
        return "archived" if share < self.failed + self.archived else "completed"


class ScriptTable:
    """Chooses the newest script that matches a project and a prompt."""

    def __init__(self, default: JobScript | ScriptOf) -> None:
        if isinstance(default, type) or not (isinstance(default, JobScript) or callable(default)):
            raise InvalidInputError(f"script must be a JobScript, or a function that returns one, not {default!r:.100}")
        self._default = default
        self._scripts: list[tuple[JobScript, str | None, str | None]] = []

    def add(self, script: JobScript, project_id: str | None, prompt: str | None) -> None:
        """Add a script; `None` matches any project or prompt."""
        checked_instance("script", script, JobScript)
        self._scripts.append((script, project_id, prompt))

    def __call__(self, project_id: str, prompt: str) -> JobScript:
        """Return the script of a job."""
        for script, for_project, for_prompt in reversed(self._scripts):
            if for_project in (None, project_id) and for_prompt in (None, prompt):
                return script
        default = self._default
        return default if isinstance(default, JobScript) else default(project_id, prompt)
