"""Scripts of jobs."""

import math

import pytest

from agentjobs_async.testing import JobScript, RandomScripts
from agentjobs_async.testing.scripts import ScriptTable


@pytest.mark.parametrize(
    ("age", "status"), [(0, "active"), (1, "paused"), (2.5, "active"), (3, "failed"), (99, "failed")]
)
def test_stages(age: float, status: str) -> None:
    """A job shows its stages in their order and then its outcome."""
    script = JobScript(duration=3, outcome="failed", stages=((1, "paused"), (2, "active")))
    assert script.status_at(age) == status


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


@pytest.mark.parametrize(
    ("script", "setting"),
    [
        (JobScript, {"duration": -1}),
        (JobScript, {"outcome": "complete"}),
        (JobScript, {"outcome": "active"}),
        (JobScript, {"visible_after": -0.1}),
        (JobScript, {"duration": "5"}),
        (JobScript, {"duration": True}),
        (JobScript, {"duration": math.nan}),
        (JobScript, {"stages": ((2, "a"), (1, "b"))}),
        (JobScript, {"stages": "ab"}),
        (JobScript, {"stages": 5}),
        (JobScript, {"stages": ((1, None),)}),
        (JobScript, {"job_id": ""}),
        (JobScript, {"job_id": 5}),
        (RandomScripts, {"shortest": -1}),
        (RandomScripts, {"failed": 1.5}),
    ],
)
def test_no_script(script: type, setting: dict[str, object]) -> None:
    """A script that is not valid is refused by the name of its setting."""
    with pytest.raises(ValueError, match=f"'{min(setting)}' must be"):
        script(**setting)


def test_newest_script_that_fits() -> None:
    """The newest script that matches a project and a prompt holds, otherwise the default."""
    scripts = ScriptTable(JobScript(duration=1))
    scripts.add(JobScript(duration=2), "docs", None)
    scripts.add(JobScript(duration=3), None, "write")
    assert [scripts(*job).duration for job in [("web", "x"), ("docs", "x"), ("docs", "write"), ("web", "write")]] == [
        1,
        2,
        3,
        3,
    ]


def test_default_may_be_a_function() -> None:
    """The default may be a function of project and prompt."""
    scripts = ScriptTable(lambda project_id, prompt: JobScript(job_id=f"{project_id}-{prompt}"))
    assert scripts("docs", "write").job_id == "docs-write"
