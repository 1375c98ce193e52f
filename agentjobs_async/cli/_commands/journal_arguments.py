"""The journal that a command is about: its first argument, or `--journal`, or AGENTJOBS_JOURNAL."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.cli._commands.options import TEXT, journal_option

Command = TypeVar("Command", bound=Callable[..., Any])


def existing(journal: str) -> str:
    """Return the file or URL of a journal.

    Raises:
        InvalidInputError: There is no such file.
    """
    from agentjobs_async.batch import Journal  # noqa: PLC0415 - it loads SQLAlchemy, which no other command waits for

    if not Journal.open(journal).is_shared and not Path(journal).exists():
        raise InvalidInputError(f"there is no journal {one_line(journal, 200)}")
    return journal


def journal_files(journal: str) -> list[str]:
    """Return the paths of the files of a journal, which need not exist; none if it is on a server."""
    from agentjobs_async.batch import Journal  # noqa: PLC0415 - as above
    from agentjobs_async.cli.own_journals import BESIDE  # noqa: PLC0415 - as above

    return [] if Journal.open(journal).is_shared else [f"{os.path.realpath(journal)}{suffix}" for suffix in BESIDE]


def journal_argument(words: str, example: str | None) -> Callable[[Command], Command]:
    """Add a first argument and `--journal`; the command gets the one that is given, an argument first, as `journal`.

    Args:
        words: The help of `--journal`.
        example: A command with its journal, shown where none is given; `None`: the command gets `None`.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_journal(*, place: str | None, journal: str | None, **rest: Any) -> Any:
            named = place or journal
            if named is None and example is not None:
                raise InvalidInputError(f"give the journal: {example}")
            return command(journal=named, **rest)

        option = journal_option(words, required=False)
        argument = click.argument("place", metavar="[FILE|URL]", required=False, type=TEXT)
        return cast("Command", argument(option(with_journal)))

    return decorate


def journal_before_keys(words: str, example: str, keys: str) -> Callable[[Command], Command]:
    """Add `--journal` and arguments: keys, and before them the journal, unless the option or the environment names it.

    Args:
        words: The help of `--journal`.
        example: A command with its journal, shown where none is given.
        keys: How the usage shows the keys.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_journal(*, given: tuple[str, ...], journal: str | None, **rest: Any) -> Any:
            found = given if journal is None else (journal, *given)
            if not found:
                raise InvalidInputError(f"give the journal: {example}")
            return command(journal=found[0], keys=found[1:], **rest)

        option = journal_option(words, required=False)
        argument = click.argument("given", metavar=f"[FILE|URL] {keys}", nargs=-1)
        return cast("Command", argument(option(with_journal)))

    return decorate
