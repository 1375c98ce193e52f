"""The well-behaved service: what it answers to a request, and the jobs it keeps."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

import attrs

from agentjobs_async.testing._answers import Answer, error
from agentjobs_async.testing.limits import RateLimit, RateWindow
from agentjobs_async.testing.lives import LifeOf
from agentjobs_async.testing.records import ReceivedRequest, StartedJob

__all__ = ["Service", "locate", "read_prompt"]


@attrs.frozen
class Place:
    """What a request target points at: the jobs of a project, or one of them."""

    project_id: str
    job_id: str | None = None


def locate(target: str) -> Place | None:
    """Read the path of a request target; `None` for a path the service does not have."""
    match target.partition("?")[0].split("/"):
        case ["", "v2", "agent", project, "job"] if project:
            return Place(unquote(project))
        case ["", "v2", "agent", project, "job", job] if project and job:
            return Place(unquote(project), unquote(job))
        case _:
            return None


def read_prompt(body: bytes) -> str | Answer:
    """Give the prompt of a create body, or the answer that refuses it."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return error(400, "the body is not JSON")
    if not isinstance(document, dict):
        return error(400, "the body is not an object")
    prompt = document.get("prompt")
    if not isinstance(prompt, str):
        return error(400, "prompt must be a string")
    return prompt if prompt.strip() else error(400, "prompt must not be blank")


class Service:
    """Keeps the jobs and answers requests; it knows neither sockets nor faults.

    Args:
        api_key: The key that every request has to bear.
        life_of: Chooses the life of a new job.
        rate_limit: Of the creates of each project; `None` for no limit.
        speed: How many times faster than scripted a job lives.
    """

    def __init__(self, *, api_key: str, life_of: LifeOf, rate_limit: RateLimit | None, speed: float) -> None:
        self._authorization = f"Bearer {api_key}"
        self._life_of = life_of
        self._window = RateWindow(rate_limit) if rate_limit else None
        self._speed = speed
        self.jobs: dict[str, StartedJob] = {}
        self.started = Counter[str]()
        self.numbered = 0

    def answer(self, request: ReceivedRequest, wall: datetime, *, start_agent: bool = True) -> Answer:
        """Answer a request.

        Args:
            request: What arrived.
            wall: The wall clock at its arrival.
            start_agent: Whether a good create is carried out; else its answer tells of a job that isn't there.
        """
        place = locate(request.target)
        if place is None:
            return error(404, "no such resource")
        if request.headers.get("Authorization") != self._authorization:
            return error(401, "the API key is missing or wrong")
        if place.job_id is None:
            return self._create(place.project_id, request, wall, start_agent=start_agent)
        return self._get(place, place.job_id, request)

    def _create(self, project_id: str, request: ReceivedRequest, wall: datetime, *, start_agent: bool) -> Answer:
        if request.method != "POST":
            return error(405, "method not allowed", ("Allow", "POST"))
        prompt = read_prompt(request.body)
        if isinstance(prompt, Answer):
            return prompt
        seconds = self._window.take(project_id, request.at) if self._window and start_agent else None
        if seconds is not None:
            return error(429, "too many creates", ("Retry-After", str(seconds)))
        job = self._new_job(project_id, prompt, request.at, wall)
        if start_agent:
            self.jobs[job.job_id] = job
            self.started[prompt] += 1
        return Answer(201, {**self.document(job, request.at), "status": "active", "prLink": None, "archivedAt": None})

    def _new_job(self, project_id: str, prompt: str, now: float, wall: datetime) -> StartedJob:
        life = self._life_of(project_id, prompt)
        self.numbered += 1
        return StartedJob(
            job_id=life.job_id or f"job_{self.numbered:06d}",
            project_id=project_id,
            prompt=prompt,
            life=life,
            started_at=now,
            created_at=wall,
        )

    def _get(self, place: Place, job_id: str, request: ReceivedRequest) -> Answer:
        if request.method != "GET":
            return error(405, "method not allowed", ("Allow", "GET"))
        job = self.jobs.get(job_id)
        if job is None or job.project_id != place.project_id or self._age(job, request.at) < job.life.visible_after:
            return error(404, "no such job")
        return Answer(200, self.document(job, request.at))

    def _age(self, job: StartedJob, now: float) -> float:
        return (now - job.started_at) * self._speed

    def document(self, job: StartedJob, now: float) -> dict[str, Any]:
        """Give the document of a job at a moment, in seconds of the loop's clock."""
        status = job.life.status_at(self._age(job, now))
        return {
            "id": job.job_id,
            "status": status,
            "source": {"repository": f"acme/{job.project_id}", "ref": "main"},
            "model": "agent-large-1",
            "prLink": pull_request(job) if status == "completed" and job.life.pull_request else None,
            "createdAt": timestamp(job.created_at),
            "archivedAt": timestamp(self._end(job)) if status == "archived" else None,
        }

    def _end(self, job: StartedJob) -> datetime:
        return job.created_at + timedelta(seconds=job.life.duration / self._speed)


def pull_request(job: StartedJob) -> str:
    """Give the address of a job's pull request."""
    return f"https://code.example/acme/{quote(job.project_id, safe='')}/pull/{quote(job.job_id, safe='')}"


def timestamp(moment: datetime) -> str:
    """Write an aware time as ISO 8601 in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
