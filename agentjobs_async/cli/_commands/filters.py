"""The options that name items of a journal."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from agentjobs_async.cli._commands.options import TEXT

if TYPE_CHECKING:
    from agentjobs_async.batch import Where

Command = TypeVar("Command", bound=Callable[..., Any])

_STATES: Final = ("unknown", "failed", "rejected", "active", "sending", "planned", "abandoned", "archived", "completed")
"""Those of `State`, which would load SQLAlchemy."""
_OPTIONS: Final = (
    click.option(
        "--state", "states", multiple=True, type=click.Choice(_STATES), help="Items in this state; repeatable."
    ),
    click.option("--grep", "text", metavar="TEXT", type=TEXT, help="Items with this text in key, prompt or reason."),
    click.option("--project", metavar="ID", type=TEXT, help="Items of this project."),
    click.option(
        "--older-than", metavar="AGE", type=TEXT, help="Last changed at least this long ago: 90s, 30m, 6h or 2d."
    ),
)


def filter_options(command: Command) -> Command:
    """Add the options that name items; the command gets them as `where`, which is `Where()` without any."""

    @functools.wraps(command)
    def with_where(**options: Any) -> Any:
        given = {name: options.pop(name) for name in ("states", "text", "project", "older_than")}
        return command(where=_where(**given), **options)

    found: Any = with_where
    for option in reversed(_OPTIONS):
        found = option(found)
    return cast("Command", found)


def _where(states: tuple[str, ...], text: str | None, project: str | None, older_than: str | None) -> "Where":
    # They load SQLAlchemy, which no other command waits for.
    from agentjobs_async.batch import Where  # noqa: PLC0415 - see above
    from agentjobs_async.cli.limits import duration_of  # noqa: PLC0415 - see above

    age = None if older_than is None else duration_of("--older-than", older_than)
    return Where(states=states or None, text=text, project=project, older_than=age)
