"""What the services share: one job for each user's Idempotency-Key, tokens, limits, and the answers to errors."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from os import environ

from itsdangerous import BadData, URLSafeTimedSerializer
from limits import RateLimitItemPerHour, aio

from agentjobs_async import AgentJobsSession, CreateOutcomeUnknownError, JobRef, PollPolicy
from agentjobs_async.batch import Journal, State
from agentjobs_async.durable import DurableJobs
from agentjobs_async.web import HttpAnswer, drain_on_signal, http_answer

TOKENS = URLSafeTimedSerializer(environ["TOKEN_SECRETS"].split())  # the last one signs, each is accepted
if min(map(len, TOKENS.secret_keys), default=0) < 16:  # noqa: PLR2004 - a shorter one could be found by trying
    raise SystemExit("TOKEN_SECRETS must be one or more secrets of 16 characters or more each")
SECONDS, MOST_BYTES, CREATES = 25, 65_536, RateLimitItemPerHour(20)  # of a request; of its body; of a user
LIMITER = aio.strategies.MovingWindowRateLimiter(aio.storage.MemoryStorage())  # RedisStorage: of several processes


class RequestError(Exception):
    def __init__(self, status: int, error: str, message: str, **headers: str) -> None:
        self.answer = HttpAnswer(status, {"error": error, "message": message}, headers)


def user_of(headers: Mapping[str, str]) -> str:
    """Return who asks. PUT YOUR OWN AUTHENTICATION HERE: this believes a header, which only your proxy may set."""
    if user := headers.get("X-User"):
        return user
    raise RequestError(401, "unauthorized", "Sign in first.")


def answer_to(error: Exception, headers: Mapping[str, str]) -> HttpAnswer:
    """Return the answer to a request that ended with an error, and log it."""
    answer = error.answer if isinstance(error, RequestError) else http_answer(error)
    level = logging.ERROR if answer.status >= 500 and answer.body["error"] != "restarting" else logging.INFO  # noqa: PLR2004 - of a server
    logging.getLogger("web").log(level, "request %.64a: %s", headers.get("X-Request-ID", "-"), error.__cause__ or error)
    return answer


def ref_of(user: str, token: str) -> JobRef:
    """Return the job of a token, if it is this user's."""
    with suppress(BadData):
        return JobRef(*TOKENS.loads(token, salt=f"job of {user!a}"))
    raise RequestError(404, "not_found", "There is no such job of yours.")


async def submit(jobs: DurableJobs, user: str, idempotency_key: str | None, prompt: str) -> str:
    """Return the token of the job that this user's key has already, or else of a new one."""
    if not idempotency_key:
        raise RequestError(400, "invalid_request", "Send an Idempotency-Key, and the same one when you repeat this.")
    key = f"{user!a}/{idempotency_key!a}"  # of any characters; no two pairs have the same one
    if await jobs.get(key) is None and not await LIMITER.hit(CREATES, user):
        raise RequestError(429, "too_many_requests", "Try again later.", **{"Retry-After": "600"})
    try:
        entry = await asyncio.wait_for(jobs.submit(key, prompt), SECONDS)
    except TimeoutError:
        entry = await jobs.get(key)
    if entry and entry.ref:
        return TOKENS.dumps([entry.ref.project_id, entry.ref.job_id], salt=f"job of {user!a}")
    if entry is None or entry.state.is_open:  # the service cannot be reached, or refuses the API key at present
        raise RequestError(202, "not_started", "Accepted. Repeat this to learn more.", **{"Retry-After": "5"})
    if entry.state is State.ABANDONED and entry.sent_at is None:
        raise RequestError(410, "abandoned", entry.to_dict()["message"])
    if entry.state in {State.UNKNOWN, State.ABANDONED}:
        raise CreateOutcomeUnknownError(entry.error or "the answer was lost")
    raise RequestError(502, "service_refused", "Refused. Another try needs another key.") from RuntimeError(entry.error)


def health(jobs: DurableJobs) -> dict[str, object]:
    """Return how many jobs wait to be sent, are held back, or need a person; and what holds them back."""
    stats = jobs.stats()
    paused_by = None if stats.paused_by is None else type(stats.paused_by).__name__
    return {
        "planned": stats.counts.get(State.PLANNED, 0),
        "unknown": stats.counts.get(State.UNKNOWN, 0),
        "held": stats.held,
        "paused_by": paused_by,
        "next_create": stats.next_create,
    }


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[AgentJobsSession, DurableJobs]]:
    """Return a block with the session and the jobs; SIGTERM ends waits and streams, but no create under way."""
    session = AgentJobsSession(project_id=environ["AGENTJOBS_PROJECT_ID"], policy=PollPolicy(not_found_grace=9))
    journal = Journal.open(environ.get("JOURNAL", "jobs.db"))
    async with session, journal, DurableJobs(session, journal) as jobs, drain_on_signal(session):
        yield session, jobs


def limited(app: Callable) -> Callable:
    """Return an ASGI application that reads the body of a request for `app`, unless it is too large or too slow."""

    async def read(scope: dict, receive: Callable, send: Callable) -> None:
        message, messages, size = {"more_body": scope["type"] == "http"}, asyncio.Queue(), 0
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while message.get("more_body") and size <= MOST_BYTES:
                    messages.put_nowait(message := await receive())
                    size += len(message.get("body", b""))
        if status := 413 if size > MOST_BYTES else 408 if message.get("more_body") else None:
            await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body"})
        elif message.get("type") != "http.disconnect":  # else the client left amid its body
            await app(scope, lambda: receive() if messages.empty() else messages.get(), send)

    return read
