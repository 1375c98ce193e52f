"""The service of a world, over aiohttp's own server: it alone knows which agents were started."""

import asyncio
import json
import random
from collections.abc import Iterable
from math import inf
from typing import Final

from aiohttp import web
from attrs import define

from tests.simulation.activities import Program
from tests.simulation.agreement import SECRET, Agreement
from tests.simulation.dates import RETRY_DATES, field_of, form_of
from tests.simulation.documents import DOCUMENTS, HTML, Job, answered, id_of, usual_document
from tests.simulation.idempotency import IdempotencyKeys
from tests.simulation.keys import Keys
from tests.simulation.network import Connection, Network
from tests.simulation.reading import RequestReader, Said, WrongRequestError
from tests.simulation.world import EPOCH, Fault, World

_ENDS: Final = ("completed",) * 8 + ("failed", "archived")
_POISON_SECONDS: Final = 900.0
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
        key: The API key.
        idempotency_key: That of a create; `None` without one.
        body: The bytes of a create.
        is_old_key: Whether the service has refused its key, since it was replaced.
        is_again: Whether it comes once more, since the service had refused its first key.
        is_not_forwarded: Whether the gateway has answered in place of the service.
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
    key: str = ""
    idempotency_key: str | None = None
    body: bytes = b""
    is_old_key: bool = False
    is_again: bool = False
    is_not_forwarded: bool = False


class Service:
    """Answers creates and polls, and remembers everything.

    Attributes:
        requests: In the order in which they arrived.
        jobs: By their ids.
        agents: The ids of the agents for each prompt.
        agreement: What it has agreed on with all sessions.
        keys: The API keys of the senders.
        idempotency: What it remembers of the keys of creates.
        ahead: How many seconds its clock is ahead of that of the world.
    """

    def __init__(self, world: World, programs: Iterable[Program], agreement: Agreement = Agreement()) -> None:  # noqa: B008 - it is frozen
        self._world = world
        self.agreement = agreement
        self._programs = {one.name: one for one in programs}
        self._random = random.Random(f"{world.seed} service")
        self._dates = random.Random(f"{world.seed} dates")
        self.ahead = self._dates.choice((0.0, 0.0, 0.0, -3600.0, -20.0, 30.0, 86_400.0))
        self.keys = Keys(world)
        self.idempotency = IdempotencyKeys(world, agreement)
        self._reader = RequestReader(agreement, self.keys)
        self._refused_keys: set[tuple[str, str, str]] = set()  # what was answered last for such a key, by its subject
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
        try:
            said = self._reader.read(http, sender, body)
        except WrongRequestError as error:
            world.violate(str(error))
            return web.Response(status=500)
        job = self.jobs.get(said.subject)
        project = said.project or ("" if job is None else job.project)
        request = Request(said.kind, project, said.subject, sender, connection.begun, left, world.now, body=body)
        self.requests.append(request)
        request.key, request.idempotency_key = self.keys.key(sender, said.version), said.idempotency_key
        if project:
            self._check_place(request, said.subject if job is None else job.prompt)
        fault = self._key_fault(request, said) or self._fault(request, job)

        def heard() -> None:
            request.heard, request.is_cut = min(world.now, connection.cut_at), connection.cut_at < inf

        if connection.cut_at < inf:
            heard()
        else:
            connection.on_heard = heard
        if said.kind == "create":
            self.reached("create", said.subject)
            fault, job = self._create(request, fault)
        request.job_id = "" if job is None else job.id
        response = await self._respond(request, job, fault)
        self.idempotency.answered(request.key, request.idempotency_key)
        if response is None:
            transport.abort()  # type: ignore[union-attr]  # as above
            return web.Response(status=500)
        request.status = response.status
        world.note(f"{request.kind} {request.subject} {request.status} {request.fault} {request.retry_after}")
        return response

    def _key_fault(self, request: Request, said: Said) -> Fault | None:
        """Return the refusal of a key that was replaced; note what comes again for it."""
        of_call = request.sender, request.kind, request.subject
        request.is_again = of_call in self._refused_keys
        self._refused_keys.discard(of_call)
        if not self.keys.is_refused(said.version):
            return None
        request.is_old_key = True
        self._refused_keys.add(of_call)
        return Fault("key", said.version, "401")

    def _fault(self, request: Request, job: Job | None) -> Fault:
        repeated = self._repeat_fault(request)
        found = next(iter(self._world.next(request.kind)), None)
        return found or self._poison(job) or repeated or self._outage(request.project, request.sender)

    def _repeat_fault(self, request: Request) -> Fault | None:
        """Return what befalls a create that comes again under its idempotency key, forgotten or not."""
        key = request.idempotency_key
        if key is None or not self.idempotency.arrived(key):
            return None
        fault = next(iter(self._world.next("repeat")), None)
        if fault is not None and fault.what == "forget":
            self.idempotency.forget(request.key, key)
            return None
        return fault

    def _create(self, request: Request, fault: Fault) -> tuple[Fault, Job | None]:
        """Return the job of a create, a new one or that of its idempotency key, and what befalls the answer."""
        key = request.idempotency_key
        if key is None:
            return fault, self._start(request.project, request.subject, fault)
        known = self.idempotency.found(request.key, key, request.body, request.left)
        if known is None:
            job = self._start(request.project, request.subject, fault)
            if job is not None:
                self.idempotency.remember(request.key, key, request.body, request.left, job)
            return fault, job
        if self.agreement.conflicts and not known.is_answered and not fault.what:
            return Fault("repeat", 0, "409"), None
        return fault, None if self._refuses(fault) else known.job

    def _poison(self, job: Job | None) -> Fault | None:
        return job.poison if job is not None and self._world.now <= job.started + _POISON_SECONDS else None

    def _check_place(self, request: Request, prompt: str) -> None:
        """Report, at once, a request that goes to another project than that of its row or job."""
        project = self._programs[request.sender.partition(".")[0]].project_of(prompt)
        if project not in {None, request.project}:
            words = f"{request.sender} sends a {request.kind} of {request.subject} to {request.project}, not {project}"
            self._world.violate(f"Places: {words}")

    def _outage(self, project: str, sender: str) -> Fault:
        kind = self._world.outage()
        first = self.keys.first[sender]
        if kind is not None and kind.startswith("401 ") and first.endswith(kind.removeprefix("401 ")):
            return Fault("outage", 0, "401")  # this key is refused
        if kind == f"429 {project}":  # a limit of this project alone
            return Fault("outage", 0, "429", text="seconds 60")
        return Fault("outage", 0, kind) if kind in {"503", "504", "429", "maintenance"} else _NO_FAULT

    def _start(self, project: str, prompt: str, fault: Fault) -> Job | None:
        """Start an agent, unless the fault keeps the service from it."""
        if self._refuses(fault):
            return None
        found = self.agents.setdefault(prompt, [])
        job = Job(
            id=id_of(len(self.jobs) + 1, self.agreement),
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
        if len(found) > self.allowed.get(prompt, 1) + self.idempotency.forgotten.get(prompt, 0):
            self._world.violate(f"P1: {len(found)} agents for {prompt}")
        return job

    def _refuses(self, fault: Fault) -> bool:
        """Return whether a fault keeps the service from starting an agent."""
        is_refusal = fault.what == "hang up" or fault.what.isdigit()
        is_not_forwarded = fault.what.isdigit() and int(fault.what) in self.agreement.refusals
        return fault.what == "maintenance" or is_not_forwarded or (is_refusal and not fault.amount)

    async def _respond(self, request: Request, job: Job | None, fault: Fault) -> web.Response | None:
        what = request.fault = fault.what
        if what == "late":
            await asyncio.sleep(fault.amount)
        if what == "hang up":
            return None
        if what.isdigit():
            return self._refusal(request, fault)
        if what == "maintenance":
            return web.Response(text=HTML, content_type="text/html")
        if job is None or (request.kind == "poll" and self._world.now < job.visible):
            return web.json_response({"error": "no such job"}, status=404)
        now, epoch = self._world.now, EPOCH + self.ahead
        document = usual_document(job, now, epoch, self.agreement)
        if what not in DOCUMENTS:
            request.is_good, request.is_end = True, job.has_ended(now)
        headers = self._retry_after(request, fault) if what == "retry after" else {}
        return answered(document, what, self.agreement, headers)

    def _refusal(self, request: Request, fault: Fault) -> web.Response:
        key, secret = request.key, f" {SECRET}" if self.agreement.own_headers else ""
        request.is_not_forwarded = request.kind == "create" and int(fault.what) in self.agreement.refusals
        echo = json.dumps({"error": f"refused:\n\x1b[31m Bearer {key}{secret}"})
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
