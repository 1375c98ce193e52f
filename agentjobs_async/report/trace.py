"""A journal as Chrome's trace events, for `chrome://tracing` and Perfetto: a bar for each job, packed into lanes."""

import heapq
import json
from collections.abc import Iterator
from typing import Any, Final, TextIO

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.source import Source
from agentjobs_async.report.texts import link_or_none, shown

__all__ = ["write_trace"]

_MOST_TEXT: Final = 500  # characters of what a viewer shows beside a bar
_MICROSECONDS: Final = 1_000_000

_Bar = tuple[float, float, JournalRow]
"""Start and end in seconds since the epoch."""


async def write_trace(source: Source, stream: TextIO) -> None:
    """Write the bars of all items that were sent: one process per project, in as few lanes as hold its jobs."""
    projects: dict[str, list[_Bar]] = {}
    async for row in source.journal.rows():
        bar = _bar(row, source.made_at)
        if bar is not None:
            projects.setdefault(row.project_id, []).append(bar)
    stream.write('{"displayTimeUnit":"ms","traceEvents":[')
    separator = "\n"
    for process, (project, bars) in enumerate(sorted(projects.items()), 1):
        for event in _events(process, project, bars, prompts=source.prompts):
            stream.write(separator + json.dumps(event, separators=(",", ":")))
            separator = ",\n"
    stream.write("\n]}\n")


def _bar(row: JournalRow, now: float) -> _Bar | None:
    start = row.sent_at or row.created_at
    if start is None:
        return None
    end = now if row.state.is_under_way else (row.ended_at or row.updated_at).timestamp()
    return start.timestamp(), max(end, start.timestamp()), row


def _events(process: int, project: str, bars: list[_Bar], *, prompts: bool) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": shown(project, _MOST_TEXT) or "-"}}
    bars.sort(key=lambda bar: bar[:2])
    free: list[tuple[float, int]] = []  # when each lane is free again, and its number
    for start, end, row in bars:
        lane = heapq.heappop(free)[1] if free and free[0][0] <= start else len(free) + 1
        heapq.heappush(free, (end, lane))
        common = {"ph": "X", "pid": process, "tid": lane, "ts": round(start * _MICROSECONDS)}
        arguments = _arguments(row, prompts=prompts)
        duration = round((end - start) * _MICROSECONDS)
        yield {
            **common,
            "dur": duration,
            "name": shown(row.item_key, _MOST_TEXT),
            "cat": row.state.value,
            "args": arguments,
        }
        if row.created_at is not None and row.sent_at is not None:
            # Within its bar, so that a viewer draws it below.
            create = round((row.created_at.timestamp() - start) * _MICROSECONDS)
            yield {**common, "dur": min(max(create, 0), duration), "name": "create", "cat": "create"}


def _arguments(row: JournalRow, *, prompts: bool) -> dict[str, Any]:
    texts = {"job": row.job_id, "pull request": link_or_none(row.pr_link), "error": row.error}
    texts |= {"prompt": row.prompt} if prompts else {}
    found = {name: shown(text, _MOST_TEXT) for name, text in texts.items() if text is not None}
    return {"state": row.state.value, **found, "polls": row.polls, "tries": row.tries}
