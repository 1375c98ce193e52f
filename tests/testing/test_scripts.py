"""Scripts of jobs."""

import math

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.testing import Emulator, JobScript, RandomScripts
from agentjobs_async.testing._scripts import ScriptTable
from tests.rows import failures


def test_stages() -> None:
    """A job shows its stages in their order and then its outcome."""
    script = JobScript(duration=3, outcome="failed", stages=((1, "paused"), (2, "active")))
    shown = {0: "active", 1: "paused", 2.5: "active", 3: "failed", 99: "failed"}
    assert {age: script.status_at(age) for age in shown} == shown


def test_random_scripts_repeat() -> None:
    """The same seed, project and prompt make the same script, and another seed makes another."""
    assert RandomScripts(seed=1)("docs", "a") == RandomScripts(seed=1)("docs", "a")
    assert RandomScripts(seed=1)("docs", "a") != RandomScripts(seed=2)("docs", "a")


def test_random_scripts_keep_their_bounds() -> None:
    """Random scripts last from the shortest to the longest, and end in the given shares."""
    scripts = RandomScripts(shortest=1, longest=2, failed=0.2, archived=0.3, unchanged=0.5)
    drawn = [scripts("docs", str(number)) for number in range(2000)]
    assert all(1 <= script.duration <= 2 for script in drawn)
    shares = [
        sum(script.outcome == outcome for script in drawn) / 2000 for outcome in ("failed", "archived", "completed")
    ]
    assert shares == pytest.approx([0.2, 0.3, 0.5], abs=0.05)
    assert sum(script.pull_request for script in drawn) / 2000 == pytest.approx(0.5, abs=0.05)


def test_no_script() -> None:
    """A script that is not valid is refused by the name of its setting."""

    def check(script: type, name: str, value: object) -> None:
        with pytest.raises(ValueError, match=f"{name} must be"):
            script(**{name: value})

    stages: list[object] = [((2, "a"), (1, "b")), "ab", 5, ((1, None),)]
    rows = [
        *((JobScript, "duration", value) for value in (-1, "5", True, math.nan)),
        *((JobScript, "outcome", value) for value in ("complete", "active")),
        *((JobScript, "stages", value) for value in stages),
        *((JobScript, "job_id", value) for value in ("", 5)),
        (JobScript, "visible_after", -0.1),
        (RandomScripts, "shortest", -1),
        (RandomScripts, "failed", 1.5),
    ]
    assert failures(check, *rows) == {}


def test_a_class_is_no_script() -> None:
    """A class in place of an instance is refused, before a job would get it."""
    for script in (JobScript, RandomScripts):
        with pytest.raises(InvalidInputError, match=rf"script must be a JobScript, or a function .*{script.__name__}"):
            Emulator(script=script)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(InvalidInputError, match="script must be of type JobScript, not the class itself"):
        Emulator().script(JobScript)  # type: ignore[arg-type]  # what is refused


def test_default_may_be_a_function() -> None:
    """The default may be a function of project and prompt."""
    scripts = ScriptTable(lambda project_id, prompt: JobScript(job_id=f"{project_id}-{prompt}"))
    assert scripts("docs", "write").job_id == "docs-write"
