"""Views of agent jobs, to copy into your project. A key of a user is one job, however often it is sent."""

import logging
import re
from collections.abc import Callable
from functools import wraps

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods

from agentjobs_async import AgentJobsError
from agentjobs_async.durable import DurableJobs, user_key
from agentjobs_async.web import http_answer, sse_events

log = logging.getLogger(__name__)


class AnswerErrors(MiddlewareMixin):
    """Answers the errors of agentjobs_async that views raise. Its place is in MIDDLEWARE, in settings.py."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, AgentJobsError):
            return None
        answer = http_answer(error, log=log, request_id=request.headers.get("X-Request-ID"))
        return JsonResponse(answer.body, status=answer.status, headers=answer.headers)


def signed_in(view: Callable) -> Callable:
    """Pass the user to a view. PUT YOUR OWN AUTHENTICATION HERE: this trusts a header that only your proxy may set."""

    @wraps(view)
    async def checked(request: HttpRequest, **arguments: str) -> HttpResponse:
        user = request.headers.get("X-User")
        if not user:
            return HttpResponse("Sign in first.", status=401, content_type="text/plain")
        return await view(request, user, **arguments)

    return checked


def durable_jobs(request: HttpRequest) -> DurableJobs:
    return request.scope["state"]["jobs"]  # from the lifespan in asgi.py


@csrf_exempt  # POST needs the header Idempotency-Key, which no form of another site can send
@require_http_methods(["GET", "POST"])
@signed_in
async def jobs(request: HttpRequest, user: str) -> HttpResponse:
    if request.method == "POST":
        return await create(request, user)
    entries = await durable_jobs(request).of_user(user)
    return JsonResponse([entry.to_dict(user=user) for entry in entries], safe=False)  # which allows a list


async def create(request: HttpRequest, user: str) -> HttpResponse:
    """Plan a job, which is sent soon, or return the one that the user's key has already."""
    key = request.headers.get("Idempotency-Key", "")
    if not re.fullmatch("[A-Za-z0-9_-]{1,100}", key):  # fit for the path /jobs/KEY
        return HttpResponse("Send an Idempotency-Key of up to 100 letters, digits, _ and -.", status=400)
    prompt = request.body.decode(errors="surrogateescape")  # a 400 from submit, if it is not UTF-8
    full_key = user_key(user, key)  # which no other user can have
    entry = await durable_jobs(request).submit(full_key, prompt, user=user, most_open=20, wait_for_create=False)
    return JsonResponse(entry.to_dict(user=user), status=202)  # what the user may see


@require_GET
@signed_in
async def wait(request: HttpRequest, user: str, key: str) -> HttpResponse:
    """Return a job once it has ended. After 25 s, `AnswerErrors` answers 202: the client asks again."""
    entry = await durable_jobs(request).wait(user_key(user, key), timeout=25)
    return JsonResponse(entry.to_dict(user=user))


@require_GET
@signed_in
async def events(request: HttpRequest, user: str, key: str) -> HttpResponse | StreamingHttpResponse:
    full_key = user_key(user, key)
    if await durable_jobs(request).get(full_key) is None:
        raise Http404
    last_event_id = request.headers.get("Last-Event-ID")
    frames = sse_events(durable_jobs(request), full_key, user=user, last_event_id=last_event_id)
    return StreamingHttpResponse(frames, content_type="text/event-stream", headers={"Cache-Control": "no-store"})


@require_GET
async def healthz(request: HttpRequest) -> HttpResponse:
    return JsonResponse(durable_jobs(request).stats().to_dict())
