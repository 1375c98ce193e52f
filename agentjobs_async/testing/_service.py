"""The service without faults: its jobs, and its answer to each request."""

import math
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import attrs

from agentjobs_async._validation import checked_count, checked_seconds, validator
from agentjobs_async.testing._create_body import CreateBody
from agentjobs_async.testing._dialect import UNNAMED_PROJECT, ServedDialect
from agentjobs_async.testing._messages import Answer, ReceivedRequest, error
from agentjobs_async.testing._repeats import RememberedCreates
from agentjobs_async.testing._scripts import JobScript, ScriptOf

_count_or_none: Any = validator(checked_count, optional=True, least=0)


@attrs.frozen
class RateLimit:
    """At most `creates` creates per project, and `reads` reads of all projects, in any span of `per` seconds.

    `None` is for any number.

    Raises:
        InvalidInputError: `creates` or `reads` is negative, or `per` is not above 0.
    """

    creates: int | None = attrs.field(default=100, validator=_count_or_none)
    per: float = attrs.field(default=3600.0, validator=validator(checked_seconds))
    reads: int | None = attrs.field(default=None, validator=_count_or_none, kw_only=True)


class RateWindow:
    """Counts the requests of each project, at most `most` in any span of `per` seconds."""

    def __init__(self, most: int, per: float) -> None:
        self._most = most
        self._per = per
        self._counted: defaultdict[str, deque[float]] = defaultdict(deque)

    def count(self, project_id: str, now: float) -> int | None:
        """Count one request; over the limit, count nothing and return the seconds until one is allowed, rounded up.

        Args:
            project_id: The project of the request.
            now: Seconds on a monotonic clock.
        """
        counted = self._counted[project_id]
        while counted and now - counted[0] >= self._per:
            counted.popleft()
        if len(counted) >= self._most:
            oldest = counted[0] if counted else now
            return max(1, math.ceil(oldest + self._per - now))
        counted.append(now)
        return None


_START_LETTERS = "23456789bcdfghjkmnpqrstvwxz"  # no 0, 1, l, o, and no vowels: they spell no word
_START_LENGTH = 6  # letters: two starts have the same once in 387 million times
_START_NUMBERS = 900_000_000  # 15 digits with a job's own six: every decoder of JSON reads them exactly
_ALL_PROJECTS = ""  # no project has this id


@attrs.frozen(kw_only=True)
class StartedJob:
    """A job whose agent was started.

    Args:
        job_id: Its id.
        project_id: The project it belongs to.
        prompt: The prompt it was created with.
        script: Its script.
        started_at: Seconds on the loop's clock.
        created_at: The same moment as an aware UTC time.
        extra: The further fields of its create, by their names.
    """

    job_id: str
    project_id: str
    prompt: str
    script: JobScript
    started_at: float
    created_at: datetime
    extra: Mapping[str, Any] = attrs.field(factory=dict)


class EmulatedService:
    """Has the jobs and answers requests, without sockets and without faults.

    A job's id has a part that is drawn at random for each service, then the job's number.

    Args:
        api_key: The key that every request must have.
        script_of: Returns the script of a new job.
        rate_limit: The limit of creates and reads; `None` for no limit.
        speed: The factor by which jobs run faster than their scripts say.
        dialect: How requests and documents look.
    """

    def __init__(
        self,
        *,
        api_key: str,
        script_of: ScriptOf,
        rate_limit: RateLimit | None,
        speed: float,
        dialect: ServedDialect = ServedDialect(),  # noqa: B008 - a frozen value
    ) -> None:
        self._dialect = dialect
        self._value_of_key = dialect.value_of_key(api_key)
        self._repeats = RememberedCreates(dialect.idempotency_seconds)
        self._script_of = script_of
        self.limit(rate_limit)
        self._speed = speed
        self.jobs: dict[str, StartedJob] = {}
        self.started = Counter[str]()
        self._start = _start_of_ids(dialect)
        self._numbered = 0

    def limit(self, rate_limit: RateLimit | None) -> None:
        """Set the limit of creates and reads; what went before does not count."""
        creates, reads, per = (rate_limit.creates, rate_limit.reads, rate_limit.per) if rate_limit else (None, None, 0)
        self._creates = None if creates is None else RateWindow(creates, per)
        self._reads = None if reads is None else RateWindow(reads, per)

    def answer(self, request: ReceivedRequest, wall: datetime, *, start_agent: bool = True) -> Answer:
        """Return the answer to a request.

        Args:
            request: The request.
            wall: The wall clock when it arrived.
            start_agent: Whether a valid create starts a job; otherwise its answer shows a job that does not exist.
        """
        resource = self._dialect.resource_of(request.method, request.target)
        if resource is None:
            return error(404, "no such resource")
        if request.headers.get(self._dialect.key_header) != self._value_of_key:
            return error(401, "the API key is missing or wrong")
        if resource.job_id is None:
            return self._create(resource.project_id, request, wall, start_agent=start_agent)
        return self._get(resource.project_id, resource.job_id, request)

    def answered(self, request: ReceivedRequest) -> None:
        """Record that the answer to a request has been sent, or can't be: until then a create is under way."""
        self._repeats.answered(request.connection)

    def _create(self, project_id: str | None, request: ReceivedRequest, wall: datetime, *, start_agent: bool) -> Answer:
        if request.method != "POST":
            return error(405, "method not allowed", ("Allow", "POST"))
        body = self._dialect.read_create(request.body)
        if isinstance(body, Answer):
            return body
        if None not in (project_id, body.project_id) and project_id != body.project_id:
            return error(400, "the body names another project than the path")
        project = project_id or body.project_id or UNNAMED_PROJECT
        idempotency_key = request.headers.get(self._dialect.idempotency_header or "")
        if idempotency_key:
            repeated = self._repeats.repeated((project, idempotency_key), request.body, request.at)
            if repeated is not None:
                return repeated
        seconds = self._creates.count(project, request.at) if self._creates and start_agent else None
        if seconds is not None:
            return error(429, "too many creates", ("Retry-After", str(seconds)))
        job = self._new_job(project, body, request.at, wall)
        fresh = self._fields(job, request.at) | {"status": "active", "pr_link": None, "archived_at": None}
        answer = Answer(201, self._dialect.document(fresh), job_id=job.job_id)
        if start_agent:
            self.jobs[job.job_id] = job
            self.started[job.prompt] += 1
            if idempotency_key:
                key = (project, idempotency_key)
                self._repeats.remember(key, request.body, answer, request.at, request.connection)
        return answer

    def _new_job(self, project_id: str, body: CreateBody, now: float, wall: datetime) -> StartedJob:
        script = self._script_of(project_id, body.prompt)
        self._numbered += 1
        return StartedJob(
            job_id=script.job_id or f"{self._start}{self._numbered:06d}",
            project_id=project_id,
            prompt=body.prompt,
            script=script,
            started_at=now,
            created_at=wall,
            extra=body.extra,
        )

    def _get(self, project_id: str | None, job_id: str, request: ReceivedRequest) -> Answer:
        if request.method != "GET":
            return error(405, "method not allowed", ("Allow", "GET"))
        seconds = self._reads.count(_ALL_PROJECTS, request.at) if self._reads else None
        if seconds is not None:
            return error(429, "too many reads", ("Retry-After", str(seconds)))
        job = self.jobs.get(job_id)
        if job is None or not self._is_of(job, project_id) or self._age(job, request.at) < job.script.visible_after:
            return error(404, "no such job")
        return Answer(200, self._dialect.document(self._fields(job, request.at)))

    def _is_of(self, job: StartedJob, project_id: str | None) -> bool:
        """Return whether a path to a job may name this project; a job that was created without any may have any."""
        return project_id in (None, job.project_id) or not self._dialect.creates_name_a_project

    def _age(self, job: StartedJob, now: float) -> float:
        return (now - job.started_at) * self._speed

    def _fields(self, job: StartedJob, now: float) -> dict[str, Any]:
        """Return the fields of a job at `now`, in seconds on the loop's clock."""
        status = job.script.status_at(self._age(job, now))
        return {
            "id": job.job_id,
            "status": status,
            "source.repository": f"acme/{job.project_id}",
            "source.ref": "main",
            "model": "agent-large-1",
            "pr_link": pull_request(job) if status == "completed" and job.script.pull_request else None,
            "created_at": timestamp(job.created_at),
            "archived_at": timestamp(self._end(job)) if status == "archived" else None,
        }

    def _end(self, job: StartedJob) -> datetime:
        return job.created_at + timedelta(seconds=job.script.duration / self._speed)


def _start_of_ids(dialect: ServedDialect) -> str:
    """Return how the ids of one service begin."""
    if dialect.integer_ids:
        return str(100_000_000 + secrets.randbelow(_START_NUMBERS))
    letters = "".join(secrets.choice(_START_LETTERS) for _ in range(_START_LENGTH))
    return f"job_{letters}_"


def pull_request(job: StartedJob) -> str:
    """Return the address of a job's pull request."""
    job_id = quote(job.job_id, safe="", errors="surrogatepass")
    return f"https://code.example/acme/{quote(job.project_id, safe='')}/pull/{job_id}"


def timestamp(moment: datetime) -> str:
    """Return an aware time as ISO 8601 in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
