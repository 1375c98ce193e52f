from datetime import UTC, datetime

from attrs import evolve

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli._output.listing import markdown_lines, table_lines
from agentjobs_async.report import markdown as report

LINK = "https://code.example/pull/7"
ROWS = [
    JournalRow("a", "x", "docs", State.COMPLETED, "job_1", LINK, None, datetime.now(UTC), 1),
    JournalRow("b" * 60, "x", None, State.REJECTED, None, None, "no | <b>way</b>\n*", datetime.now(UTC), 2),
    JournalRow("c", "x", None, State.PLANNED, None, None, None, datetime.now(UTC), 3),
]


def text(line: tuple[object, ...]) -> str:
    return "".join(str(part[0] if isinstance(part, tuple) else part) for part in line)


def test_table() -> None:
    """A row shows its prompt, then its pull request, else what went wrong; no key and no link is cut."""
    lines = list(map(text, table_lines(ROWS)))
    assert lines == [
        f"{'KEY':<40}  STATE      PROMPT  PULL REQUEST, REASON OR JOB",
        f"{'a':<40}  completed  x       {LINK}",
        f"{'b' * 60}  rejected   x       no | <b>way</b>\n*",
        f"{'c':<40}  planned    x",
    ]
    assert next(map(text, table_lines([]))).startswith("KEY")
    assert not list(table_lines([], header=False))


def test_words_of_the_table() -> None:
    """A reason has no names of classes; a retried item has its own key, and an end without a pull request says so."""
    now = datetime.now(UTC)
    rows = [
        JournalRow("k#3", "x", None, State.UNKNOWN, None, None, "ServerError: 503", now, 1, tries=3, item_key="k"),
        JournalRow("l", "x", None, State.FAILED, "j", None, "abandoned; before that: OSError: odd", now, 2),
        JournalRow("m", "x", None, State.UNKNOWN, None, None, "WaitTimeoutError: ", now, 3),
        JournalRow("n", "x", None, State.COMPLETED, "j", None, None, now, 4),
    ]
    _, *lines = map(text, table_lines(rows))
    assert [" ".join(line.split()) for line in lines] == [
        "k (try 3) unknown x 503",
        "l failed x abandoned; before that: odd",
        "m unknown x wait timeout error",
        "n completed x no pull request",
    ]


def test_table_on_a_narrow_terminal() -> None:
    """What does not fit beside a row gets a line of its own beneath it: first its details, then its prompt."""
    assert list(map(text, table_lines(ROWS, 60)))[:5] == [
        f"{'KEY':<40}  STATE      ",
        "  PROMPT",
        "  PULL REQUEST, REASON OR JOB",
        f"{'a':<40}  completed  ",
        "  x",
    ]
    short = [ROWS[0], JournalRow("c", "word " * 20, None, State.PLANNED, None, None, None, datetime.now(UTC), 3)]
    assert list(map(text, table_lines(short, 48))) == [
        "KEY  STATE      PROMPT",
        "  PULL REQUEST, REASON OR JOB",
        "a    completed  x",
        f"  {LINK}",
        "c    planned    word word word word word word…",
    ]


def test_markdown() -> None:
    """The table in Markdown is that of a report, with the reasons in words."""
    rows = [evolve(row, error=row.error and f"AgentJobsError: {row.error}") for row in ROWS]
    assert list(map(text, markdown_lines(rows))) == list(report.markdown_lines(ROWS))
