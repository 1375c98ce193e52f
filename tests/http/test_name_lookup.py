"""Names: one look-up at a time, kept for a while, in threads that hold nothing up."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentjobs_async._http.name_lookup import Names
from tests.contract.children import run_child

ANSWER: Any = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]
EXPECTED = [(socket.AF_INET, "192.0.2.1")]


class System:
    """What stands for the system's look-up: answers when it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[], Any] = lambda: ANSWER
        self.may = threading.Event()
        self.may.set()

    def __call__(self, host: str, port: None, **_options: Any) -> Any:
        assert port is None
        self.asked.append(host)
        assert self.may.wait(20)
        return self.answer()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    system = System()
    monkeypatch.setattr(socket, "getaddrinfo", system)
    yield system
    system.may.set()


async def addresses(names: Names, host: str = "service.example") -> Any:
    return await names.addresses(host, socket.AF_UNSPEC)


async def test_asked_once(system: System) -> None:
    """Whoever wants the same name meanwhile waits for the same look-up; another name has its own."""
    names = Names()
    system.may.clear()
    calls = [asyncio.ensure_future(addresses(names)) for _ in range(300)]
    other = asyncio.ensure_future(addresses(names, "other.example"))
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    system.may.set()
    assert await asyncio.gather(*calls[1:], other) == [EXPECTED] * 300
    assert calls[0].cancelled()
    assert sorted(system.asked) == ["other.example", "service.example"]


async def test_kept_for_a_while(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer serves for ten seconds of the loop, then the name is looked up anew."""
    names, loop = Names(), asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    for step, asked in [(0.0, 1), (9.9, 1), (0.2, 2), (5.0, 2)]:
        now += step
        assert await addresses(names) == EXPECTED
        assert len(system.asked) == asked


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "no such name"), "no such name"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
async def test_faults_are_not_kept(system: System, fault: Exception, words: str) -> None:
    """All that wait for a look-up that fails get an error of their own, and the next to come asks again."""

    def fail() -> None:
        raise fault

    names = Names()
    system.answer = fail
    ends = await asyncio.gather(addresses(names), addresses(names), return_exceptions=True)
    assert [words in str(end) for end in ends] == [True, True]
    assert all(isinstance(end, OSError) for end in ends)
    assert len({id(end) for end in ends}) == 2
    system.answer = lambda: ANSWER
    assert await addresses(names) == EXPECTED
    assert len(system.asked) == 2


async def test_link_local_addresses_keep_their_zone(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that counts on one network only names it."""
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", address) for address in [("fe80::1", 0, 0, 3), ("::1", 0, 0, 0)]
    ]
    system.answer = lambda: found
    monkeypatch.setattr(socket, "getnameinfo", lambda *_: ("fe80::1%eth3", "0"))
    assert await addresses(Names()) == [(socket.AF_INET6, "fe80::1%eth3"), (socket.AF_INET6, "::1")]


async def test_threads_of_the_loop_are_left_alone(system: System) -> None:
    """A name is looked up though every thread of the loop is busy."""
    release = threading.Event()
    busy = [asyncio.get_running_loop().run_in_executor(None, release.wait, 20) for _ in range(100)]
    assert await addresses(Names()) == EXPECTED
    assert system.asked == ["service.example"]
    release.set()
    await asyncio.gather(*busy)


def test_a_look_up_that_hangs_holds_up_no_end() -> None:
    """A program ends at once although a look-up of it hangs for ever, and one that ends later finds nobody."""
    said = run_child(
        """
        import asyncio, socket, threading
        from agentjobs_async import AgentJobsSession, NotSentError, HttpTimeouts

        go = threading.Event()
        def hang(host, *arguments, **options):
            go.wait()
            if host == "ever.example":
                threading.Event().wait()
            raise socket.gaierror(socket.EAI_NONAME, "too late")
        socket.getaddrinfo = hang

        async def main(host):
            async with AgentJobsSession(f"https://{host}", "0123456789", project_id="docs",
                                        timeouts=HttpTimeouts(connect=0.2)) as session:
                try:
                    await session.create_job("x", timeout=0.3)
                except NotSentError as error:
                    print(error.reason)

        asyncio.run(main("ever.example"))
        asyncio.run(main("later.example"))
        go.set()
        for thread in threading.enumerate():
            if "later" in thread.name:
                thread.join()
        print("end")
        """
    )
    assert said == "timeout\ntimeout\nend\n"
