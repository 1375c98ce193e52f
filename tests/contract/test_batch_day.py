"""A batch user's day, with all that goes wrong in it: has each row of the input exactly one outcome?"""

import csv
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.batch import Journal, State, Where
from agentjobs_async.testing import Emulator, JobScript
from tests.engines.process import run_command
from tests.engines.stage import Client
from tests.until import until

ROWS = int(os.environ.get("AGENTJOBS_DAY", "60"))
"""Rows of the table; the whole day is AGENTJOBS_DAY=3000."""
FAILING = 20
"""Of so many rows, the first agent of one fails."""
RUN = ("--max-active", "200", "--create-rate", "none", "--yes")


class Day:
    """One table, its emulator, and the commands that work on it."""

    def __init__(self, emulator: Emulator, folder: Path, url: str) -> None:
        self.emulator = emulator
        self.folder = folder
        self.url = url
        self.file = str(folder / "run.db")
        self.table = folder / "pages.csv"
        self.commands: list[Client] = []

    def prompt(self, number: int) -> str:
        return f"Document Page {number}: line one\nline, two of {number}"

    def write_table(self) -> None:
        with self.table.open("w", newline="", encoding="utf-8-sig") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", "title", "body", "owner"])
            for number in range(ROWS):
                writer.writerow([f"page-{number}", f"Page {number}", f"line one\nline, two of {number}", "me"])

    def start(self, *arguments: str) -> Client:
        settings = self.emulator.environment("docs") | {"XDG_STATE_HOME": str(self.folder)}
        command = Client(self.url, run_command, *arguments, env=settings)
        self.commands.append(command)
        return command

    async def end(self) -> None:
        """Kill what a failed test has left."""
        for command in self.commands:
            command.process.kill()
            await command.ended()

    async def command(self, *arguments: str) -> int:
        return await self.start(*arguments).ended()

    async def kill_after(self, agents: int, *commands: Client) -> None:
        """Kill the first of these commands with -9 once so many more agents were started, or one of them has ended."""
        wanted = self.emulator.agents_started.total() + agents

        def is_due() -> bool:
            started = self.emulator.agents_started.total()
            return started >= wanted or any(one.process.poll() is not None for one in commands)

        await until(is_due)
        commands[0].process.kill()
        await commands[0].ended()

    async def settle(self) -> None:
        """Settle what is unknown by what the service shows: an agent, or none."""
        found = {job.prompt: job.job_id for job in self.emulator.jobs.values()}
        async with Journal.open(self.url) as journal:
            known = {row.job_id for row in await journal.rows(all_tries=True)}
            for row in await journal.unknown():
                job_id = found.get(row.prompt)
                if job_id is None or job_id in known:
                    await journal.resolve(row.key, send_again=True)
                else:
                    await journal.resolve(row.key, job_id=job_id)

    async def retry_all(self) -> int:
        for number in range(0, ROWS, FAILING):
            self.emulator.script(JobScript(duration=0.2), prompt=self.prompt(number))
        async with Journal.open(self.url) as journal:
            await journal.retry(where=Where(states={"failed"}))
        return await self.command("worker", "--journal", self.url, "--until-done")

    async def check(self) -> None:
        async with Journal.open(self.url, read_only=True) as journal:
            rows = {row.key: row async for row in journal.rows()}
            tries = await journal.rows(all_tries=True)
        with self.table.open(newline="", encoding="utf-8-sig") as stream:
            wanted = {line["id"]: f"Document {line['title']}: {line['body']}" for line in csv.DictReader(stream)}
        assert {key: row.prompt for key, row in rows.items()} == wanted
        assert {row.state for row in rows.values()} == {State.COMPLETED}
        results = self.folder / "results.csv"
        await self.command("export", "--journal", self.url, "--out", str(results))
        with results.open(newline="", encoding="utf-8") as stream:
            outcomes = [(line["key"], line["owner"], line["state"]) for line in csv.DictReader(stream)]
        assert sorted(outcomes) == sorted((key, "me", "completed") for key in wanted)
        agents = self.emulator.agents_started
        # A try whose process was killed before its request left has started no agent, and has no job.
        expected = Counter(row.prompt for row in tries if row.job_id is not None)
        assert agents == expected, (agents - expected, expected - agents)
        ended = Counter(row.job_id for row in tries)
        assert max(ended.values()) == 1, "no job is that of two rows"


@pytest.fixture
async def day(database: str, tmp_path: Path) -> AsyncIterator[Day]:
    async with Emulator(script=JobScript(duration=0.2)) as emulator:
        day = Day(emulator, tmp_path, database)
        yield day
        await day.end()


async def test_a_day(day: Day) -> None:
    """Through kills of a run and of a worker, and a move, each row of a table has one outcome; no agent is doubled."""
    for number in range(0, ROWS, FAILING):
        day.emulator.script(JobScript(duration=0.2, outcome="failed"), prompt=day.prompt(number))
    day.write_table()
    source = ("--file", str(day.table), "--key", "id", "--prompt", "Document {title}: {body}")
    await day.kill_after(ROWS // 6, day.start("run", *source, "--journal", day.file, *RUN))
    await day.kill_after(ROWS // 6, day.start("resume", day.file))
    assert await day.command("move", day.file, day.url) == 0
    assert await day.command("resume", day.file) == 4  # it is closed
    first = day.start("worker", "--journal", day.url)
    second = day.start("worker", "--journal", day.url, "--until-done")
    await day.kill_after(ROWS // 6, first, second)  # fewer may be left: then it ends with `second`
    await first.killed()
    assert await second.ended() in {1, 4}
    await day.settle()
    # An unknown item whose agent is found may fail, too, and is then retried in its turn.
    codes = [await day.retry_all(), await day.retry_all()]
    assert codes[-1] == 0
    await day.check()
