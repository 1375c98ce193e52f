"""Serve jobs, in Django: TOKEN_SECRET=at-least-16-bytes uvicorn --app-dir docs/recipes django_asgi:application."""

import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from agentjobs_async import AgentJobsError, AgentJobsSession, PollPolicy
from agentjobs_async.web import SignedTokens, drain_on_signal, http_answer, sse_events

TOKENS = SignedTokens(os.environ["TOKEN_SECRET"])  # the same in all processes, and after a restart
USER = "anyone who has the token"  # or the id of your user, whose tokens are then of no use to others
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")  # a poll, which requests share, has none


async def answered(view: Callable, request: HttpRequest, **arguments: str) -> HttpResponse:
    REQUEST_ID.set(request.headers.get("X-Request-ID", "-"))
    try:
        return await view(request, request.scope["state"]["session"], **arguments)
    except AgentJobsError as error:
        meaning = http_answer(error)
        return JsonResponse(meaning.body, status=meaning.status, headers=meaning.headers)


async def create(request: HttpRequest, session: AgentJobsSession) -> HttpResponse:
    job = await session.create_job(request.body.decode(errors="replace"), on_cancel="finish")
    return JsonResponse({"token": TOKENS.issue(job.ref, user=USER)}, status=202)


async def wait(_request: HttpRequest, session: AgentJobsSession, token: str) -> HttpResponse:
    return JsonResponse((await session.wait_for_job(TOKENS.read(token, user=USER), timeout=25)).to_dict())


async def stream(request: HttpRequest, session: AgentJobsSession, token: str) -> HttpResponse:
    frames = sse_events(session, TOKENS.read(token, user=USER), last_event_id=request.headers.get("Last-Event-ID"))
    return StreamingHttpResponse(frames, content_type="text/event-stream", headers={"Cache-Control": "no-store"})


views = {"jobs": create, "jobs/<token>": wait, "jobs/<token>/events": stream}
urlpatterns = [path(route, partial(answered, view)) for route, view in views.items()]
settings.configure(ROOT_URLCONF=__name__)
django = get_asgi_application()


async def application(scope: dict, receive: Callable, send: Callable) -> None:
    if scope["type"] != "lifespan":
        return await django(scope, receive, send)
    await receive()
    hooks = [lambda event: logging.getLogger("uvicorn.error").info("request %s: %s", REQUEST_ID.get(), event)]
    async with AgentJobsSession(policy=PollPolicy(not_found_grace=9), hooks=hooks) as session, drain_on_signal(session):
        scope["state"]["session"] = session
        await send({"type": "lifespan.startup.complete"})
        await receive()
    return await send({"type": "lifespan.shutdown.complete"})
