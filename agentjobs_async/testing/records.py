"""What the emulator records: requests, and the jobs they started."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import attrs
from multidict import CIMultiDict, CIMultiDictProxy

from agentjobs_async.testing.scripts import JobScript

__all__ = ["ReceivedRequest", "StartedJob", "without_shown_credentials"]

_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})


class _Credential(str):
    """A text whose repr is masked: neither the repr of its container nor a failing assertion shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def without_shown_credentials(headers: Iterable[tuple[str, str]]) -> CIMultiDictProxy[str]:
    """Return headers whose values are whole, but whose repr shows no credential."""
    return CIMultiDictProxy(
        CIMultiDict((name, _Credential(value) if name.lower() in _SECRET else value) for name, value in headers)
    )


@attrs.frozen(kw_only=True)
class ReceivedRequest:
    """A request that arrived.

    Args:
        method: The HTTP method.
        target: The request target exactly as sent: path and query.
        headers: Case-insensitive; for a repeated header the first value, and `getall` returns all. The repr has no key.
        body: The bytes of the body.
        at: Seconds on the loop's clock.
        connection: The number of its connection, from 1.
        project_id: The project in the path, percent-decoded; `None` outside of the service's paths.
        job_id: The job in the path, percent-decoded; `None` in any other path.
        prompt: The prompt of a valid create, or of the job that is read.
        fault: The text of the fault it met; `None` for none.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    connection: int
    project_id: str | None = None
    job_id: str | None = None
    prompt: str | None = None
    fault: str | None = None


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
    """

    job_id: str
    project_id: str
    prompt: str
    script: JobScript
    started_at: float
    created_at: datetime
