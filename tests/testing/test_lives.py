"""Scripted lives."""

import pytest

from agentjobs_async.testing import JobLife, RandomLives
from agentjobs_async.testing.lives import LifeScripts


@pytest.mark.parametrize(
    ("age", "status"), [(0, "active"), (1, "paused"), (2.5, "active"), (3, "failed"), (99, "failed")]
)
def test_stages(age: float, status: str) -> None:
    """A life shows its stages in their order and then its outcome."""
    life = JobLife(duration=3, outcome="failed", stages=((1, "paused"), (2, "active")))
    assert life.status_at(age) == status


def test_random_lives_repeat() -> None:
    """The same seed, project and prompt give the same life, and another seed gives another."""
    assert RandomLives(seed=1)("docs", "a") == RandomLives(seed=1)("docs", "a")
    assert RandomLives(seed=1)("docs", "a") != RandomLives(seed=2)("docs", "a")


def test_random_lives_keep_their_bounds() -> None:
    """Random lives last between the shortest and the longest and end in the shares asked for."""
    lives = RandomLives(shortest=1, longest=2, failed=0.2, archived=0.3, unchanged=0.5)
    drawn = [lives("docs", str(number)) for number in range(2000)]
    assert all(1 <= life.duration <= 2 for life in drawn)
    shares = [sum(life.outcome == outcome for life in drawn) / 2000 for outcome in ("failed", "archived", "completed")]
    assert shares == pytest.approx([0.2, 0.3, 0.5], abs=0.05)
    assert sum(life.pull_request for life in drawn) / 2000 == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("script", "setting"),
    [
        (JobLife, {"duration": -1}),
        (JobLife, {"outcome": "complete"}),
        (JobLife, {"outcome": "active"}),
        (JobLife, {"visible_after": -0.1}),
        (RandomLives, {"shortest": -1}),
        (RandomLives, {"failed": 1.5}),
    ],
)
def test_no_life(script: type, setting: dict[str, object]) -> None:
    """A script that no job can live is refused by the name of its setting."""
    with pytest.raises(ValueError, match=f"'{min(setting)}' must be"):
        script(**setting)


def test_newest_script_that_fits() -> None:
    """Of the scripts that fit a project and a prompt the newest holds, and the default where none fits."""
    scripts = LifeScripts(JobLife(duration=1))
    scripts.add(JobLife(duration=2), "docs", None)
    scripts.add(JobLife(duration=3), None, "write")
    assert [scripts(*job).duration for job in [("web", "x"), ("docs", "x"), ("docs", "write"), ("web", "write")]] == [
        1,
        2,
        3,
        3,
    ]


def test_default_may_be_a_function() -> None:
    """A function of project and prompt serves as the default."""
    scripts = LifeScripts(lambda project_id, prompt: JobLife(job_id=f"{project_id}-{prompt}"))
    assert scripts("docs", "write").job_id == "docs-write"
