"""What the emulator remembers of its clients."""

from collections.abc import Mapping
from datetime import datetime

import attrs

from agentjobs_async.testing.lives import JobLife

__all__ = ["ReceivedRequest", "StartedJob"]


@attrs.frozen(kw_only=True)
class ReceivedRequest:
    """A request as it arrived.

    Args:
        method: The HTTP method.
        target: The request target exactly as sent: path and query.
        headers: Case-insensitive; of a header sent twice the first, all of them by `getall`.
        body: The bytes of the body.
        at: Seconds on the loop's clock.
        connection: The number of the connection it came on, from 1.
        project_id: The project in the path, percent-decoded; `None` outside of the service's paths.
        job_id: The job in the path, percent-decoded; `None` in any other path.
        prompt: The prompt of a well-formed create, or the one that the job being read was created with.
        fault: The text of the fault it met; `None` when it was answered well.
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
        job_id: The id under which it is read.
        project_id: The project it belongs to.
        prompt: What the agent was told.
        life: The script it follows.
        started_at: Seconds on the loop's clock.
        created_at: The same moment as an aware UTC time.
    """

    job_id: str
    project_id: str
    prompt: str
    life: JobLife
    started_at: float
    created_at: datetime
