"""The service without faults, and its limits."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from agentjobs_async import Dialect
from agentjobs_async.testing import JobScript, RateLimit, ReceivedRequest
from agentjobs_async.testing._dialect import UNNAMED_PROJECT, ServedDialect, served_dialect
from agentjobs_async.testing._service import EmulatedService, RateWindow
from tests.rows import failures

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOBS = "/v2/agent/docs/job"


def service(
    script: JobScript = JobScript(),  # noqa: B008 - a frozen value
    limit: RateLimit | None = None,
    speed: float = 1.0,
    dialect: ServedDialect = ServedDialect(),  # noqa: B008 - a frozen value
) -> EmulatedService:
    return EmulatedService(
        api_key="k", script_of=lambda _project_id, _prompt: script, rate_limit=limit, speed=speed, dialect=dialect
    )


def request(
    method: str = "GET",
    target: str = JOBS,
    body: bytes = b"",
    at: float = 0.0,
    headers: Mapping[str, str] = {},
) -> ReceivedRequest:
    return ReceivedRequest(
        method=method,
        target=target,
        headers={"Authorization": "Bearer k", **headers},
        body=body,
        at=at,
        connection=1,
    )


CREATE = request("POST", body=b'{"prompt": "write"}')


def test_bodies_refused() -> None:
    """A body without a valid prompt is refused with the reason, and starts nothing."""
    emulated = service()
    answer = emulated.answer(request("POST", body=b'{"prompt": " "}'), NOW)
    assert (answer.status, answer.document) == (400, {"error": "prompt must not be blank"})
    assert emulated.jobs == {}


def test_new_job() -> None:
    """A create is answered with 201 and an active job."""
    answer = service(JobScript(duration=0, outcome="archived")).answer(CREATE, NOW)
    assert re.fullmatch("job_[a-z0-9]{6}_000001", answer.document["id"])
    assert (answer.status, answer.document) == (
        201,
        {
            "id": answer.document["id"],
            "status": "active",
            "source": {"repository": "acme/docs", "ref": "main"},
            "model": "agent-large-1",
            "prLink": None,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "archivedAt": None,
        },
    )


def after(script: JobScript, seconds: float, speed: float = 1.0) -> Any:
    """Return the answer to a read `seconds` after a create."""
    emulated = service(script, speed=speed)
    job_id = emulated.answer(CREATE, NOW).document["id"]
    return emulated.answer(request(target=f"{JOBS}/{job_id}", at=seconds), NOW)


def test_script() -> None:
    """A read shows the job as its script says for that moment."""

    def check(script: JobScript, seconds: float, *shown: str | None) -> None:
        document = after(script, seconds).document
        pr_link = document["prLink"] and document["prLink"].replace(document["id"], "ID")
        assert (document["status"], pr_link, document["archivedAt"]) == shown

    rows = [
        (JobScript(duration=5), 4.9, "active", None, None),
        (JobScript(duration=5), 5, "completed", "https://code.example/acme/docs/pull/ID", None),
        (JobScript(duration=5, pull_request=False), 5, "completed", None, None),
        (JobScript(duration=5, outcome="failed"), 5, "failed", None, None),
        (JobScript(duration=5, outcome="archived"), 5, "archived", None, "2026-01-01T00:00:05.000Z"),
    ]
    assert failures(check, *rows) == {}


def test_speed() -> None:
    """At a speed of ten a job of five seconds ends after half a second."""
    assert after(JobScript(duration=5, outcome="archived"), 0.5, speed=10).document["archivedAt"][17:] == "00.500Z"


def test_not_visible_yet() -> None:
    """A job may be invisible for a while after its creation."""
    script = JobScript(visible_after=2)
    assert [after(script, seconds).status for seconds in (1.9, 2)] == [404, 200]


def test_strangers() -> None:
    """Another project's job, an unknown job and an unknown path are not found."""
    emulated = service()
    job_id = emulated.answer(CREATE, NOW).document["id"]
    for target in (f"/v2/agent/web/job/{job_id}", f"{JOBS}/job_2", "/v1/agent/docs/job", "/"):
        answer = emulated.answer(request(target=target), NOW)
        assert (answer.status, set(answer.document)) == (404, {"error"})


def test_other_methods() -> None:
    """Another method is refused, with the allowed one in a header."""
    for method, target, allowed in (("GET", JOBS, "POST"), ("DELETE", f"{JOBS}/job_1", "GET")):
        answer = service().answer(request(method, target), NOW)
        assert (answer.status, answer.headers) == (405, (("Allow", allowed),))


def test_wrong_key() -> None:
    """A request without the right key is refused and starts nothing."""
    emulated = service()
    wrong: list[dict[str, str]] = [{}, {"Authorization": "Bearer other"}, {"Authorization": "k"}]
    assert [emulated.answer(attrs.evolve(CREATE, headers=headers), NOW).status for headers in wrong] == [401] * 3
    assert emulated.jobs == {}


def test_no_limit_of_creates() -> None:
    """A limit may be of reads alone."""
    emulated = service(limit=RateLimit(creates=None, reads=0))
    assert [emulated.answer(CREATE, NOW).status for _ in range(101)] == [201] * 101
    assert emulated.answer(request(target=f"{JOBS}/job_1"), NOW).status == 429


def test_rate_limit() -> None:
    """A create over the limit is refused with the seconds to wait, and starts nothing."""
    emulated = service(limit=RateLimit(1, per=60))
    answers = [emulated.answer(CREATE, NOW) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 429]
    assert answers[1].headers == (("Retry-After", "60"),)
    assert len(emulated.jobs) == 1


def test_agent_not_started() -> None:
    """A create that starts no agent leaves no job and does not count for the limit."""
    emulated = service(limit=RateLimit(1))
    assert emulated.answer(CREATE, NOW, start_agent=False).status == 201
    assert emulated.jobs == {}
    assert emulated.answer(CREATE, NOW).status == 201


def test_scripted_id() -> None:
    """A script may set the id, with any characters."""
    emulated = service(JobScript(job_id="a/b ?#\u00e9"))
    document = emulated.answer(CREATE, NOW).document
    answer = emulated.answer(request(target=f"{JOBS}/a%2Fb%20%3F%23%C3%A9", at=1), NOW)
    assert answer.document["id"] == document["id"] == "a/b ?#\u00e9"
    assert answer.document["prLink"] == "https://code.example/acme/docs/pull/a%2Fb%20%3F%23%C3%A9"


def test_any_id() -> None:
    """An id that UTF-8 cannot encode is answered like any other; a client must refuse it."""
    answer = service(JobScript(job_id="\ud800", duration=0)).answer(CREATE, NOW)
    assert (answer.status, answer.document["id"]) == (201, "\ud800")


def test_read_limit() -> None:
    """Reads over the limit are refused, whatever their project; the limit can be changed and lifted."""
    limited = service(limit=RateLimit(reads=1, per=10))
    reads = [request(target=f"/v2/agent/{project}/job/job_1", at=1.0) for project in ("docs", "web")]
    assert [limited.answer(read, NOW).status for read in reads] == [404, 429]
    limited.limit(RateLimit(reads=2))
    assert [limited.answer(read, NOW).status for read in reads * 2] == [404, 404, 429, 429]
    limited.limit(None)
    assert [limited.answer(read, NOW).status for read in reads * 2] == [404] * 4


def test_window_slides() -> None:
    """A create is allowed again when its span has passed; until then the seconds are rounded up."""
    window = RateWindow(2, per=10)
    assert [window.count("docs", now) for now in (0.0, 1.5, 2.0, 10.0, 10.1)] == [None, None, 8, None, 2]


def test_no_limit() -> None:
    """A limit that is not valid is refused by the name of its setting."""
    with pytest.raises(ValueError, match="creates must be"):
        RateLimit(creates=-1)
    with pytest.raises(ValueError, match="reads must be"):
        RateLimit(reads=-1)
    with pytest.raises(ValueError, match="per must be"):
        RateLimit(per=0)
    with pytest.raises(ValueError, match="creates must be a whole number of at least 0, not"):
        RateLimit(creates=1.5)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="per must be a finite number of seconds above 0, not inf"):
        RateLimit(per=math.inf)


def test_projects_have_their_own_windows() -> None:
    """The creates of one project do not count for another."""
    window = RateWindow(1, per=3600)
    assert [window.count("docs", 0.0), window.count("web", 0.0), window.count("docs", 0.0)] == [None, None, 3600]


def test_projects_of_a_dialect() -> None:
    """A job's project is that of the path, else of the body, else a fixed one; a body must not contradict the path."""

    def project(create_path: str, target: str, body: str) -> str | int:
        template = {"prompt": "{prompt}"} | ({"in": "{project_id}"} if '"in"' in body else {})
        dialect = served_dialect(Dialect(create_path=create_path, body=template))
        emulated = service(dialect=dialect)
        answer = emulated.answer(request("POST", target, body.encode()), NOW)
        return answer.status if answer.job_id is None else emulated.jobs[answer.job_id].project_id

    assert project("/{project_id}/jobs", "/a/jobs", '{"prompt": "x"}') == "a"
    assert project("/jobs", "/jobs", '{"prompt": "x", "in": "b"}') == "b"
    assert project("/jobs", "/jobs", '{"prompt": "x"}') == UNNAMED_PROJECT
    assert project("/{project_id}/jobs", "/a/jobs", '{"prompt": "x", "in": "b"}') == 400
    assert project("/{project_id}/jobs", "/a/jobs", '{"prompt": "x", "in": "a"}') == "a"


def test_reads_of_a_dialect() -> None:
    """A job without a named project is read by any path; one with a project only by its own, or by none."""

    def statuses(create_path: str, target: str) -> list[int]:
        emulated = service(dialect=served_dialect(Dialect(create_path=create_path, get_path="/{project_id}/{job_id}")))
        job_id = emulated.answer(request("POST", target, CREATE.body), NOW).job_id
        return [emulated.answer(request(target=f"/{project}/{job_id}"), NOW).status for project in "ab"]

    assert statuses("/jobs", "/jobs") == [200, 200]
    assert statuses("/{project_id}", "/a") == [200, 404]


def test_integer_ids() -> None:
    """Ids that are integers are exact in every decoder, and differ between services; a scripted text stays one."""
    dialect = served_dialect(Dialect(integer_ids=True))
    ids = [service(dialect=dialect).answer(CREATE, NOW).document["id"] for _ in range(2)]
    assert all(type(job_id) is int and 10**14 < job_id < 2**53 for job_id in ids)
    assert ids[0] != ids[1]
    emulated = service(dialect=dialect)
    job_id = emulated.answer(CREATE, NOW).document["id"]
    assert emulated.answer(request(target=f"{JOBS}/{job_id}"), NOW).document["id"] == job_id
    assert service(JobScript(job_id="x"), dialect=dialect).answer(CREATE, NOW).document["id"] == "x"


def test_key_of_a_dialect() -> None:
    """The key is read from the dialect's header, in its form; the usual header does not count."""
    emulated = service(dialect=served_dialect(Dialect(key_header="X-Key", key_format="token {key}")))
    keys: list[dict[str, str]] = [{}, {"X-Key": "k"}, {"X-Key": "Bearer k"}, {"X-Key": "token k"}]
    assert [emulated.answer(request("POST", JOBS, CREATE.body, headers=key), NOW).status for key in keys] == [
        401
    ] * 3 + [201]


IDEMPOTENT = served_dialect(Dialect(idempotency_header="K", idempotency_seconds=10))


def repeat(emulated: EmulatedService, key: str = "a", prompt: str = "x", target: str = JOBS, at: float = 0.0) -> Any:
    """Return the answer to a create with a key, once it has been sent."""
    sent = request("POST", target, f'{{"prompt": "{prompt}"}}'.encode(), at, {"K": key})
    answer = emulated.answer(sent, NOW)
    emulated.answered(sent)
    return answer


def test_repeated_creates() -> None:
    """A create with the key of another one is answered with that one's job, starts nothing, and is in no limit."""
    emulated = service(limit=RateLimit(2), dialect=IDEMPOTENT)
    first = repeat(emulated)
    assert [repeat(emulated, at=at) for at in (1.0, 9.9)] == [first] * 2
    assert repeat(emulated, "b").job_id != first.job_id
    assert repeat(emulated, "c").status == 429
    assert emulated.started == {"x": 2}


def test_repeats_elsewhere() -> None:
    """Another project has its own keys, and a key is forgotten after its time; no key, or no promise, starts anew."""
    emulated = service(dialect=IDEMPOTENT)
    others = [
        repeat(emulated),
        repeat(emulated, target="/v2/agent/web/job"),
        repeat(emulated, at=10.0),
        *(repeat(emulated, "") for _ in range(2)),
    ]
    assert len({answer.job_id for answer in others}) == 5
    assert len({repeat(service()).job_id for _ in range(2)}) == 2


def test_repeats_of_nothing() -> None:
    """The key of a create that was refused, or started no agent, is not remembered."""
    emulated = service(dialect=IDEMPOTENT)
    sent = request("POST", body=b'{"prompt": "x"}', headers={"K": "a"})
    emulated.answer(sent, NOW, start_agent=False)
    assert repeat(emulated, prompt=" ").status == 400
    assert repeat(emulated, prompt="y").status == 201
    assert emulated.started == {"y": 1}


def test_repeats_refused() -> None:
    """The same key with another body is refused with 422, and a create whose first is not answered yet with 409."""
    emulated = service(dialect=IDEMPOTENT)
    sent = request("POST", body=b'{"prompt": "x"}', headers={"K": "a"})
    first = emulated.answer(sent, NOW)
    again = attrs.evolve(sent, connection=2)
    assert emulated.answer(again, NOW).status == 409
    emulated.answered(again)
    assert emulated.answer(again, NOW).status == 409
    emulated.answered(sent)
    assert emulated.answer(again, NOW) == first
    assert repeat(emulated, prompt="y").status == 422
    assert emulated.started == {"x": 1}
