import re

import pytest
from rich.cells import cell_len

from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli._output.tables import ShownItem, show_items
from tests.cli.checks import Captured, screen

LINK = "https://code.example/acme/a-repository-of-a-long-name/pull/7"
REASON = "HTTP 500 after the prompt was sent: the gateway has lost its backend, and says so at length"
ITEMS = [
    ShownItem("a", "completed", "Document the v2 endpoints of the service, then all others", LINK),
    ShownItem("b" * 60, "rejected", "y", "no | <b>way</b>\n*"),
    ShownItem("c", "timed_out", "z", ""),
    ShownItem("文" * 20, "unknown", "文書を書いてください " * 5, REASON),
]


def shown(capsys: Captured, items: list[ShownItem]) -> list[str]:
    show_items(screen(), items)
    return capsys.readouterr().out.splitlines()


def test_one_line_for_each(capsys: Captured) -> None:
    """Elsewhere than on a terminal each item is one line, whatever its length, of which only the prompt is cut."""
    lines = shown(capsys, ITEMS)
    assert [re.split("  +", line) for line in lines] == [
        ["STATE", "KEY", "PROMPT", "PULL REQUEST OR REASON"],
        ["completed", "a", "Document the v2 endpoints of the…", LINK],
        ["rejected", "b" * 60, "y", "no | <b>way</b>\\n*"],
        ["timed out", "c", "z"],
        ["unknown", "文" * 20, "文書を書いてください 文書を書いてくださ…", REASON],
    ]
    assert [line for line in lines if line != line.rstrip()] == []
    details = ("PULL", LINK, "no |", "HTTP 500")
    starts = [cell_len(line.partition(detail)[0]) for line, detail in zip([*lines[:3], lines[4]], details, strict=True)]
    assert len(set(starts)) == 1


@pytest.fixture
def width(monkeypatch: pytest.MonkeyPatch) -> int:
    """The columns of a terminal, which standard output looks like."""
    monkeypatch.setattr(Screen, "width", 80)
    return 80


def test_two_lines_for_each(capsys: Captured, width: int) -> None:
    """On a terminal the key and the prompt are a line, and the link or the reason is below: wrapped, never cut."""
    lines = shown(capsys, ITEMS)
    assert lines == [
        "STATE      KEY, PROMPT",
        "           PULL REQUEST OR REASON",
        "completed  a  Document the v2 endpoints of the service, then all others",
        f"           {LINK}",
        f"rejected   {'b' * 60}",
        "           no | <b>way</b>\\n*",
        "timed out  c  z",
        f"unknown    {'文' * 20}  文書を書いてください…",
        "           HTTP 500 after the prompt was sent: the gateway has lost its backend,",
        "           and says so at length",
    ]
    assert max(map(cell_len, lines)) <= width


def test_what_is_wider_than_the_terminal(capsys: Captured, width: int) -> None:
    """A key or a link that is wider than a terminal is one word of one line, so that it can be copied."""
    key, link = "k" * 90, f"{LINK}/{'0' * 90}"
    lines = shown(capsys, [ShownItem(key, "completed", "p", link), ITEMS[3]])
    assert lines[2:4] == [f"completed  {key}", f"           {link}"]
    assert max(map(cell_len, lines[4:])) <= width


@pytest.mark.usefixtures("width")
def test_without_prompts(capsys: Captured) -> None:
    """Jobs that were only waited for have no prompts; their names are their tokens."""
    assert shown(capsys, [ShownItem("docs~.job_1", "completed", "", LINK)])[2:] == [
        "completed  docs~.job_1",
        f"           {LINK}",
    ]
