"""The service: a response to a poll that has not changed is not decoded again, and the answer is the same."""

import asyncio
import gzip
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from yarl import URL

from agentjobs_async import AgentJob, AgentJobsError, JobRef, PollPolicy
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.responses import Response
from agentjobs_async._http.service import Service
from agentjobs_async._http.transport import Transport
from agentjobs_async.models import Seen
from tests.decoders import decoder_of
from tests.polled import REF, every
from tests.rows import failures
from tests.scripted import KEY, Reply, Scripted, http, job

DECODER = decoder_of(KEY, get_path="/jobs/{job_id}")
ACTIVE = json.dumps({"id": "job_1", "status": "active", "source": {"ref": "main"}}).encode()
COMPLETED = ACTIVE.replace(b"active", b"completed")
ECHO = json.dumps({"id": "job_1", "status": "active", "note": KEY}).encode()
LARGE = json.dumps({"id": "job_1", "status": "active", "note": "x" * 5000}).encode()
NESTED = json.dumps({"id": "job_1", "status": "active", "notes": [{}] * 1000}).encode()
OTHER = ACTIVE.replace(b"job_1", b"job_2")


class Sent:
    """A transport that returns what it was given."""

    read_seconds = 30.0
    next: Response

    async def read(self, _url: URL, _key: ApiKey, *, repeats: bool) -> Response:
        assert not repeats  # the next poll is due soon
        return self.next


class Polling:
    """Polls of one job at a service."""

    def __init__(self) -> None:
        self._transport = Sent()
        transport = cast("Transport", self._transport)
        self.service = Service(URL("https://service.example"), transport, DECODER)

    def answer(self, sent: Response, label: str | None = None) -> Seen | AgentJobsError:
        """Return the answer to a poll to which the server sent this response."""
        self._transport.next = sent
        return asyncio.run(self.service.answer(REF, label))

    def job(self, sent: Response, label: str | None = None) -> AgentJob:
        """Return the job that the answer shows."""
        seen = self.answer(sent, label)
        assert isinstance(seen, Seen)
        return seen.job


def response(body: bytes = ACTIVE, status: int = 200, *, whole: bool = True, **headers: str) -> Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, CIMultiDict(names), body, whole)


def test_an_unchanged_response() -> None:
    """The same bytes give the same object; after other bytes, it is made anew."""
    polling = Polling()
    first = polling.job(response())
    assert polling.job(response()) is first
    assert polling.job(response(ACTIVE + b" ")) == first
    again = polling.job(response())
    assert again == first
    assert again is not first


def test_the_label_of_an_unchanged_response() -> None:
    """A job bears the label that is asked for, from then on as one object, whether or not its bytes have changed."""
    polling = Polling()
    jobs = [polling.job(response(), label) for label in (None, "a", "a", "b")]
    assert [job.label for job in jobs] == [None, "a", "a", "b"]
    assert jobs[1] is jobs[2]
    delayed = polling.answer(response(Retry_After="7"), "b")
    assert isinstance(delayed, Seen)
    assert (delayed.job.label, delayed.retry_after) == ("b", 7.0)


def test_the_same_bytes_in_another_response() -> None:
    """What a response says beside its body counts, although the body has not changed."""

    def check(other: Response) -> None:
        polling = Polling()
        polling.answer(response())
        answer = polling.answer(other)
        assert type(answer) is type(DECODER.read(other, REF))
        assert isinstance(answer, Seen | AgentJobsError)

    coded, cut = response(Content_Encoding="gzip"), response(whole=False)
    patient = [response(Retry_After="7"), response(Retry_After_Ms="700")]
    others = [response(status=500), response(status=204), *patient, coded, cut]
    assert failures(check, *others) == {}


RESPONSES = st.builds(
    response,
    st.sampled_from([ACTIVE, COMPLETED, ECHO, LARGE, OTHER, b"", gzip.compress(ACTIVE, mtime=0)]),
    st.sampled_from([200, 200, 200, 201, 204, 404, 429, 503]),
    whole=st.sampled_from([True, True, True, False]),
    Retry_After=st.sampled_from(["", "1", "soon"]),
    Retry_After_Ms=st.sampled_from(["", "1"]),
    Content_Encoding=st.sampled_from(["identity", "gzip"]),
)


@given(st.lists(st.one_of(RESPONSES, st.just(response())), max_size=8))
def test_any_history(responses: list[Response]) -> None:
    """Whatever came before, a response means what it means alone."""
    polling = Polling()
    for one in responses:
        assert _shown(polling.answer(one)) == _shown(DECODER.read(one, REF))


def _shown(answer: Any) -> object:
    if isinstance(answer, Seen):
        return "retry", answer.retry_after, _shown(answer.job)
    return (answer, answer.raw) if isinstance(answer, AgentJob) else (type(answer), str(answer))


def test_what_is_not_cached() -> None:
    """A body that echoes the key, one that is large as bytes or decoded, and one of an ended job are not cached."""

    def check(body: bytes) -> None:
        polling = Polling()
        polling.answer(response())
        polling.answer(response(body))
        assert polling.service._last == {}

    assert failures(check, ECHO, LARGE, NESTED, COMPLETED) == {}


@pytest.mark.looptime
async def test_nothing_is_cached_of_jobs_that_are_not_polled() -> None:
    """While a job is waited for, its last response is cached; not when the wait has timed out or was cancelled."""
    other = JobRef("other", "job_1")
    async with Scripted(job()) as server, server.session(policy=every(5)) as session:
        timed_out, cancelled = session.watch(REF, timeout=11), session.watch(other, timeout=100)
        await asyncio.sleep(7)
        cached = session._service._last
        assert set(cached) == {REF, other}
        with pytest.raises(TimeoutError):
            await timed_out
        assert set(cached) == {other}
        cancelled.cancel()
        assert cached == {}


@pytest.mark.looptime
async def test_changes_are_seen() -> None:
    """A wait over HTTP sees each change, also one back to what the job was, and its end."""
    states = [job(), job(), job(model="a"), job(), job(), job("completed")]
    seen: list[tuple[Any, Any]] = []
    async with Scripted(*states) as server, server.session(policy=every(5)) as session:
        await session.wait_for_job("job_1", on_update=lambda shown: seen.append((shown.status, shown.model)))
    assert seen == [("active", None), ("active", "a"), ("active", None), ("completed", None)]
    assert len(server.requests) == 6


async def test_reads_are_decoded_each_time() -> None:
    """`get_job` returns an object of its own at each call: a caller may change its `raw`."""
    async with Scripted(Reply(http(200, ACTIVE))) as server, server.session(policy=PollPolicy()) as session:
        first = await session.get_job("job_1")
        first.raw.clear()
        second = await session.get_job("job_1")
        assert first == second
        assert second.raw == json.loads(ACTIVE)
