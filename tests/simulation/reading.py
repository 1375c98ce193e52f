"""What a request says, where the agreement of its world puts it; anything else is wrong."""

import json
import re
from typing import Any

from aiohttp import web
from attrs import frozen

from tests.simulation.activities import extra_of
from tests.simulation.agreement import BODIES, OWN_HEADERS, PATHS, Agreement
from tests.simulation.keys import Keys

_USUAL_HEADERS = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "connection"}


@frozen
class Said:
    """What a request says: `project` is empty for a poll whose address names none."""

    kind: str
    project: str
    subject: str
    version: int  # of the API key
    idempotency_key: str | None


class WrongRequestError(Exception):
    """A request is not as it was agreed: a promise was broken."""


class RequestReader:
    """Reads requests, by their addresses, headers and bodies."""

    def __init__(self, agreement: Agreement, keys: Keys) -> None:
        self._agreement = agreement
        self._keys = keys
        self._create, self._get = (_pattern(path) for path in PATHS[agreement.paths])

    def read(self, http: web.BaseRequest, sender: str, body: bytes) -> Said:
        """Return what a request says.

        Raises:
            WrongRequestError: It says something else than it should, or in another place.
        """
        is_create = http.method == "POST"
        found = (self._create if is_create else self._get).fullmatch(http.raw_path)
        if found is None or http.headers.get("Host") != "service.test":
            raise WrongRequestError(f"P9, P15: a request for {http.raw_path}, {http.headers}")
        parts = found.groupdict()
        version, key = self._version(http, sender), self._idempotency_key(http, is_create=is_create)
        if not is_create:
            return Said("poll", parts.get("project_id", ""), parts["job_id"], version, key)
        prompt, project = self._read_body(json.loads(body), parts.get("project_id"))
        return Said("create", project, prompt, version, key)

    def _version(self, http: web.BaseRequest, sender: str) -> int:
        """Return which version of its key a request has, and check the headers of the user's own."""
        name, form = self._agreement.key_header
        before, after = form.split("{key}")
        value = http.headers.get(name, "")
        version = self._keys.version(sender, value.removeprefix(before).removesuffix(after))
        if version is None or value != form.replace("{key}", self._keys.key(sender, version)):
            raise WrongRequestError(f"P9, P15: a request with the key {value!r}, {http.headers}")
        more = {name: value for name, value in http.headers.items() if name.lower() not in _USUAL_HEADERS}
        own = {other: value for other, value in more.items() if other in OWN_HEADERS}
        if own != self._agreement.headers or len(more) != len(set(more)):
            raise WrongRequestError(f"Headers: a request with {more}, not {self._agreement.headers}")
        expected = {name, *own, *filter(None, [self._agreement.idempotency_header])}
        if surplus := more.keys() - expected:
            raise WrongRequestError(f"Headers: a request with {surplus}")
        return version

    def _idempotency_key(self, http: web.BaseRequest, *, is_create: bool) -> str | None:
        name = self._agreement.idempotency_header
        key = http.headers.get(name) if name is not None else None
        if (key is not None) != (name is not None and is_create):
            raise WrongRequestError(f"Repeats: a {http.method} with the idempotency key {key!r}")
        return key

    def _read_body(self, body: dict[str, Any], project: str | None) -> tuple[str, str]:
        """Return the prompt of a create, and its project."""
        shape = BODIES[self._agreement.body]
        prompt = shape.prompt_of(body)
        named = shape.project_of(body) if project is None else project
        expected = shape.filled(prompt, named, extra_of(prompt) or {})
        if body != expected:
            raise WrongRequestError(f"Body: a create of {prompt} sends {body}, not {expected}")
        return prompt, named


def _pattern(template: str) -> re.Pattern[str]:
    """Return what the addresses of a template match; the ids and projects of a world need no escapes."""
    text = re.escape(template)
    for name in ("project_id", "job_id"):
        text = text.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>[^/?&]+)")
    return re.compile(text)
