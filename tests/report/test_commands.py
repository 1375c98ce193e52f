import subprocess

from agentjobs_async.batch import State
from agentjobs_async.report.commands import COMMANDS, commands_of

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
