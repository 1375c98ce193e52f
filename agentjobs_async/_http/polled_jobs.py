"""The last response for each job that is polled: one that has not changed is not decoded again."""

from typing import Final

from agentjobs_async._http.responses import Response, ResponseDecoder
from agentjobs_async.errors import AgentJobsError
from agentjobs_async.models import AgentJob, JobRef, ReadJob

_MAX_KEPT_BYTES: Final = 4_096  # of a body: 100,000 jobs still fit into memory, and nearly all documents are smaller
_MAX_KEPT_CONTAINERS: Final = 64  # in a body: an empty object takes 2 bytes of it, and 64 once it is decoded
_OK: Final = 200


class PolledJobs:
    """Decodes the responses to polls. Nearly all polls find a job as the one before did, byte for byte.

    Decoding takes a fifth of a poll's CPU (`benchmarks/bench_fleet.py`); comparing the bytes takes next to none.
    """

    __slots__ = ("_decoder", "_last")

    def __init__(self, decoder: ResponseDecoder) -> None:
        self._decoder = decoder
        self._last: dict[JobRef, tuple[bytes, AgentJob]] = {}

    def read(self, response: Response, ref: JobRef) -> AgentJob | ReadJob | AgentJobsError:
        """Return what the decoder's `read` would return, or the equal job that it returned the last time."""
        last = self._last.get(ref)
        if last is not None and response.body == last[0] and _says_no_more_than_its_body(response):
            return last[1]
        answer = self._decoder.read(response, ref)
        if isinstance(answer, AgentJob) and not answer.is_terminal and self._may_be_kept(response):
            self._last[ref] = response.body, answer
        elif last is not None:
            del self._last[ref]
        return answer

    def _may_be_kept(self, response: Response) -> bool:
        """Return whether the body is small, decoded too, and does not echo the key: nothing may hold that."""
        body = response.body
        return (
            len(body) <= _MAX_KEPT_BYTES
            and body.count(b"{") + body.count(b"[") <= _MAX_KEPT_CONTAINERS
            and _says_no_more_than_its_body(response)
            and not self._decoder.key.may_be_in(body)
        )

    def forget(self, ref: JobRef) -> None:
        """Forget a job that is no longer polled."""
        self._last.pop(ref, None)


def _says_no_more_than_its_body(response: Response) -> bool:
    """Return whether the answer follows from the bytes of the body alone."""
    named = response.headers.get
    plain = named("Retry-After") is None and named("Content-Encoding") is None
    return plain and response.whole and response.status == _OK
