"""What the services share: one job for each user's Idempotency-Key, tokens, limits, and the answers to errors."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

from itsdangerous import BadData, URLSafeTimedSerializer
from limits import RateLimitItemPerHour
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from agentjobs_async import AgentJobsSession, CreateOutcomeUnknownError, InvalidInputError, JobRef, PollPolicy
from agentjobs_async.batch import Journal, State
from agentjobs_async.durable import DurableJobs
from agentjobs_async.web import HttpAnswer, drain_on_signal, http_answer

SECRETS = os.environ["TOKEN_SECRETS"].split()
if not SECRETS or min(map(len, SECRETS)) < 16:  # noqa: PLR2004 - a shorter one could be found by trying
    raise SystemExit("TOKEN_SECRETS must be one or more secrets of 16 characters or more each")
TOKENS = URLSafeTimedSerializer(SECRETS)  # the last one signs, each is accepted
SECONDS, MOST_BYTES, CREATES = 25, 65_536, RateLimitItemPerHour(20)  # of a request; of its body; of a user
LIMITER = MovingWindowRateLimiter(MemoryStorage())  # RedisStorage(...) counts for several processes


class RequestError(Exception):
    def __init__(self, status: int, error: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.answer = HttpAnswer(status, {"error": error, "message": message}, headers)


def user_of(headers: Mapping[str, str]) -> str:
    """Return who asks. PUT YOUR OWN AUTHENTICATION HERE: this believes a header, which only your proxy may set."""
    if user := headers.get("X-User"):
        return user
    raise RequestError(401, "unauthorized", "Sign in first.")


def answer_to(error: Exception, headers: Mapping[str, str]) -> HttpAnswer:
    """Return the answer to a request that ended with an error, and log it."""
    answer = error.answer if isinstance(error, RequestError) else http_answer(error)
    is_fault = answer.status >= 500 and answer.body["error"] != "restarting"  # noqa: PLR2004 - of a server
    level, request_id = logging.ERROR if is_fault else logging.INFO, headers.get("X-Request-ID", "-")
    request_id = request_id.encode("unicode_escape").decode()[:64]
    logging.getLogger("jobs").log(level, "request %s: %s", request_id, error.__cause__ or error)
    return answer


def ref_of(user: str, token: str) -> JobRef:
    """Return the job of a token, if it is this user's."""
    with suppress(BadData):
        return JobRef(*TOKENS.loads(token, salt=f"job of {user}"))
    raise RequestError(404, "not_found", "There is no such job of yours.")


async def submit(jobs: DurableJobs, user: str, idempotency_key: str | None, prompt: str) -> str:
    """Return the token of the job that this user's key has already, or else of a new one."""
    if not idempotency_key:
        raise RequestError(400, "invalid_request", "Send an Idempotency-Key, and the same one when you repeat this.")
    key = f"{quote(user, safe='')}/{quote(idempotency_key, safe='')}"
    if await jobs.get(key) is None and not await LIMITER.hit(CREATES, user):
        raise RequestError(429, "too_many_requests", "Try again later.", **{"Retry-After": "600"})
    entry = None
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                entry = await jobs.submit(key, prompt)
    except InvalidInputError:
        if await jobs.get(key) is None:
            raise
        raise RequestError(422, "other_prompt", "The Idempotency-Key is that of another prompt.") from None
    if entry is not None and entry.ref is not None:
        return TOKENS.dumps([entry.ref.project_id, entry.ref.job_id], salt=f"job of {user}")
    if entry is None or entry.state.is_open:  # the service cannot be reached, or refuses the API key at present
        raise RequestError(202, "not_started", "Accepted. Repeat this to learn more.")
    if entry.state is State.UNKNOWN:
        raise CreateOutcomeUnknownError(entry.error or "the answer was lost")
    refused = RequestError(502, "service_refused", "This was refused. Another try needs another Idempotency-Key.")
    raise refused from RuntimeError(entry.error)


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[AgentJobsSession, DurableJobs]]:
    """Return a block with the session and the jobs; SIGTERM ends waits and streams, but no create under way."""
    async with (
        AgentJobsSession(
            project_id=os.environ["AGENTJOBS_PROJECT_ID"], policy=PollPolicy(not_found_grace=9)
        ) as session,
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal) as jobs,
        drain_on_signal(session),
    ):
        yield session, jobs


def limited(app: Callable) -> Callable:
    """Return an ASGI application that reads the body of a request for `app`, unless it is too large."""

    async def read(scope: dict, receive: Callable, send: Callable) -> None:
        messages, size = [], 0
        while scope["type"] == "http" and size <= MOST_BYTES and (not messages or messages[-1].get("more_body")):
            messages.append(await receive())
            size += len(messages[-1].get("body", b""))
        if size > MOST_BYTES:
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body"})
        elif not messages or messages[-1]["type"] == "http.request":  # else the client left amid its body
            await app(scope, lambda: replayed(messages, receive), send)

    return read


async def replayed(messages: list[dict], receive: Callable) -> dict:
    return messages.pop(0) if messages else await receive()
