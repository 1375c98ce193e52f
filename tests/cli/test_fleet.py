import json
import logging
import re
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from agentjobs_async.__main__ import main
from agentjobs_async.cli.fleet import _QueueLogs
from tests.cli.checks import Captured, screen
from tests.cli.stage import Child, EmulatorThread
from tests.postgresql import execute

pytestmark = pytest.mark.slow

SECRET = "hunter2-very-secret"


@pytest.fixture
def url(database: str) -> str:
    """The address of an empty journal, with a password that nobody may see."""
    return make_url(database).set(password=SECRET).render_as_string(hide_password=False)


def submit(url: str, prompts: Path, *more: str) -> int:
    return main(["submit", "--file", str(prompts), "--journal", url, "--project", "docs", *more])


def state_of(url: str, key: str) -> Any:
    return execute(url, f"SELECT state FROM agentjobs_items WHERE key = '{key}'")  # noqa: S608 - the tests' own words


def test_submit_and_work(
    service: EmulatorThread, prompts: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """What is submitted is worked off by a worker, which shows each end, and ends with the code of the signal."""
    monkeypatch.setenv("AGENTJOBS_JOURNAL", url)  # so that no password is among the arguments
    assert main(["submit", "--file", str(prompts), "--max-active", "2", "--create-rate", "100/s"]) == 0
    printed = capsys.readouterr().err
    limits = "at most 2 active over all workers, at most 100 creates of each project in any span of 1 s"
    assert printed == f"3 submitted, 0 refused; {limits}.\n"
    assert main(["status", "--state", "planned", "--format", "jsonl"]) == 4
    assert [json.loads(line)["state"] for line in capsys.readouterr().out.splitlines()] == ["planned"] * 3
    assert service.emulator.requests == ()
    with Child("worker", "--journal", url, env=service.environment) as worker:
        worker.until("k0 completed").until("k1 completed").until("k2 completed").send(signal.SIGTERM)
        assert worker.ended() == 143
    assert "Stopped; what has not ended was given back." in worker.stderr
    assert SECRET not in worker.stdout + worker.stderr
    assert service.emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}
    assert main(["status", "--journal", url]) == 0
    assert "3 completed" in capsys.readouterr().out


def test_invalid_prompts_and_limits(prompts: Path, url: str, capsys: Captured) -> None:
    """Prompts that are not planned are shown, and limits stay as they are until others are given."""
    assert submit(url, prompts, "--max-active", "5") == 0
    prompts.write_text(
        '{"key": "k0", "prompt": "another"}\n{"key": "bad", "prompt": " "}\n{"key": "k3", "prompt": "x"}\n'
    )
    capsys.readouterr()
    assert submit(url, prompts, "--create-rate", "10/m") == 1
    printed = capsys.readouterr().err
    assert "k0 refused: the key 'k0' is that of another prompt" in printed
    limits = "at most 5 active over all workers, at most 10 creates of each project in any span of 60 s"
    assert f"1 submitted, 2 refused; {limits}." in printed
    assert submit(url, prompts, "--create-rate", "none", "--max-active", "none", "--polls-per-second", "0.5") == 1
    printed = capsys.readouterr().err
    assert "any number active over all workers, no limit of creates, at most 0.5 polls per second." in printed


def test_the_unknown_ones(service: EmulatorThread, prompts: Path, url: str, capsys: Captured) -> None:
    """What nobody is sure of is settled on the command line, and a running worker continues by that."""
    service.inject("500 agent=no x1", prompt="p1")
    assert submit(url, prompts, "--max-active", "1") == 0
    with Child("worker", "--journal", url, "--unknown-for", "0", env=service.environment) as worker:
        worker.until("k1 unknown").until("k0 completed").until("k2 completed")
        assert main(["resolve", "k1", "--journal", url, "--send-again"]) == 0
        assert "a running worker, or agentjobs resume, continues with it" in capsys.readouterr().err
        worker.until("k1 (try 2) completed").send(signal.SIGINT)
        assert worker.ended() == 130
    assert state_of(url, "k1") == [("completed",)]


def test_until_done(service: EmulatorThread, prompts: Path, url: str, capsys: Captured) -> None:
    """With --until-done a worker ends when every item has ended, by whichever worker, with the exit code of all."""
    service.live("failed", prompt="p1")
    assert main(["worker", "--until-done", "--journal", url]) == 0
    assert "The journal holds no items." in capsys.readouterr().err
    assert submit(url, prompts) == 0
    assert main(["worker", "--until-done", "--journal", url]) == 1
    printed = capsys.readouterr()
    assert "1 failed, 2 completed" in printed.err
    assert "Stopped" not in printed.err
    assert main(["worker", "--until-done", "--journal", url]) == 1
    assert service.emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}


def test_run_and_resume(service: EmulatorThread, prompts: Path, url: str, capsys: Captured) -> None:
    """One machine runs and resumes on a database as on a file; the command that goes on shows no password."""
    assert main(["run", "--file", str(prompts), "--journal", url, "--limit", "1"]) == 4
    printed = capsys.readouterr().err
    assert " resume 'postgresql+psycopg://postgres@" in printed
    assert SECRET not in printed
    assert main(["resume", "--journal", url]) == 0
    assert main(["plan", "--file", str(prompts), "--journal", url, "--project", "docs"]) == 0
    assert "0 would be sent" in capsys.readouterr().out
    assert service.emulator.agents_started.total() == 3


def test_the_database_is_gone_for_a_while(service: EmulatorThread, prompts: Path, url: str) -> None:
    """A worker whose database is gone says so in a line, in place of its libraries' warnings, and then goes on."""
    service.live(duration=3600)
    assert submit(url, prompts) == 0
    address = make_url(url)
    others = address.set(database="postgres")
    with Child("worker", "--journal", url, env=service.environment) as worker:
        service.wait_for_polls(3)
        execute(others, f"ALTER DATABASE {address.database} ALLOW_CONNECTIONS false")
        execute(others, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{address.database}'")  # noqa: S608 - the tests' own words
        worker.until_error("The database can't be used (")
        execute(others, f"ALTER DATABASE {address.database} ALLOW_CONNECTIONS true")
        service.complete()
        worker.until("k0 completed").until("k1 completed").until("k2 completed").send(signal.SIGTERM)
        assert worker.ended() == 143
    assert "The worker waits for it, and continues by itself." in worker.stderr
    assert "Traceback" not in worker.stderr
    assert "error connecting" not in worker.stderr
    assert SECRET not in worker.stderr
    assert service.emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}


def test_live_view(service: EmulatorThread, prompts: Path, url: str) -> None:
    """On a terminal a worker shows the items under way."""
    service.live(duration=3600)
    service.live("failed", prompt="p0")
    assert submit(url, prompts) == 0
    with Child("worker", "--journal", url, env=service.environment, terminal=True) as worker:
        service.wait_for_polls(3)  # until then two may be active that are not the last two
        worker.until("k0 \x1b[1;31mfailed").until("PROMPT").until("2 active").send(signal.SIGINT)
        assert worker.ended() == 130
    assert SECRET not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", worker.stdout)
    assert state_of(url, "k1") == [("active",)]


def test_a_worker_for_machines(service: EmulatorThread, prompts: Path, url: str) -> None:
    """A worker speaks the documented lines of JSON too."""
    assert submit(url, prompts) == 0
    with Child("worker", "--journal", url, "--json", env=service.environment) as worker:
        for _ in range(3):
            worker.until('"event": "ended"')
            worker.stdout = worker.stdout.replace('"event": "ended"', '"event": "end"', 1)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 143
    events = [json.loads(line) for line in worker.stdout.splitlines()]
    of_one = [(event["event"], event["number"]) for event in events if event.get("key") == "k1"]
    assert of_one == [("created", 2), ("status", 2), ("end", 2)]


def test_a_server_that_is_not_there(prompts: Path, capsys: Captured) -> None:
    """A server that can't be reached is an error of one line, without the password."""
    address = f"postgresql+psycopg://user:{SECRET}@127.0.0.1:1/work"
    for arguments in (["submit", "--file", str(prompts)], ["status"], ["resolve", "k0", "--send-again"]):
        assert main([*arguments, "--journal", address]) not in {0, 2}
        printed = capsys.readouterr().err
        assert "journal 127.0.0.1/work: it can't be reached" in printed
        assert SECRET not in printed


POOL = logging.getLogger("psycopg.pool")


QUEUE = logging.getLogger("procrastinate.worker")


GONE = psycopg.OperationalError("connection refused\nIs the server running?")


def shown() -> AbstractContextManager[None]:
    return _QueueLogs(screen()).shown()


def fail(error: Exception) -> None:
    QUEUE.error("listener error", exc_info=error)


def test_an_outage(capsys: Captured) -> None:
    """Whatever the libraries log about an outage is one line, which says why and what the worker does."""
    with shown():
        POOL.warning("error connecting in %r: %s", "pool-1", GONE)
        POOL.warning("reconnection attempt in pool %r failed after %s sec", "pool-1", 300)
        fail(GONE)
        QUEUE.error("Side task heartbeat failed")
    printed = capsys.readouterr()
    words = "The database can't be used (connection refused). The worker waits for it, and continues by itself."
    assert " ".join(printed.err[len("12:34:56 ") :].split()) == words
    assert printed.out == ""


def test_another_outage(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error a minute after the last one is of another outage, which has a line of its own."""
    counts = []
    with shown():
        for now in (0.0, 59.0, 118.0, 178.0):
            monkeypatch.setattr("agentjobs_async.cli.fleet.time.monotonic", lambda now=now: now)
            fail(GONE)
            counts.append(capsys.readouterr().err.count("The database"))
    assert counts == [1, 0, 0, 1]


def test_other_warnings(capsys: Captured) -> None:
    """Outside of an outage a warning of the queue is one line without a traceback; the pool's are left out."""
    with shown():
        POOL.warning("discarding closed connection: %s", "<a connection>")
        QUEUE.error("Task was not found", exc_info=ValueError("no such task"))
    assert capsys.readouterr().err[len("12:34:56 ") :] == "Task was not found\n"


def test_afterwards() -> None:
    """After the block the libraries log as before."""
    before = [(logger.propagate, list(logger.handlers)) for logger in (POOL, QUEUE.parent) if logger]
    with shown():
        pass
    assert [(logger.propagate, logger.handlers) for logger in (POOL, QUEUE.parent) if logger] == before
