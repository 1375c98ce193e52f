import csv
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from attrs import evolve

from agentjobs_async.batch import BatchItem, Journal, JournalRow, State
from agentjobs_async.report.items import (
    COLUMNS,
    context_column,
    csv_line,
    field_columns,
    pull_request_of,
    shared_reason,
)
from agentjobs_async.report.texts import is_formula
from tests.report.stage import HOSTILE, fail_hostile, report_of, run_some


async def test_csv(tmp_path: Path) -> None:
    """Each item is a row, with its times, and with its prompt unless those are left out."""
    await run_some(tmp_path / "run.db")
    rows = list(csv.DictReader(StringIO(await report_of(tmp_path / "run.db", format="csv"))))
    assert [row["key"] for row in rows] == [f"page-{number}" for number in range(1, 10)]
    assert list(rows[0]) == [
        *("number", "key", "state", "project", "job_id", "pr_link", "pull_request", "reason", "error"),
        *("planned_at", "sent_at", "created_at", "seen_at", "ended_at", "polls", "tries", "prompt"),
    ]
    assert rows[0]["prompt"] == "Document the page 1"
    assert rows[0]["ended_at"].endswith("Z")
    assert "Document the page" not in await report_of(tmp_path / "run.db", format="csv", prompts=False)


async def test_json_lines(tmp_path: Path) -> None:
    """Each item is a JSON object of the same columns, its texts as they are, without the prompts where wanted."""
    path = tmp_path / "run.db"
    prompt = f"=1+1 \x1b[31m\u202e {'x' * 40_000}"
    async with Journal.open(path) as journal:
        context = {"tags": ["p"], "state": "Ohio"}
        await journal.add([BatchItem("a", prompt, "docs", context), BatchItem("b", "y", "docs")])
    first, second = map(json.loads, (await report_of(path, format="jsonl")).splitlines())
    assert list(first) == [*COLUMNS, "tags", "context.state"]
    assert (first["key"], first["prompt"], first["tags"], first["context.state"]) == ("a", prompt, ["p"], "Ohio")
    assert list(second) == list(COLUMNS)
    for line in (await report_of(path, format="jsonl", prompts=False)).splitlines():
        assert list(json.loads(line)) == [name for name in COLUMNS if name != "prompt"]


async def test_formulas(tmp_path: Path) -> None:
    """No cell begins a formula or acts on a screen, and none is cut: other programs take more than a spreadsheet."""
    await fail_hostile(tmp_path / "run.db")
    text = await report_of(tmp_path / "run.db", format="csv")
    csv.field_size_limit(max(csv.field_size_limit(), len(HOSTILE[-1])))
    cells = [cell for row in csv.DictReader(StringIO(text)) for cell in row.values()]
    assert not any(map(is_formula, cells))
    assert {"'-h", "'=1+1"} <= set(cells)
    assert HOSTILE[-1] in cells
    assert text.replace("\n", "").isprintable() or "\u200d" in text
    assert "\u202e" not in text


async def test_context(tmp_path: Path) -> None:
    """The fields of all contexts come last, one of a column's name as context.NAME, and none without the prompts."""
    path = tmp_path / "run.db"
    async with Journal.open(path) as journal:
        await journal.add(
            [BatchItem("a", "x", context={"title": "Start", "state": "Ohio"}), BatchItem("b", "y")], project_id="docs"
        )
        await journal.add([BatchItem("c", "z", context={"tags": ["p"], "title": None, "seven": 7})], project_id="docs")
    rows = list(csv.DictReader(StringIO(await report_of(path, format="csv"))))
    assert list(rows[0])[-5:] == ["prompt", "title", "context.state", "tags", "seven"]
    found = [[row[name] for name in ("title", "context.state", "tags", "seven")] for row in rows]
    assert found == [["Start", "Ohio", "", ""], ["", "", "", ""], ["", "", '["p"]', "7"]]
    assert "Ohio" not in await report_of(path, format="csv", prompts=False)


async def test_extra(tmp_path: Path) -> None:
    """The fields of all extras come after those of all contexts, in own columns, and none without the prompts."""
    path = tmp_path / "run.db"
    async with Journal.open(path) as journal:
        items = [
            BatchItem("a", "x", "docs", {"title": "Start", "branch": "mine"}, {"branch": "main", "depth": 2}),
            BatchItem("b", "y", "docs", {"late": 1}, {"state": "Ohio", "branch": "dev"}),
        ]
        assert await journal.add(items) == []
    rows = list(csv.DictReader(StringIO(await report_of(path, format="csv"))))
    fields = ["title", "branch", "late", "depth", "extra.branch", "extra.state"]
    assert sorted(list(rows[0])[-7:]) == sorted(["prompt", *fields])
    assert list(rows[0])[-7:-3] == ["prompt", "title", "branch", "late"]
    found = [[row[name] for name in fields] for row in rows]
    assert found == [["Start", "mine", "", "2", "main", ""], ["", "dev", "1", "", "", "Ohio"]]
    first, second = map(json.loads, (await report_of(path, format="jsonl")).splitlines())
    assert {**first, **second}.items() >= {"depth": 2, "extra.branch": "main", "extra.state": "Ohio"}.items()
    for form in ("csv", "jsonl"):
        assert "Ohio" not in await report_of(path, format=form, prompts=False)


def test_columns_of_extras_differ() -> None:
    """No two fields of a context and an extra have one column, whatever their names."""
    names = ["key", "extra.key", "extra.extra.key", "context.key", "x", "extra.x", "context.x", "prompt", "extra"]
    row = JournalRow("k", "p", "docs", State.PLANNED, None, None, None, datetime.now(UTC), 1)
    for context, extra in ((names, names), (names, names[::-1]), ([], names), (["x", "extra.x"], names)):
        found = field_columns(evolve(row, context=dict.fromkeys(context, 1), extra=dict.fromkeys(extra, 2)))
        assert [list(fields.values()) for fields in found] == [[1] * len(context), [2] * len(extra)]
        assert len({*COLUMNS, *found[0], *found[1]}) == len(COLUMNS) + len(context) + len(extra)


def test_columns_of_fields_differ() -> None:
    """No two fields of a context have one column, and none has that of an item, whatever their names."""
    fields = [
        *COLUMNS,
        *(f"context.{name}" for name in COLUMNS),
        "context.context.key",
        "title",
        "context.title",
        "context",
    ]
    columns = list(map(context_column, fields))
    assert len({*COLUMNS, *columns}) == len(COLUMNS) + len(fields)
    assert [context_column(name) for name in ("key", "context.key", "title", "context.title")] == [
        "context.key",
        "context.context.key",
        "title",
        "context.title",
    ]


def test_numbers() -> None:
    """A number stays a number, also below 0; what only begins like one is a formula."""
    assert csv_line(["-5", "+1.5e-3", "-5+1", "-inf", "- 1", "=1"]) == "-5,+1.5e-3,'-5+1,'-inf,'- 1,'=1\n"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, None),
        ("the agent failed", "the agent failed"),
        ("HTTP 422: Unprocessable Entity", "HTTP 422"),
        ("it did not end within 2 s (10 polls, last seen active)", "it did not end within 2 s"),
        ("job docs~.job_1: HTTP 404: gone\nfor good", "HTTP 404"),
        ("the host has no address http://a:80/b", "the host has no address http://a:80/b"),
        ("word " * 20, "word " * 15 + "word"),
        ("x" * 100, "x" * 80),
    ],
)
def test_reasons(error: str | None, reason: str | None) -> None:
    """A reason is the beginning of an error, up to its details, in whole words: so it is found where the error is."""
    assert shared_reason(error) == reason


LINKS_ELSEWHERE = [
    "https://github.com@other.example/acme/docs/pull/1",
    "https://other.example?a=/acme/docs/pull/1",
    "https://other.example#/acme/docs/pull/1",
    "https://g\u0456thub.com/acme/docs/pull/1",
    "https://github.com/\u0430cme/docs/pull/1",
]
"""Links that do not lead to where a name such as `acme/docs#1` says."""


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("https://github.com/acme/docs/pull/123", "acme/docs#123"),
        ("https://code.example/a.b/c_d/pull/7/", "a.b/c_d#7"),
        *((link, link) for link in ("https://code.example/pull/7", "https://code.example/a/b/pull/7?x=1")),
        ("https://code.example/a/b/-/merge_requests/7", "https://code.example/a/b/-/merge_requests/7"),
        ("javascript:alert(1)", None),
        (None, None),
        *((link, link) for link in LINKS_ELSEWHERE),
    ],
)
def test_names_of_pull_requests(link: str | None, name: str | None) -> None:
    """A pull request is named by its repository and number where its link has them; other links stay whole."""
    assert pull_request_of(link) == name


def test_words_for_the_end_of_a_job() -> None:
    """A job that failed or was archived has words for that, the same in rows, files and data frames."""
    row = JournalRow("k", "p", "docs", State.FAILED, "j", None, None, datetime.now(UTC), 1)
    for state, words in ((State.FAILED, "the agent failed"), (State.ARCHIVED, "the job was archived")):
        ended = evolve(row, state=state)
        assert {ended.why, ended.to_dict()["error"], COLUMNS["error"].of(ended)} == {words}
    assert evolve(row, error="HTTP 404").why == "HTTP 404"
    assert evolve(row, state=State.COMPLETED).to_dict()["error"] is None
