"""What a run says at its end: the truth table."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from agentjobs_async import AuthError, JobRef, JournalError, NotFoundError
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli._output.endings import Contents, Facts, HowItRuns, ended
from agentjobs_async.cli._output.notices import Command, Results, Sentence, Summary
from agentjobs_async.cli._output.outcomes import Outcome, advice_of
from agentjobs_async.cli._output.results import Result

NAMED: Final = HowItRuns("run.db", to_resume=["--base-url", "URL"], to_wait=["--base-url", "URL"])
"""A run with `--journal`."""
OWN: Final = HowItRuns("own.db", is_own=True)
"""A run without it, whose journal is removed when all has ended."""
EMULATED: Final = HowItRuns("run.db", to_wait=None)
OWN_EMULATED: Final = HowItRuns("own.db", is_own=True, to_wait=None)
RETRYING: Final = HowItRuns("run.db", max_tries=3)
OWN_RETRYING: Final = HowItRuns("own.db", is_own=True, max_tries=3)

JOBS: Final = [JobRef("docs", "job_1"), JobRef("docs", "job_2")]
UNKNOWN: Final = JournalRow(
    "page-7", "Document page 7", "docs", State.UNKNOWN, None, None, "reset", datetime(2026, 1, 1, tzinfo=UTC), 7
)
KEY_REFUSED: Final = AuthError(401)
BUG: Final = RuntimeError("a bug")
LOST_FILE: Final = JournalError("the file was removed", "io")
LOST_JOBS: Final = JournalError("no room", "full", unrecorded=(JOBS[0],))
GONE: Final = {advice_of(NotFoundError(404)): 2}
REFUSED: Final = {advice_of(KEY_REFUSED): 2}

WAIT_FOR_BOTH: Final = ["2 jobs continue remotely. Keep the ids; wait for them with:"]
WAIT: Final = "$ agentjobs wait --base-url URL 'docs~.job_1' 'docs~.job_2'"
RESUME: Final = "$ agentjobs resume run.db --base-url URL"
EMULATOR_ENDS: Final = (
    "The emulator ends with this command, and its jobs with it; a real service's jobs would continue."
)
LOOK: Final = [
    "May have started an agent; look at the project for a job of this time:",
    "  page-7, docs: Document page 7",
]
SETTLE: Final = "Then settle each by its job, by --send-again or by --abandon:"
TWICE: Final = "Resume with this; the same run again would create all of them again:"
MOVED: Final = "The journal was moved, removed or replaced."
KEY_ADVICE: Final = "Check the API key and that it may use this project (2 items)."
UNREADABLE: Final = "The journal can't be read."
LATER: Final = "When the journal can be read again, resume with:"


def contents(unknown: int = 0, retried: int = 0, **counts: int) -> Contents:
    """Return what a journal holds: the number of items in each state, unknown ones among them."""
    states = {state: counts.get(state, 0) for state in State} | {State.UNKNOWN: unknown}
    return Contents(states, [UNKNOWN] * unknown, retried)


TABLE: Final[Mapping[str, tuple[Facts, list[str], int]]] = {
    # A journal that the user named: its counts, then the one thing to do next.
    "all completed": (Facts(NAMED, contents(completed=2)), ["2 completed"], 0),
    "abandoned counts as done": (Facts(NAMED, contents(completed=1, abandoned=1)), ["1 abandoned, 1 completed"], 0),
    "archived": (Facts(NAMED, contents(completed=1, archived=1)), ["1 archived, 1 completed"], 1),
    "nothing in it": (
        Facts(NAMED, contents()),
        ["The journal holds no items. If it is a copy, copy the file of the original that ends in -wal as well."],
        0,
    ),
    "stopped": (
        Facts(NAMED, contents(active=1, planned=4), stopped_with=130),
        ["1 active, 4 planned", "Resume with:", RESUME],
        130,
    ),
    "left open by --limit": (
        Facts(NAMED, contents(planned=4, completed=1)),
        ["4 planned, 1 completed", "Resume with:", RESUME],
        4,
    ),
    "one unknown": (
        Facts(NAMED, contents(unknown=1, completed=1)),
        ["1 unknown, 1 completed", *LOOK, SETTLE, "$ agentjobs resolve run.db page-7 --job JOB"],
        4,
    ),
    "one unknown, others open": (
        Facts(NAMED, contents(unknown=1, active=1), stopped_with=143),
        ["1 unknown, 1 active", *LOOK, SETTLE, "$ agentjobs resolve run.db page-7 --job JOB", "Resume with:", RESUME],
        143,
    ),
    "some failed": (
        Facts(NAMED, contents(failed=1, rejected=1, completed=1)),
        ["1 failed, 1 rejected, 1 completed", "Try 2 items again with:", f"{RESUME} --retry-failed"],
        1,
    ),
    "one timed out": (
        Facts(NAMED, contents(active=1), timed_out=[Result(1, Outcome.TIMED_OUT, ref=JOBS[0])]),
        ["1 active", "Resume with:", RESUME],
        4,
    ),
    # --retry-failed --max-tries 3: the exit code is 4 while the same command would try some once more.
    "tries left": (
        Facts(RETRYING, contents(failed=3, retried=2)),
        ["3 failed", "Try 2 items again with:", "$ agentjobs resume run.db --retry-failed --max-tries 3"],
        4,
    ),
    "no tries left": (Facts(RETRYING, contents(failed=3)), ["3 failed"], 1),
    # Prompts that were refused before the run.
    "some prompts refused": (
        Facts(NAMED, contents(completed=1), refused_prompts=2),
        ["1 completed", "2 prompts were refused, and are not in the journal: the first lines say why."],
        1,
    ),
    "all prompts refused": (
        Facts(NAMED, contents(), refused_prompts=2),
        ["Nothing was planned.", "2 prompts were refused, and are not in the journal: the first lines say why."],
        1,
    ),
    # The run's own journal: all results as a table, and a way on only if the journal is kept.
    "own: all completed": (Facts(OWN, contents(completed=2)), ["(all results)"], 0),
    "own: some failed": (Facts(OWN, contents(failed=1)), ["(all results)"], 1),
    "own: tries left": (
        Facts(OWN_RETRYING, contents(failed=1, retried=1)),
        ["(all results)", "Try 1 item again with:", "$ agentjobs resume own.db --retry-failed --max-tries 3"],
        4,
    ),
    "own: stopped before the first create": (
        Facts(OWN, contents(planned=2), stopped_with=130),
        ["(all results)", "Nothing was sent. Resume with:", "$ agentjobs resume own.db"],
        130,
    ),
    "own: stopped after it": (
        Facts(OWN, contents(planned=1, active=1), stopped_with=130),
        ["(all results)", TWICE, "$ agentjobs resume own.db"],
        130,
    ),
    "own: unknown, and kept": (
        Facts(OWN, contents(unknown=1, failed=1)),
        [
            *("(all results)", *LOOK, SETTLE, "$ agentjobs resolve own.db page-7 --job JOB"),
            *("Try 1 item again with:", "$ agentjobs resume own.db --retry-failed"),
        ],
        4,
    ),
    # An emulator ends with the command, and its jobs with it.
    "emulated: stopped": (
        Facts(EMULATED, contents(active=1), stopped_with=130),
        ["1 active", EMULATOR_ENDS, "Resume with:", "$ agentjobs resume run.db"],
        130,
    ),
    "emulated: stopped before the first create": (
        Facts(EMULATED, contents(planned=1), stopped_with=130),
        ["1 planned", "Resume with:", "$ agentjobs resume run.db"],
        130,
    ),
    "emulated: jobs of an earlier one": (
        Facts(EMULATED, contents(failed=2), advice=GONE),
        [
            "2 failed",
            "The jobs of an earlier emulator ended with it; --retry-failed creates such jobs again (2 items).",
            *("Try 2 items again with:", "$ agentjobs resume run.db --retry-failed"),
        ],
        1,
    ),
    "emulated, own: stopped": (
        Facts(OWN_EMULATED, contents(active=1), stopped_with=130),
        ["(all results)", EMULATOR_ENDS],
        130,
    ),
    "emulated, own: unknown": (Facts(OWN_EMULATED, contents(unknown=1)), ["(all results)", *LOOK], 4),
    # What ended the run early.
    "key refused": (
        Facts(NAMED, contents(planned=2), fault=KEY_REFUSED),
        ["2 planned", "Resume with:", RESUME],
        3,
    ),
    "key refused, while jobs were read as well": (
        Facts(NAMED, contents(planned=2, active=2), fault=KEY_REFUSED, advice={**REFUSED, "mend it": 1}),
        ["2 active, 2 planned", "Mend it.", "Resume with:", RESUME],
        3,
    ),
    "key refused while jobs are read": (
        Facts(NAMED, contents(active=2), key_error=KEY_REFUSED, advice=REFUSED),
        ["2 active", KEY_ADVICE, "Resume with:", RESUME],
        3,
    ),
    "a bug": (Facts(NAMED, contents(completed=1), fault=BUG), ["1 completed"], 4),
    "key refused, then stopped": (
        Facts(NAMED, contents(planned=2), fault=KEY_REFUSED, stopped_with=130),
        ["2 planned", "Resume with:", RESUME],
        130,
    ),
    # The journal is of no use: the jobs are named.
    "journal moved": (
        Facts(NAMED, contents(active=2), is_at_its_place=False, open_jobs=JOBS, fault=LOST_FILE),
        ["2 active", MOVED, *WAIT_FOR_BOTH, WAIT],
        4,
    ),
    "journal moved, nothing under way": (
        Facts(NAMED, contents(completed=2), is_at_its_place=False),
        ["2 completed", MOVED],
        0,
    ),
    "journal moved, emulated": (
        Facts(EMULATED, contents(active=2), is_at_its_place=False, open_jobs=JOBS, stopped_with=130),
        ["2 active", MOVED, EMULATOR_ENDS],
        130,
    ),
    "journal can't be read": (
        Facts(NAMED, None, open_jobs=JOBS, fault=LOST_FILE),
        [UNREADABLE, *WAIT_FOR_BOTH, WAIT, LATER, RESUME],
        4,
    ),
    "journal can't be read, stopped": (Facts(NAMED, None, stopped_with=130), [UNREADABLE, LATER, RESUME], 130),
    "journal can't be read, nor is it there": (
        Facts(NAMED, None, is_at_its_place=False, open_jobs=JOBS),
        [UNREADABLE, *WAIT_FOR_BOTH, WAIT],
        4,
    ),
    "journal can't be read, emulated, own": (
        Facts(OWN_EMULATED, None, open_jobs=JOBS),
        [UNREADABLE, EMULATOR_ENDS],
        4,
    ),
    "jobs that no journal has, stopped": (
        Facts(NAMED, None, open_jobs=JOBS, fault=LOST_JOBS, stopped_with=130),
        [UNREADABLE, *WAIT_FOR_BOTH, WAIT, LATER, RESUME],
        4,
    ),
}


@pytest.fixture(autouse=True)
def _named_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["agentjobs"])


@pytest.mark.parametrize("name", TABLE)
def test_truth_table(name: str) -> None:
    """The facts of each line of the table give its words, in their order, and its exit code."""
    facts, words, exit_code = TABLE[name]
    end = ended(facts)
    *notices, summary = end.notices
    assert [shown(notice) for notice in notices] == words
    assert end.exit_code == exit_code
    assert isinstance(summary, Summary)
    assert summary.exit_code == exit_code


def shown(notice: Any) -> str:
    """Return a notice as the table writes it."""
    match notice:
        case Sentence(text):
            return text
        case Command(text):
            return f"$ {text}"
        case Results():
            return "(all results)"
    return repr(notice)


def test_summary() -> None:
    """The summary counts what was refused and what timed out beside the states of the journal."""
    facts = Facts(
        NAMED, contents(active=2, completed=1), refused_prompts=3, timed_out=[Result(1, Outcome.TIMED_OUT, ref=JOBS[0])]
    )
    (summary,) = [notice for notice in ended(facts).notices if isinstance(notice, Summary)]
    assert dict(summary.outcomes) == {
        Outcome.REFUSED: 3,
        Outcome.TIMED_OUT: 1,
        Outcome.ACTIVE: 1,
        Outcome.COMPLETED: 1,
    }
