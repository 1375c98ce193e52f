"""The live page, for one's own application of aiohttp."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from agentjobs_async import InvalidInputError
from agentjobs_async._deferred import deferred
from agentjobs_async.batch import Journal
from agentjobs_async.report.html import check_installed

if TYPE_CHECKING:
    from aiohttp.web import Application
else:
    Application = deferred("aiohttp.web", "Application")

__all__ = ["LOOPBACK", "board", "board_token", "running"]

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SHORTEST_TOKEN: Final = 16  # characters: too long to be guessed


def board(
    journal: Journal,
    *,
    allow_actions: bool = False,
    token: str | None = None,
    hosts: Collection[str] = LOOPBACK,
    prompts: bool = True,
) -> "Application":
    """Return an application with the page of a journal that shows changes within a second.

    The page is at `/`; mount it with `app.add_subapp("/board/", board(journal))`. However many pages are open, the
    journal is looked at once per second, and not at all while none is. Every request must name one of `hosts`, and one
    from a page of another origin is refused. Needs the extra `report`.

    Args:
        journal: The journal, open from the start of the application to its end. One that is open for reading only,
            beside a running batch or beside workers, is opened once more for each action.
        allow_actions: Whether a page may retry, resolve and abandon items, if its address ends with
            `#token=` and the token: see `board_token`. Each action is logged to `agentjobs_async.report`.
        token: At least 16 characters that reading needs as well; `None`: reading needs none, and actions a random one.
        hosts: The names and addresses in the addresses of the page, without port; `0.0.0.0` or `::` among them stands
            for any address. Give your own when it is not reached by `localhost`, and then give a token, too.
        prompts: Whether the page has the prompts. An error of the server may still quote one.

    Raises:
        InvalidInputError: The token is too short, or has other characters than ASCII's printable ones; `hosts` is no
            collection of names.
        ModuleNotFoundError: The extra `report` is not installed.
    """
    _check_access(token, hosts)
    check_installed()
    from agentjobs_async.report.live.app import application  # noqa: PLC0415 - a web server: reports need none

    return application(journal, allow_actions=allow_actions, token=token, hosts=hosts, prompts=prompts)


def _check_access(token: object, hosts: object) -> None:
    if token is not None and not (
        isinstance(token, str) and len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()
    ):
        raise InvalidInputError(f"token must have at least {_SHORTEST_TOKEN} printable ASCII characters")
    if isinstance(hosts, str) or not isinstance(hosts, Collection) or not all(isinstance(name, str) for name in hosts):
        raise InvalidInputError(f"hosts must be a collection such as {{'jobs.example.com'}}, not {hosts!r:.100}")


def board_token(app: "Application") -> str:
    """Return the token of an application that `board` has made: actions need it, and reading if a token was given."""
    from agentjobs_async.report.live.app import TOKEN  # noqa: PLC0415 - as above

    return app[TOKEN]


@asynccontextmanager
async def running(app: "Application", port: int) -> AsyncIterator[int]:
    """Serve an application to this machine in the block, which is given the port; 0 chooses a free one.

    Raises:
        OSError: The port can't be listened on.
    """
    from aiohttp import web  # noqa: PLC0415 - as above

    from agentjobs_async.report.live.app import ENDING_SECONDS  # noqa: PLC0415 - as above

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=ENDING_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
