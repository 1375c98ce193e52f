"""The rows of the contract's tables, as faults of the emulator. One text, one case."""

from typing import Final

from agentjobs_async import AgentJobsError, AuthError, NotFoundError, RejectedError, ServerError

_LONG: Final = "x" * 600

BREAKS: Final = (
    "reset",
    "reset:headers",
    "reset:body",
    "close",
    "close:headers",
    "close:body",
    "short",
    "hang",
    "hang:headers",
    "hang:body",
    "drip",
    "endless:headers every=0.5",
    "endless:body every=0.5",
    "endless:continues every=0.5",
    "100",
    "102",
    "103",
)
"""Whole exchanges that come to nothing: transient for a poll, unknown for a create."""

UNUSABLE: Final = {
    "body:html": "not_json",
    "body:empty": "not_json",
    "body:text": "not_json",
    "body:cut": "not_json",
    "body:latin-1": "encoding",
    "body:utf-16": "encoding",
    "body:utf-8": "encoding",
    "body:surrogate": "bad_json",
    "body:deep": "bad_json",
    "body:number": "bad_json",
    "body:nan": "bad_json",
    "body:twice": "bad_json",
    "body:null": "schema",
    "body:list": "schema",
    "body:string": "schema",
    "body:error": "schema",
    "missing:id": "schema",
    "missing:status": "schema",
    "document id=null": "schema",
    "document id=7": "schema",
    "document id=true": "schema",
    'document id=""': "schema",
    'document id=["job_1"]': "schema",
    "document status=null": "schema",
    "document status=7": "schema",
    "document status=false": "schema",
    'document status=""': "schema",
    "document status={}": "schema",
    "gzip:false": "encoding",
    "gzip:cut": "encoding",
    "gzip:bomb bytes=8388608": "too_large",
    "ok header.Content-Encoding=br": "encoding",
    "ok header.Content-Encoding=gzip,gzip": "encoding",
    "padded": "too_large",
    "endless:body": "too_large",
    "endless:headers": "http",
    "ok header.Content-Length=7": "http",
    "ok header.Transfer-Encoding=chunked": "http",
    "204": "unexpected_status",
    "205": "unexpected_status",
    "600": "unexpected_status",
    "999": "unexpected_status",
}
"""Answers of which no job can be made, and the reason that a poll gives."""

BAD_ANSWERS: Final = {
    **UNUSABLE,
    "206": "unexpected_status",
    "document id=job_0": "wrong_id",
    "document id=.": "wrong_id",
    "101": "unexpected_status",
}

UNSURE_CREATES: Final = (
    *BREAKS,
    *UNUSABLE,
    "101",
    "303",
    "408",
    "408 retry-after=1",
    "500",
    "501",
    "502",
    "503",
    "503 retry-after=1",
    "504",
    "505",
    "520 retry-after=0",
    "599",
    "document id=.",
    "document id=..",
    'document id="a\\u0000b"',
    'document id="a\\nb"',
    f"document id={_LONG}",
)
"""All that leaves open whether an agent was started."""

ONE_OF_EACH: Final = frozenset(
    {"ok", "reset", "hang", "short", "body:html", "document id=job_0", "204"}
    | {"301", "400", "401", "403", "404", "408", "410", "425", "429", "500", "501", "503", "505", "503 retry-after=1"}
)
"""Of all that a poll may meet one or two of each meaning."""

_PASSING_4XX: Final = frozenset({408, 425, 429})
_HOPELESS: Final = frozenset({501, 505})
_KINDS: Final[dict[int, type[AgentJobsError]]] = {
    401: AuthError,
    403: AuthError,
    404: NotFoundError,
    410: NotFoundError,
    501: ServerError,
    505: ServerError,
}
PASSING: Final = [status for status in (*_PASSING_4XX, *range(500, 600)) if status not in _HOPELESS]
"""Every error status after which a poll is tried again until the deadline."""
ENDING: Final[dict[int, type[AgentJobsError]]] = {
    status: _KINDS.get(status, RejectedError) for status in (*range(300, 500), *_HOPELESS) if status not in _PASSING_4XX
}
"""Every status that ends a wait at once, and the error it ends with."""


def is_rejection(status: int) -> bool:
    """Return whether a status says that a create started nothing."""
    return 300 <= status < 500 and status not in {303, 408}
