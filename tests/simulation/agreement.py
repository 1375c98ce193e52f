"""What the service and the sessions of a world agree on: the dialect, headers of the user's own, and keys."""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any, Final, Literal

from attrs import frozen

from agentjobs_async import Dialect, JobStatus
from tests.simulation.activities import KEY

SECRET: Final = "gw-simulated-9a4c77d2"
SECRETS: Final = (KEY, SECRET)
"""What no sink may show: each key contains the first one, and a header of the user's own is the second one."""

OWN_HEADERS: Final = {"X-Tenant": "acme", "X-Gateway-Token": SECRET}
PATHS: Final = {
    "usual": ("/v2/agent/{project_id}/job", "/v2/agent/{project_id}/job/{job_id}"),
    "tasks": ("/api/{project_id}/tasks", "/api/tasks/{job_id}?view=full"),
    "query": ("/run?project={project_id}&wait=no", "/run/{job_id}?project={project_id}"),
    "flat": ("/v1/jobs", "/v1/jobs/{job_id}"),  # only the body names the project
}
KEY_HEADERS: Final = (("Authorization", "Bearer {key}"), ("X-Api-Key", "{key}"), ("Authorization", "Token t={key}"))
PLACES: Final = {
    "id": "data.id",
    "status": "data.state.name",
    "model": "data.models.0",
    "pr_link": "result.links.0.href",
    "created_at": "data.times.created",
    "archived_at": "data.times.archived",
    "source.repository": "data.place.repository",
    "source.ref": "data.place.branch",
}
"""Where the fields of a nested document stand."""

WORDS: Final = {
    "done": JobStatus.COMPLETED,
    "error": JobStatus.FAILED,
    "stored": JobStatus.ARCHIVED,
    "queued": JobStatus.ACTIVE,
    "running": JobStatus.ACTIVE,
}


@frozen
class Body:
    """The body of a create: its template, where its prompt and its project are, and what it must be."""

    template: dict[str, Any]
    prompt_of: Callable[[dict[str, Any]], str]
    project_of: Callable[[dict[str, Any]], str]
    filled: Callable[[str, str, dict[str, Any]], dict[str, Any]]


def _without(extra: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in extra.items() if other != name}


BODIES: Final = {
    "usual": Body(
        {"prompt": "{prompt}"},
        lambda body: str(body["prompt"]),
        lambda _: "",
        lambda prompt, _, extra: {"prompt": prompt, **extra},
    ),
    "nested": Body(
        {"task": {"text": "{prompt}", "of": "{extra.of}", "effort": 3}, "project": "{project_id}"},
        lambda body: str(body["task"]["text"]),
        lambda body: str(body["project"]),
        lambda prompt, project, extra: {
            "task": {"text": prompt, "effort": 3, **({"of": extra["of"]} if "of" in extra else {})},
            "project": project,
            **_without(extra, "of"),
        },
    ),
    "list": Body(
        {"input": [{"role": "user", "content": "{prompt}"}, "{extra.labels}"], "where": {"project": "{project_id}"}},
        lambda body: str(body["input"][0]["content"]),
        lambda body: str(body["where"]["project"]),
        lambda prompt, project, extra: {
            "input": [{"role": "user", "content": prompt}, *([extra["labels"]] if "labels" in extra else [])],
            "where": {"project": project},
            **_without(extra, "labels"),
        },
    ),
}


@frozen
class Agreement:
    """What the service of a world and all sessions agree on; the defaults are those of the usual service.

    Attributes:
        paths: Which of `PATHS`.
        body: Which of `BODIES`.
        key_header: The header of the key, and the format of its value.
        nested: Whether the fields of a document stand at `PLACES`.
        integer_ids: Whether ids are integers.
        words: Whether the statuses are `WORDS`.
        refusals: The statuses with which a gateway refuses creates.
        own_headers: Whether each request has `OWN_HEADERS`.
        key: Of which kind the callable is that returns the key; empty for a key that never changes.
        idempotency_header: The header in which the service honours a key for each create; `None` for none.
        idempotency_seconds: For how long it promises to remember these keys.
        remembers_seconds: For how long it does.
        conflicts: Whether it answers 409 to a repeated create while the first one is under way.
    """

    paths: str = "usual"
    body: str = "usual"
    key_header: tuple[str, str] = KEY_HEADERS[0]
    nested: bool = False
    integer_ids: bool = False
    words: bool = False
    refusals: frozenset[int] = frozenset()
    own_headers: bool = False
    key: Literal["", "plain", "async"] = ""
    idempotency_header: str | None = None
    idempotency_seconds: float = 86_400.0
    remembers_seconds: float = inf
    conflicts: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the user's own."""
        return OWN_HEADERS if self.own_headers else {}


@cache
def dialect_of(agreement: Agreement) -> Dialect:
    """Return the dialect of a service."""
    create_path, get_path = PATHS[agreement.paths]
    return Dialect(
        create_path=create_path,
        get_path=get_path,
        key_header=agreement.key_header[0],
        key_format=agreement.key_header[1],
        body=BODIES[agreement.body].template,
        fields=PLACES if agreement.nested else {},
        integer_ids=agreement.integer_ids,
        statuses=WORDS if agreement.words else {},
        create_refusals=agreement.refusals,
        idempotency_header=agreement.idempotency_header,
        idempotency_seconds=agreement.idempotency_seconds,
    )
