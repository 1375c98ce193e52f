"""The service of a world, over aiohttp's own server: it alone knows which agents were started."""

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final

from aiohttp import web
from attrs import define

from tests.simulation.activities import Program
from tests.simulation.dates import RETRY_DATES, Form, field_of, form_of
from tests.simulation.network import Connection, Network
from tests.simulation.world import EPOCH, Fault, World

_ENDS: Final = ("completed",) * 8 + ("failed", "archived")
_POISON_SECONDS: Final = 900.0
_HTML: Final = "<html><body><h1>We'll be back soon</h1></body></html>"
_NO_FAULT: Final = Fault("", 0, "")


@define(eq=False)
class Request:
    """A request that arrived whole.

    Attributes:
        kind: `create` or `poll`.
        subject: The prompt of a create, the job's id of a poll.
        sender: The User-Agent: which session it was.
        begun: When its connection was asked for.
        left: When its first byte was sent.
        arrived: When it had arrived whole.
        job_id: The job that it asks for or starts.
        status: What it was answered with; 0 if it was not.
        retry_after: Seconds of the answer's Retry-After; `None` without one that counts.
        is_good: Whether the answer showed the job.
        is_end: Whether it showed the job's end.
        heard: When the answer had arrived, or could not arrive any more.
        is_cut: Whether the client left before the whole answer had come.
    """

    kind: str
    project: str
    subject: str
    sender: str
    begun: float
    left: float
    arrived: float
    job_id: str = ""
    status: int = 0
    retry_after: float | None = None
    is_good: bool = False
    is_end: bool = False
    fault: str = ""
    heard: float = inf
    is_cut: bool = False


@define(eq=False)
class Job:
    """An agent that was started.

    Attributes:
        started: When, in seconds since the world began.
        seconds: How long it works.
        end: The status with which it ends.
        visible: When it can be read; before, its polls are answered with a 404.
        poison: What its polls are answered for a while; `None` for what is true.
        form: How its dates are written.
    """

    id: str
    project: str
    prompt: str
    started: float
    seconds: float
    end: str
    visible: float
    poison: Fault | None
    form: Form


class Service:
    """Answers creates and polls, and remembers everything.

    Attributes:
        requests: In the order in which they arrived.
        jobs: By their ids.
        agents: The ids of the agents for each prompt.
        keys: The API key of each sender.
        ahead: How many seconds its clock is ahead of that of the world.
    """

    def __init__(self, world: World, programs: Iterable[Program]) -> None:
        self._world = world
        self._programs = {one.name: one for one in programs}
        self._random = random.Random(f"{world.seed} service")
        self._dates = random.Random(f"{world.seed} dates")
        self.ahead = self._dates.choice((0.0, 0.0, 0.0, -3600.0, -20.0, 30.0, 86_400.0))
        self.keys: dict[str, str] = {}
        self.requests: list[Request] = []
        self.jobs: dict[str, Job] = {}
        self.agents: dict[str, list[str]] = {}
        self.allowed: dict[str, int] = {}  # how many agents a prompt may have; 1 where it is not named
        self._moments: dict[tuple[str, str], list[asyncio.Event]] = {}
        server = web.Server(self._answer, access_log=None, loop=world.loop)
        world.network = Network(world, server)

    def allow(self, prompt: str, more: int) -> None:
        """Allow more agents for a prompt, or fewer again."""
        self.allowed[prompt] = self.allowed.get(prompt, 1) + more

    def moment(self, kind: str, prompt: str) -> asyncio.Event:
        """Return what is set when a prompt reaches a moment of this kind next."""
        event = asyncio.Event()
        self._moments.setdefault((kind, prompt), []).append(event)
        return event

    def reached(self, kind: str, prompt: str) -> None:
        """Tell all who wait for a moment that it is reached."""
        for event in self._moments.pop((kind, prompt), ()):
            event.set()

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        world, transport = self._world, http.transport
        connection: Connection = transport.connection  # type: ignore[union-attr]  # of this world
        body = await http.read()
        left = world.now if connection.left_at is None else connection.left_at
        sender = http.headers.get("User-Agent", "")
        if not self._is_allowed(http, sender):
            world.violate(f"P9, P15: a request for {http.path}, {http.headers}")
            return web.Response(status=500)
        _, _, _, project, _, *ids = http.path.split("/")  # /v2/agent/{project}/job[/{id}]
        kind, subject = ("create", json.loads(body)["prompt"]) if http.method == "POST" else ("poll", ids[0])
        request = Request(kind, project, subject, sender, connection.begun, left, world.now)
        self.requests.append(request)
        job = self.jobs.get(subject)
        self._check_place(request, subject if job is None else job.prompt)
        fault = next(iter(world.next(kind)), None) or self._poison(job) or self._outage(project, sender)

        def heard() -> None:
            request.heard, request.is_cut = min(world.now, connection.cut_at), connection.cut_at < inf

        if connection.cut_at < inf:
            heard()
        else:
            connection.on_heard = heard
        if kind == "create":
            self.reached("create", subject)
            job = self._start(project, subject, fault)
        request.job_id = "" if job is None else job.id
        response = await self._respond(request, job, fault)
        if response is None:
            transport.abort()  # type: ignore[union-attr]  # as above
            return web.Response(status=500)
        request.status = response.status
        world.note(f"{kind} {subject} {request.status} {request.fault} {request.retry_after}")
        return response

    def _poison(self, job: Job | None) -> Fault | None:
        return job.poison if job is not None and self._world.now <= job.started + _POISON_SECONDS else None

    def _is_allowed(self, http: web.BaseRequest, sender: str) -> bool:
        """Return whether a request has the address and the key of its sender."""
        is_here = http.path.startswith("/v2/agent/") and http.headers.get("Host") == "service.test"
        return is_here and http.headers.get("Authorization") == f"Bearer {self.keys.get(sender)}"

    def _check_place(self, request: Request, prompt: str) -> None:
        """Report, at once, a request that goes to another project than that of its row or job."""
        project = self._programs[request.sender.partition(".")[0]].project_of(prompt)
        if project not in {None, request.project}:
            words = f"{request.sender} sends a {request.kind} of {request.subject} to {request.project}, not {project}"
            self._world.violate(f"Places: {words}")

    def _outage(self, project: str, sender: str) -> Fault:
        kind = self._world.outage()
        if kind is not None and kind.startswith("401 ") and self.keys[sender].endswith(kind.removeprefix("401 ")):
            return Fault("outage", 0, "401")  # this key is refused
        if kind == f"429 {project}":  # a limit of this project alone
            return Fault("outage", 0, "429", text="seconds 60")
        return Fault("outage", 0, kind) if kind in {"503", "504", "429", "maintenance"} else _NO_FAULT

    def _start(self, project: str, prompt: str, fault: Fault) -> Job | None:
        """Start an agent, unless the fault keeps the service from it."""
        refuses = fault.what == "hang up" or fault.what.isdigit()
        if fault.what == "maintenance" or (refuses and not fault.amount):
            return None
        found = self.agents.setdefault(prompt, [])
        job = Job(
            id=f"job-{len(self.jobs) + 1}",
            project=project,
            prompt=prompt,
            started=self._world.now,
            seconds=self._random.choice((0.0, 20.0, 20.0, 90.0, 400.0)) * self._random.uniform(0.5, 1.5),
            end=self._random.choice(_ENDS),
            visible=self._world.now + self._random.choice((0.0, 0.0, 0.0, 8.0)),
            poison=next(iter(self._world.next("job")), None),
            form=form_of(self._dates),
        )
        self.jobs[job.id] = job
        found.append(job.id)
        self._world.note(f"agent {job.id} for {prompt}")
        if len(found) > self.allowed.get(prompt, 1):
            self._world.violate(f"P1: {len(found)} agents for {prompt}")
        return job

    async def _respond(self, request: Request, job: Job | None, fault: Fault) -> web.Response | None:
        what = request.fault = fault.what
        if what == "late":
            await asyncio.sleep(fault.amount)
        if what == "hang up":
            return None
        if what.isdigit():
            return self._refusal(request, fault)
        if what == "maintenance":
            return web.Response(text=_HTML, content_type="text/html")
        if job is None or (request.kind == "poll" and self._world.now < job.visible):
            return web.json_response({"error": "no such job"}, status=404)
        document = self._document(job)
        if what in _DOCUMENTS:
            return _DOCUMENTS[what](document)
        request.is_good = True
        request.is_end = document["status"] != "active"
        return web.json_response(document, headers=self._retry_after(request, fault) if what == "retry after" else {})

    def _document(self, job: Job) -> dict[str, Any]:
        """Return the document of a job as it is now."""
        ended = self._world.now >= job.started + job.seconds
        created = EPOCH + self.ahead + job.started
        return {
            "id": job.id,
            "status": job.end if ended else "active",
            "source": {"repository": "acme/docs", "ref": "main"},
            "model": "large",
            "prLink": f"https://forge.test/pull/{job.id}" if ended and job.end == "completed" else None,
            "createdAt": job.form.text(created),
            "archivedAt": job.form.text(created + job.seconds) if ended and job.end == "archived" else None,
        }

    def _refusal(self, request: Request, fault: Fault) -> web.Response:
        key = self.keys[request.sender]
        echo = json.dumps({"error": f"refused:\n\x1b[31m Bearer {key}"})
        headers = {**self._retry_after(request, fault), "X-Request-Id": f"of {key}"}
        if fault.what.startswith("3"):
            headers["Location"] = f"http://elsewhere.test/?key={key}"
        return web.Response(text=echo, status=int(fault.what), headers=headers, content_type="application/json")

    def _retry_after(self, request: Request, fault: Fault) -> dict[str, str]:
        """Return a Retry-After of the form that the fault names."""
        form, _, seconds = fault.text.partition(" ")
        if not seconds:
            return {}
        if form == "garbage":
            return {"Retry-After": "soon"}
        request.retry_after = max(0.0, float(seconds))
        if form == "seconds":
            return {"Retry-After": seconds}
        ahead, written = RETRY_DATES[form]
        there = EPOCH + self._world.now + ahead  # by a clock of its own, which its Date shows as well
        return {"Retry-After": written(there + int(seconds)), "Date": field_of(there)}


_DOCUMENTS: Final[dict[str, Callable[[dict[str, Any]], web.Response]]] = {
    "html": lambda _: web.Response(text=_HTML, content_type="text/html"),
    "empty": lambda _: web.Response(status=204),
    "not json": lambda _: web.Response(text="{'id': ", content_type="application/json"),
    "nan": lambda document: web.Response(text=json.dumps({**document, "model": float("nan")})),
    "wrong id": lambda document: web.json_response({**document, "id": "job-0", "status": "completed"}),
    "no id": lambda document: web.json_response({**document, "id": None}),
    "list": lambda document: web.json_response([document]),
    "no status": lambda document: web.json_response({**document, "status": None}),
    "twice": lambda document: web.Response(text=json.dumps(document)[:-1] + ', "id": "job-0"}'),
    "large": lambda document: web.json_response({**document, "model": "x" * 1_100_000}),
}
DOCUMENTS: Final = tuple(_DOCUMENTS)
