"""The live page as an application of aiohttp."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, suppress
from secrets import token_urlsafe
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from attrs import define, field

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.report.figures import Figures
from agentjobs_async.report.html import SCRIPTS, page_parts, plain_rows, rendered
from agentjobs_async.report.late import late_lines
from agentjobs_async.report.live.access import Access
from agentjobs_async.report.live.actions import Action, act
from agentjobs_async.report.live.feed import ChangeFeed
from agentjobs_async.report.source import Source
from agentjobs_async.report.standing import standing_of

__all__ = ["ENDING_SECONDS", "TOKEN", "application"]

TOKEN: Final = web.AppKey("token", str)
"""The token of an application."""
ENDING_SECONDS: Final = 0.5
"""For which requests under way may go on, once the server is stopped."""
_LOGGER: Final = logging.getLogger("agentjobs_async.report")
_HEADERS: Final = {
    hdrs.CACHE_CONTROL: "no-store",
    hdrs.X_CONTENT_TYPE_OPTIONS: "nosniff",
    hdrs.X_FRAME_OPTIONS: "DENY",
    hdrs.REFERRER_POLICY: "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def application(
    journal: Journal, *, allow_actions: bool, token: str | None, hosts: Collection[str], prompts: bool
) -> web.Application:
    """Return the application; its arguments are those of `board`."""
    access = Access(token or token_urlsafe(), hosts, reading_needs_token=token is not None, acts=allow_actions)
    board = _Board(journal, access, prompts)
    app = web.Application(middlewares=[_guarded(access)])
    app[TOKEN] = access.token
    app.router.add_get("/", board.page)
    app.router.add_get("", _to_page)  # after the page: at the root of a server, both have the same address
    app.router.add_get("/rows", board.rows)
    app.router.add_get("/events", board.events)
    app.router.add_post("/actions", board.actions)
    app.on_response_prepare.append(_add_headers)
    app.on_response_prepare.append(board.note_response)
    app.cleanup_ctx.append(board.running)
    # Before the server waits for its requests: a stream would never end.
    app.on_shutdown.append(board.close)
    return app


@define(eq=False)
class _Board:
    """The handlers of one board."""

    journal: Journal
    access: Access
    prompts: bool
    _feed: ChangeFeed = field(init=False)
    _acting: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _responding: dict[asyncio.Task[Any], asyncio.Transport] = field(factory=dict, init=False)
    """The requests whose response has begun, each with its connection."""

    @_feed.default
    def _new_feed(self) -> ChangeFeed:
        return ChangeFeed(self.journal, prompts=self.prompts)

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Read what changes in the journal while the application runs."""
        del app
        _ = self.journal.store  # it has to be open
        reading = asyncio.get_running_loop().create_task(self._feed.run())
        try:
            yield
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def note_response(self, request: web.Request, response: web.StreamResponse) -> None:
        """Remember the connection of a response that begins: from here on, it waits for its reader."""
        del response
        task = asyncio.current_task()
        if task is not None and request.transport is not None:
            self._responding[task] = request.transport
            task.add_done_callback(self._responding.pop)

    async def close(self, app: web.Application) -> None:
        """End all streams, and break off what is still sent after `ENDING_SECONDS`: its client may never read it."""
        del app
        self._feed.log.close()
        if self._responding:
            _, unended = await asyncio.wait(self._responding, timeout=ENDING_SECONDS)
            for task in unended:
                self._responding[task].abort()

    async def page(self, request: web.Request) -> web.Response:
        """Return the page; its script fetches the rows."""
        del request
        scripts = (*SCRIPTS, "live.js", *(["actions.js"] if self.access.acts else []))
        page = page_parts(scripts, "'self'", ("page.css", "live.css"))
        is_open = not self.access.reading_needs_token
        source = await Source.of(self.journal, prompts=self.prompts)
        figures = Figures(Counter())
        rows, late, stands = list[JournalRow](), list[str](), None
        if is_open:
            await self._feed.file.check()
            # For who has no scripts. The counts are quick to read; all other figures need all rows.
            figures = Figures(Counter(await self.journal.counts()), reasons=self._feed.reasons)
            rows, late = await plain_rows(self.journal), await late_lines(self.journal)
            stands = await standing_of(self.journal)
        text = "".join(rendered(source, page, figures, rows, stands=stands, late=late, is_named=is_open))
        headers = {hdrs.CONTENT_SECURITY_POLICY: f"{page.policy}; frame-ancestors 'none'"}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def rows(self, request: web.Request) -> web.StreamResponse:
        """Stream the document of all rows, which the log continues; while it is made, as far as it has come."""
        self.access.check_reading(request)
        document = await self._feed.document()
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        return await _streamed(request, headers, document.pieces())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream what follows the last event that the page has."""
        self.access.check_reading(request)
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}  # nginx would hold events back
        return await _streamed(request, headers, self._feed.frames(request.headers.get("Last-Event-ID")))

    async def actions(self, request: web.Request) -> web.Response:
        """Change items."""
        self.access.check_acting(request)
        action = Action.of(await _document_of(request))
        await self._feed.file.check()
        async with self._acting:
            outcome = await act(self.journal, action, _caller(request))
        with suppress(JournalError):
            await self._feed.look()
        return web.json_response(outcome)


async def _streamed(
    request: web.Request, headers: Mapping[str, str], pieces: AsyncGenerator[bytes]
) -> web.StreamResponse:
    """Send pieces as they come, until they end or the page is closed."""
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    async with aclosing(pieces):
        with suppress(ConnectionError):
            async for piece in pieces:
                await response.write(piece)
    return response


async def _document_of(request: web.Request) -> Any:
    # A form of another page can't send this type without asking the board first.
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Send application/json.")
    try:
        return json.loads(await request.text())
    except (ValueError, LookupError, RecursionError, web.RequestPayloadError):
        raise web.HTTPBadRequest(text="The body is no JSON.") from None


async def _to_page(request: web.Request) -> web.Response:
    """Redirect from `/board` to `/board/`: the page's addresses are relative."""
    raise web.HTTPPermanentRedirect(f"{request.path}/")


def _caller(request: web.Request) -> str:
    return request.remote or "?"


def _guarded(access: Access) -> Middleware:
    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal: web.HTTPError
        try:
            access.check(request)
            return await handler(request)
        except web.HTTPError as error:
            refusal = error
        except InvalidInputError as error:
            refusal = web.HTTPBadRequest(text=str(error))
        except JournalError as error:
            kind = web.HTTPConflict if error.reason in {"locked", "moved"} else web.HTTPServiceUnavailable
            refusal = kind(text=_refusal_text(error))
        if request.method == hdrs.METH_POST:
            _LOGGER.warning("an action for %s was refused: %s", _caller(request), refusal.text)
        raise refusal

    return guarded


def _refusal_text(error: JournalError) -> str:
    if error.reason != "locked":
        return str(error)
    return (
        "A batch is running on this file, and only one process at a time can change it. Wait for its end, or stop it;"
        " a journal on PostgreSQL can be changed at any time."
    )


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    del request
    for name, value in _HEADERS.items():
        response.headers[name] = value
