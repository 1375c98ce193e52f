import subprocess
from datetime import UTC, datetime

from attrs import evolve

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.commands import COMMANDS, commands_of, where_to_look

KEYS = ("page-7", "it's; rm -rf $HOME", "-h", "key\u202e'gnp\\", "ключ", "a b")
JOURNAL = "my run\udcff.db"  # a path that is not UTF-8


def test_every_state_has_commands() -> None:
    """Something can be done about an item in any state."""
    assert set(COMMANDS) == set(State)
    assert [line for _, line in commands_of(State.UNKNOWN, "page-7", "run.db", ())] == [
        "agentjobs resolve --journal run.db --job JOB page-7",
        "agentjobs resolve --journal run.db --send-again page-7",
        "agentjobs resolve --journal run.db --abandon page-7",
    ]


def test_words_of_a_shell() -> None:
    """A shell reads the key and the path of a command as they are, and no character of it acts on a screen."""
    lines = [commands_of(State.UNKNOWN, key, JOURNAL, ())[1][1] for key in KEYS]
    assert "\u202e" not in "".join(lines)
    said = subprocess.run(  # noqa: S603 - our own words
        ["bash", "-c", "\necho\n".join(line.replace("agentjobs", "printf '%s\\n'", 1) for line in lines)],  # noqa: S607 - any bash
        capture_output=True, text=True, errors="surrogateescape", check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/bin:/usr/bin"},
    ).stdout  # fmt: skip
    begin = ["resolve", "--journal", JOURNAL, "--send-again"]
    wanted = [[*begin, *(["--"] if key.startswith("-") else []), key] for key in KEYS]
    assert [words.splitlines() for words in said.split("\n\n")] == wanted


def test_where_to_look() -> None:
    """Where to look for the job of an unknown item names its project, and when its create was sent."""
    sent_at = datetime(2026, 11, 30, 15, 19, 51, tzinfo=UTC)
    row = JournalRow("k", "p", "docs", State.UNKNOWN, None, None, "HTTP 500", sent_at, 1, sent_at=sent_at)
    words = "Look in project docs, for a job created about 15:19:51 UTC on 30 Nov 2026 with this prompt."
    assert where_to_look(row) == words
    assert where_to_look(evolve(row, sent_at=None)) == "Look in project docs, for a job with this prompt."
