"""The live page as an application of aiohttp."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from secrets import token_urlsafe
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from aiohttp_sse import EventSourceResponse, sse_response
from attrs import asdict, define, field

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.report.figures import Tally
from agentjobs_async.report.html import PLAIN_ROWS, PLAIN_STATES, SCRIPTS, page_parts, rendered
from agentjobs_async.report.live.access import Access
from agentjobs_async.report.live.actions import Action, act
from agentjobs_async.report.live.feed import ChangeFeed
from agentjobs_async.report.source import Source

__all__ = ["TOKEN", "application"]

TOKEN: Final = web.AppKey("token", str)
"""The token of an application."""
_LOGGER: Final = logging.getLogger("agentjobs_async.report")
_PING_SECONDS: Final = 15.0  # a page takes a stream for broken that is silent for longer than twice as long
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
    _feed: ChangeFeed = field(default=None, init=False)
    _acting: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._feed = ChangeFeed(self.journal, prompts=self.prompts)

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Follow the journal while the application runs."""
        del app
        _ = self.journal._entries  # it has to be open
        following = asyncio.get_running_loop().create_task(self._feed.run())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def close(self, app: web.Application) -> None:
        """End all streams."""
        del app
        self._feed.log.close()

    async def page(self, request: web.Request) -> web.Response:
        """Return the page; its script fetches the rows."""
        del request
        scripts = (*SCRIPTS, "live.js", *(["actions.js"] if self.access.acts else []))
        page = page_parts(scripts, "'self'", ("page.css", "live.css"))
        is_open = not self.access.reading_needs_token
        source = await Source.of(self.journal, prompts=self.prompts)
        figures = Tally().figures(source.pauses if is_open else (0, 0.0))
        rows: list[JournalRow] = []
        if is_open:
            await self._feed.check_place()
            # For who has no scripts. The counts are quick to read; all other figures need all rows.
            figures.counts.update(await self.journal.counts())
            for state in PLAIN_STATES:
                rows += await self.journal._entries.page(0, state=state, newest=True, size=PLAIN_ROWS - len(rows))
        text = "".join(rendered(source, page, figures, rows, is_named=is_open))
        headers = {hdrs.CONTENT_SECURITY_POLICY: f"{page.policy}; frame-ancestors 'none'"}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def rows(self, request: web.Request) -> web.StreamResponse:
        """Stream the document of all rows, which the log continues; while it is made, as far as it has come."""
        self.access.check_reading(request)
        document = await self._feed.document()
        response = web.StreamResponse(headers={hdrs.CONTENT_ENCODING: "gzip"})
        response.content_type = "application/x-ndjson"
        await response.prepare(request)
        with suppress(ConnectionError):  # the page was closed meanwhile
            async for piece in document.pieces():
                await response.write(piece)
        return response

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream what follows the position of the last event; `stale` says that it is not known any more."""
        self.access.check_reading(request)
        log = self._feed.log
        with self._feed.watched():
            async with sse_response(request, ping_interval=_PING_SECONDS) as stream:
                position = log.position(request.headers.get("Last-Event-ID"))
                with suppress(ConnectionError, TimeoutError):
                    await self._stream(stream, position)
        return stream

    async def _stream(self, stream: EventSourceResponse, position: int | None) -> None:
        log, sent = self._feed.log, dict[str, Any]()
        while position is not None and not log.is_closed and stream.is_connected():
            news = log.news()
            for line in log.after(position):
                position += 1
                await stream.send(line.rstrip("\n"), id=log.mark(position))
            if log.position(log.mark(position)) is None:
                break  # it reads more slowly than the log forgets
            status = self._feed.status
            if changed := {name: value for name, value in status.items() if name not in sent or sent[name] != value}:
                sent = status
                await stream.send(json.dumps(changed), event="status")
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING_SECONDS):  # then a connection that was lost is noticed
                    await news.wait()
        if not log.is_closed:
            await stream.send("", event="stale")

    async def actions(self, request: web.Request) -> web.Response:
        """Change items."""
        self.access.check_acting(request)
        action = Action.of(await _document_of(request))
        await self._feed.check_place()
        async with self._acting:
            outcome = await act(self.journal, action, _caller(request))
        with suppress(JournalError):
            await self._feed.look()
        return web.json_response(asdict(outcome))


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
        try:
            access.check(request)
            return await _answer(request, handler)
        except web.HTTPError as refusal:
            if request.method == hdrs.METH_POST:
                _LOGGER.warning("an action for %s was refused: %s", _caller(request), refusal.text)
            raise

    return guarded


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    refusal: web.HTTPError
    try:
        return await handler(request)
    except InvalidInputError as error:
        refusal = web.HTTPBadRequest(text=str(error))
    except JournalError as error:
        kind = web.HTTPConflict if error.reason in {"locked", "moved"} else web.HTTPServiceUnavailable
        refusal = kind(text=_refusal_text(error))
    raise refusal


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
