"""What tests of the command line begin with and check: a journal, a run, its output, and tables of cases."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.cli._output.screen import Screen

LOCAL_TIME = r"[A-Z][a-z]{2} [0-9]{2} [A-Z][a-z]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} \S+"
"""What matches a time as texts show it, with the name of its zone."""

Captured = pytest.CaptureFixture[str]
K = TypeVar("K")


def screen() -> Screen:
    """Return a screen on the standard streams."""
    return Screen(lambda error: pytest.fail(str(error)))


def unexpected(expected: Mapping[K, object], found_of: Callable[[K], object]) -> dict[K, object]:
    """Return what is found of each row where that is not what is expected."""
    return {given: found for given, wanted in expected.items() if (found := found_of(given)) != wanted}


def accepted(expected: Mapping[K, str], call: Callable[[K], object]) -> dict[K, str]:
    """Return the rows that the call does not refuse in the words expected, with the error of each."""
    errors = dict.fromkeys(expected, "no error")
    for row in errors:
        try:
            call(row)
        except InvalidInputError as error:
            errors[row] = str(error)
    return {row: error for row, error in errors.items() if expected[row] not in error}


def plan(db: str, *items: BatchItem) -> None:
    """Make a journal of items that nobody has begun."""

    async def make() -> None:
        async with Journal.open(db) as journal:
            await journal.add(items, project_id="docs")

    asyncio.run(make())


def run(prompts: Path, db: str, *more: str) -> int:
    return main(["run", "--file", str(prompts), "--journal", db, "--create-rate", "none", *more])
