"""Which projects are held, and until when."""

from math import inf

from agentjobs_async._polling.holds import Holds


def test_longest_pause() -> None:
    """Of several pauses of a project the longest counts; those of others are their own."""
    holds = Holds()
    assert holds.ends_at == inf
    assert holds.pause("docs", 105.0, 3)
    assert not holds.pause("docs", 103.0, 3)
    assert holds.pause("docs", 110.0, 3)
    assert holds.pause("blog", 107.0, 3)
    assert holds.ends_at == 105.0
    assert [holds.end_due(now) for now in (104.9, 105.0, 107.0, 110.0)] == [[], [], ["blog"], ["docs"]]
    assert holds.ends_at == inf


def test_what_a_hold_holds() -> None:
    """A pause that the server asked for holds urgent jobs, too; the rest between two polls does not."""
    holds = Holds()
    holds.pause("docs", 105.0, 3)
    pause = holds.by_project["docs"]
    assert [pause.holds(urgent=urgent) for urgent in (False, True)] == [True, True]
    assert holds.end_due(105.0) == ["docs"]
    assert [pause.holds(urgent=urgent) for urgent in (False, True)] == [False, False]
    holds.rest("docs", 107.0)
    rest = holds.by_project["docs"]
    assert (rest.until, rest.released_at, rest.jobs) == (107.0, 105.0, 3)
    assert [rest.holds(urgent=urgent) for urgent in (False, True)] == [True, False]


def test_pause_amid_a_rest() -> None:
    """A pause that the server asks for takes the place of a rest, whichever ends first."""
    holds = Holds()
    holds.pause("docs", 100.0, 3)
    assert holds.end_due(100.0) == ["docs"]
    holds.rest("docs", 109.0)
    assert holds.pause("docs", 103.0, 3)
    assert [holds.end_due(now) for now in (103.0, 109.0)] == [["docs"], []]
    holds.forget("docs")
    assert holds.by_project == {}
