"""The documents in which a service shows its jobs, and what it shows in place of them."""

import json
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from attrs import define

from tests.simulation.agreement import PLACES, Agreement
from tests.simulation.dates import Form
from tests.simulation.world import Fault

HTML: Final = "<html><body><h1>We'll be back soon</h1></body></html>"
_FIRST_INTEGER: Final = 7_000_000  # as an id: no other number of a log looks like it
_QUEUED_SECONDS: Final = 10.0
_WORDS: Final = {"completed": "done", "failed": "error", "archived": "stored"}


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

    @property
    def link(self) -> str | None:
        """The link that it has once it has ended."""
        return f"https://forge.test/pull/{self.id}" if self.end == "completed" else None

    def has_ended(self, now: float) -> bool:
        """Return whether it has ended, so many seconds after the world began."""
        return now >= self.started + self.seconds


def id_of(number: int, agreement: Agreement) -> str:
    """Return the id of a job, from its number; 0 is that of none."""
    return str(_FIRST_INTEGER + number) if agreement.integer_ids else f"job-{number}"


def usual_document(job: Job, now: float, epoch: float, agreement: Agreement) -> dict[str, Any]:
    """Return what a service knows of a job, as the usual service shows it; its clock shows `epoch` at the beginning."""
    has_ended, created = job.has_ended(now), epoch + job.started
    status = job.end if has_ended else "active"
    if agreement.words:
        status = _WORDS.get(status, "queued" if now < job.started + _QUEUED_SECONDS else "running")
    return {
        "id": int(job.id) if agreement.integer_ids else job.id,
        "status": status,
        "source": {"repository": "acme/docs", "ref": "main"},
        "model": "large",
        "prLink": job.link if has_ended else None,
        "createdAt": job.form.text(created),
        "archivedAt": job.form.text(created + job.seconds) if has_ended and job.end == "archived" else None,
    }


def answered(document: dict[str, Any], what: str, agreement: Agreement, headers: dict[str, str]) -> web.Response:
    """Return an answer with a document, or with what a fault of `DOCUMENTS` makes of it."""
    if what in _PAGES:
        return _PAGES[what]()
    changed = {**document, **_CHANGES[what](document["id"], agreement)} if what in _CHANGES else document
    shown = _nested(changed) if agreement.nested else changed
    if what in _TEXTS:
        return web.Response(text=_TEXTS[what](shown))
    return web.json_response(shown, headers=headers)


def _nested(usual: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose fields stand at `PLACES`, with others where the usual service has them."""
    values = {
        "id": usual["id"],
        "status": usual["status"],
        "model": usual["model"],
        "pr_link": usual["prLink"],
        "created_at": usual["createdAt"],
        "archived_at": usual["archivedAt"],
        "source.repository": usual["source"]["repository"],
        "source.ref": usual["source"]["ref"],
    }
    found: dict[str, Any] = {"id": 1, "status": "failed", "model": "other", "prLink": "https://forge.test/other"}
    for name, place in PLACES.items():
        if values[name] is not None:
            _put(found, place.split("."), values[name])
    return found


def _put(document: dict[str, Any], path: list[str], value: Any) -> None:
    first, *rest = path
    if not rest:
        document[first] = value
    elif rest[0] == "0":
        element: dict[str, Any] = {}
        _put(element, rest, value)
        document[first] = [element["0"]]
    else:
        _put(document.setdefault(first, {}), rest, value)


def _no_id(true: object, agreement: Agreement) -> dict[str, Any]:
    return {"id": str(true) if agreement.integer_ids else None}


def _wrong_id(_: object, agreement: Agreement) -> dict[str, Any]:
    wrong = id_of(0, agreement)
    return {"id": int(wrong) if agreement.integer_ids else wrong, "status": "completed"}


_PAGES: Final[dict[str, Callable[[], web.Response]]] = {
    "html": lambda: web.Response(text=HTML, content_type="text/html"),
    "empty": lambda: web.Response(status=204),
    "not json": lambda: web.Response(text="{'id': ", content_type="application/json"),
}
_CHANGES: Final[dict[str, Callable[[object, Agreement], dict[str, Any]]]] = {
    "nan": lambda *_: {"model": float("nan")},
    "wrong id": _wrong_id,
    "no id": _no_id,
    "no status": lambda *_: {"status": None},
    "large": lambda *_: {"model": "x" * 1_100_000},
}
_TEXTS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "nan": json.dumps,
    "list": lambda document: json.dumps([document]),
    "twice": lambda document: json.dumps(document)[:-1] + ', "id": "job-0"}',
}
# In the order in which seeds draw them.
DOCUMENTS: Final = (*("html", "empty", "not json", "nan", "wrong id", "no id", "list", "no status", "twice", "large"),)
