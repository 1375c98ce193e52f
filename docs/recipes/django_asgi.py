"""Serve jobs, in Django: TOKEN_SECRETS=at-least-16-bytes uvicorn --app-dir docs/recipes django_asgi:application."""

from collections.abc import Callable

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST
from web_jobs import SECONDS, RequestError, answer_to, health, limited, opened, ref_of, submit, user_of

from agentjobs_async import AgentJobsError
from agentjobs_async.web import sse_events


def answered(view: Callable) -> Callable:
    async def answer(request: HttpRequest, **arguments: str) -> HttpResponse:
        try:
            return await view(request, user_of(request.headers), **arguments)
        except (AgentJobsError, RequestError) as error:
            meaning = answer_to(error, request.headers)
            return JsonResponse(meaning.body, status=meaning.status, headers=meaning.headers)

    return answer


@require_POST
@answered
async def create(request: HttpRequest, user: str) -> HttpResponse:
    jobs, key = request.scope["state"]["jobs"], request.headers.get("Idempotency-Key")
    prompt = request.body.decode(errors="surrogateescape")  # refused where it is not UTF-8
    return JsonResponse({"token": await submit(jobs, user, key, prompt)}, status=202)


@require_GET
@answered
async def wait(request: HttpRequest, user: str, token: str) -> HttpResponse:
    session = request.scope["state"]["session"]
    return JsonResponse((await session.wait_for_job(ref_of(user, token), timeout=SECONDS)).to_dict())


@require_GET
@answered
async def stream(request: HttpRequest, user: str, token: str) -> HttpResponse:
    session, last = request.scope["state"]["session"], request.headers.get("Last-Event-ID")
    frames = sse_events(session, ref_of(user, token), last_event_id=last)
    return StreamingHttpResponse(frames, content_type="text/event-stream", headers={"Cache-Control": "no-store"})


@require_GET
async def healthz(request: HttpRequest) -> HttpResponse:
    return JsonResponse(health(request.scope["state"]["jobs"]))


urlpatterns = [
    path("jobs", create),
    path("jobs/<token>", wait),
    path("jobs/<token>/events", stream),
    path("healthz", healthz),
]
settings.configure(ROOT_URLCONF=__name__)
django = limited(get_asgi_application())


async def application(scope: dict, receive: Callable, send: Callable) -> None:
    if scope["type"] != "lifespan":
        return await django(scope, receive, send)
    await receive()
    phase = "startup"
    try:
        async with opened() as (session, jobs):
            scope["state"].update(session=session, jobs=jobs)
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except AgentJobsError as error:
        return await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
    return await send({"type": "lifespan.shutdown.complete"})
