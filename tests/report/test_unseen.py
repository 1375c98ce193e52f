from agentjobs_async.report.unseen import Seen, unseen_spans

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
BEFORE = [Seen(start * MINUTE, (start + 5) * MINUTE, 15) for start in range(60)]
"""Jobs of five minutes, polled every 20 s: the first starts at 0, the last ends after 64 minutes."""
STOPPED = 64 * MINUTE
RESUMED = STOPPED + 2 * HOUR


def test_nobody_looked_between_two_runs() -> None:
    """A span is one where nothing happened and active jobs have the polls of the time before and after it alone."""
    jobs = [*BEFORE, Seen(60 * MINUTE, RESUMED, 13), Seen(62 * MINUTE, RESUMED + MINUTE, 9)]
    assert unseen_spans(jobs, RESUMED / SECOND) == [(STOPPED, RESUMED)]


def test_somebody_looked_at_long_jobs() -> None:
    """A quiet span in which jobs were polled is none, nor one in which no job was active, or a short one."""
    polled = [Seen(60 * MINUTE, RESUMED, 370)]
    assert unseen_spans([*BEFORE, *polled], RESUMED / SECOND) == []
    after = [Seen(RESUMED, RESUMED + MINUTE, 3)]
    assert unseen_spans([*BEFORE, *after], RESUMED / SECOND) == []
    short = [Seen(60 * MINUTE, STOPPED + 9 * MINUTE, 0)]
    assert unseen_spans([*BEFORE, *short], RESUMED / SECOND) == []


def test_active_jobs_that_nobody_sees() -> None:
    """While active jobs are not seen for three minutes, nobody sees them until now; others need nobody."""
    active = Seen(60 * MINUTE, STOPPED, 12, is_active=True)
    assert unseen_spans([*BEFORE, active], (STOPPED + 2 * MINUTE) / SECOND) == []
    assert unseen_spans([*BEFORE, active], RESUMED / SECOND) == [(STOPPED, RESUMED)]
    assert unseen_spans(BEFORE, RESUMED / SECOND) == unseen_spans([], 1.0) == []
