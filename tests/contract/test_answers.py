"""Answers: nothing is coerced or invented, none counts for another job, and text is cleaned before it is shown."""

import logging
from typing import Final

import attrs
import pytest

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, JobSource, LoggingHook, ProtocolError
from agentjobs_async._text import shown_status
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.ways import ENDLESS, Waiting
from tests.polled import every
from tests.rows import failures_at_once

MAY_BE_MISSING: Final = ("source", "model", "prLink", "createdAt", "archivedAt")
NOT_TEXT: Final = ("null", "7", "0", "true", "false", "[]", "{}", '["text"]', "1e3")
NAMES: Final = {"prLink": "pr_link", "createdAt": "created_at", "archivedAt": "archived_at"}


async def _read(emulator: Emulator, session: AgentJobsSession, faults: dict[str, str]) -> dict[str, AgentJob]:
    """Return what each fault makes of the answers to one create and one read."""
    jobs: dict[str, AgentJob] = {}
    for fault in faults:
        await emulator.inject(f"{fault} x2", prompt=fault)
        created = await session.create_job(fault)
        jobs[fault] = read = await session.get_job(created.id)
        assert attrs.evolve(read, raw={}) == attrs.evolve(created, raw={})
    return jobs


async def test_fields_that_are_not_what_they_should_be() -> None:
    """A field that is missing, null or of another type is None; the job is good, and the document stays in `raw`."""
    faults = {f"missing:{name}": name for name in MAY_BE_MISSING}
    faults |= {f"document {name}={value}": name for name in MAY_BE_MISSING for value in NOT_TEXT if name != "source"}
    faults |= {f"document source={value}": "source" for value in NOT_TEXT if value != "{}"}
    async with Emulator(script=ENDLESS) as emulator, emulator.session(project_id="docs") as session:
        for fault, job in (await _read(emulator, session, faults)).items():
            assert getattr(job, NAMES.get(faults[fault], faults[fault])) is None, fault
            assert job.source is None or job.source == JobSource("acme/docs", "main"), fault
            assert (faults[fault] in job.raw) == fault.startswith("document"), fault


async def test_fields_of_the_source() -> None:
    """The fields of the source are each text or None."""
    async with Emulator(script=ENDLESS) as emulator, emulator.session(project_id="docs") as session:
        faults = {f"document source.{name}={value}": name for name in ("repository", "ref") for value in NOT_TEXT}
        for fault, job in (await _read(emulator, session, faults)).items():
            whole = JobSource("acme/docs", "main")
            assert job.source == attrs.evolve(whole, **{faults[fault]: None}), fault
        (empty,) = (await _read(emulator, session, {"document source={}": ""})).values()
        assert empty.source == JobSource(None, None)


NASTY: Final = "a\\u001b[2J\\u001b]0;x\\u0007\\r\\nb\\u0000\\u009b1m\\u202e\\u2028\\u0085\\ud83d\\ude80"


SAID: Final = (
    f'400 error="{NASTY}"',
    f'503 error="{NASTY}"',
    f'404 error="{NASTY * 400}"',
    f'document id="{NASTY}"',
    f'document status="{NASTY}"',
    f'document status="{"x" * 10_000}"',
    "400 header.X-Request-Id=\u009b31mred",
    "307 location=https://\u009b31m.example/",
    "body:text code=500",
    "body:html code=502",
    "body:utf-16 code=400",
)


@pytest.mark.looptime
async def test_text_is_cleaned(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """What a server says is shown on one line of bounded length, without anything that a terminal would obey."""
    caplog.set_level(logging.DEBUG, "agentjobs_async")
    policy = every(1, max_bad_answers=1, not_found_grace=0)

    async def check(fault: str) -> None:
        said: list[str] = []
        async with waiting(emulator, policy=policy, hooks=[LoggingHook()]) as (session, wait):
            created = await session.create_job("Fix it")
            await emulator.inject(fault, prompt=fault)
            await emulator.inject(f"{fault} forever", job_id=created.id)
            for call in (session.get_job(created), wait(created, timeout=3), session.create_job(fault)):
                try:
                    said.append(shown_status((await call).status))
                except AgentJobsError as error:
                    said += [str(error), getattr(error, "excerpt", ""), getattr(error, "request_id", None) or ""]
        assert len(said) > 2
        _check_shown(said)

    async with Emulator() as emulator:
        assert await failures_at_once(check, *SAID) == {}
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("agentjobs_async")]
    assert len(logged) > len(SAID)
    _check_shown(logged)


def _check_shown(texts: list[str]) -> None:
    assert [text for text in texts if not text.isprintable()] == []
    assert max(len(text.encode()) for text in texts) <= 2048 + 512


@pytest.mark.looptime
async def test_job_of_another_project_or_id(waiting: Waiting) -> None:
    """The answer about another job never counts as this one's, however far that has come."""
    script = JobScript(duration=60, job_id="job_000001")
    others = ("job_000002", "JOB_000001", '"job_000001 "', "job_1")
    faults = " then ".join(f"document id={other} status=completed on=get" for other in others)
    async with (
        Emulator(script=script, faults=faults) as emulator,
        waiting(emulator, policy=every(1)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        with pytest.raises(ProtocolError) as caught:
            await session.get_job(created)
        assert caught.value.reason == "wrong_id"
        seen: list[AgentJob] = []
        ended = await wait(created.ref, on_update=seen.append)
    assert {job.id for job in (*seen, ended)} == {"job_000001"}
    assert [job.status for job in seen] == ["active", "completed"]
