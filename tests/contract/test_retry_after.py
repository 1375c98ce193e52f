"""Retry-After: never earlier than the server wishes, cut at the policy's cap, whatever its clock says."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Final

import pytest

from agentjobs_async import CreateOutcome, RateLimitedError
from agentjobs_async.testing import Emulator, JobScript, ReceivedRequest
from tests.contract.ways import Waiting, gets, started
from tests.polled import every
from tests.rows import failures_at_once

pytestmark = pytest.mark.looptime

PACE: Final = 3.0
CAP: Final = 20.0
PATIENT: Final = every(PACE, max_retry_after=CAP, not_found_grace=9999)
NO_DATE: Final = 'date=none header.Date="Sun, 06 Nov 1994 08:49:37 GMT"'
NINES: Final = "9" * 5000

WISHES: Final[dict[str, float | None]] = {
    "retry-after=7": 7,
    "retry-after=0007": 7,
    "retry-after=4": 4,
    "retry-after=1": 1,
    "retry-after=0": 0,
    "retry-after=-5": 0,
    "retry-after=20": 20,
    "retry-after=21": 21,
    "retry-after=86400": 86400,
    f"retry-after={NINES}": inf,
    "retry-after=date+9": 9,
    "retry-after=date-9": 0,
    "retry-after=date+9999": 9999,
    "retry-after=date+9 date=+86400": 9,
    "retry-after=date+9 date=-86400": 9,
    "retry-after=date+9 date=+1000000000": 9,
    "retry-after=date+9999 date=none": 9999,
    f'{NO_DATE} retry-after="Sun, 06 Nov 1994 08:49:46 GMT"': 9,
    f'{NO_DATE} retry-after="Sun, 06 Nov 1994 08:49:46"': 9,
    f'{NO_DATE} retry-after="Sun, 06 Nov 1994 09:49:46 +0100"': 9,
    f'{NO_DATE} retry-after="Sunday, 06-Nov-94 08:49:46 GMT"': 9,
    f'{NO_DATE} retry-after="Sun Nov  6 08:49:46 1994"': 9,
    'date=none header.Date=yesterday retry-after="Sun, 06 Nov 1994 08:49:46 GMT"': 0,
    "retry-after=soon": None,
    "retry-after=": None,
    "retry-after=7.5": None,
    "retry-after=1e3": None,
    "retry-after=0x10": None,
    "retry-after=inf": None,
    "retry-after=NaN": None,
    "retry-after=\u0667": None,
    "retry-after=\u00b2": None,
    'retry-after="Sun, 99 Nov 2094 08:49:46 GMT"': None,
    'retry-after="Sun, 06 Nov 0000 08:49:46 GMT"': None,
    "retry-after=4 retry-after=8 retry-after=6": 8,
    "retry-after=4 retry-after=soon": 4,
    "retry-after=soon retry-after=date+9 retry-after=-1": 9,
    "retry-after=5 retry-after=86400": 86400,
}
"""Each form of the header, and the seconds it wishes for; `None` is no wish."""

ON: Final = ("429", "503", "500", "408", "404", "body:html", "ok code=600")
"""On errors that pass, and on bad answers alike."""


async def test_polls() -> None:
    """The next poll comes no sooner than wished for, no later than the cap, and never sooner than the policy says."""

    async def check(wish: str) -> None:
        plan = " then ".join(f"{fault} {wish}" for fault in ON)
        async with started(emulator, plan, policy=PATIENT) as (wait, created):
            assert (await wait(created.ref)).succeeded
        gaps = _gaps(gets(emulator, created))
        not_before = max(PACE, min(WISHES[wish] or 0, CAP))
        assert len(gaps) == len(ON)
        assert not_before - 0.001 <= min(gaps)
        assert max(gaps) <= not_before + 0.1

    async with Emulator(script=JobScript(duration=0)) as emulator:
        assert await failures_at_once(check, *WISHES) == {}


def _gaps(requests: Sequence[ReceivedRequest]) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(requests)]


async def test_date_without_a_date() -> None:
    """An HTTP-date beside no Date is measured against the wall clock."""
    policy = every(PACE, max_retry_after=1000)
    async with (
        Emulator(script=JobScript(duration=0)) as emulator,
        started(emulator, "503 retry-after=date+900 date=none", policy=policy) as (wait, created),
    ):
        await wait(created.ref)
    (gap,) = _gaps(gets(emulator))
    assert 850 <= gap <= 901


async def test_polls_of_an_active_job() -> None:
    """A wish beside a good answer counts as well, as a lower bound. The session only: a bare job bears no wish."""

    async def check(wish: str, expected: float) -> None:
        policy = every(PACE, max_retry_after=CAP)
        async with started(emulator, f"ok retry-after={wish} forever", policy=policy) as (wait, created):
            await wait(created.ref)
        gaps = _gaps(gets(emulator, created))
        assert gaps == pytest.approx([expected] * len(gaps), abs=0.1)

    async with Emulator(script=JobScript(duration=100)) as emulator:
        assert await failures_at_once(check, ("7", 7), ("1", PACE), ("86400", CAP), ("soon", PACE)) == {}


async def test_wishes_of_many(waiting: Waiting) -> None:
    """However many wait, each keeps to the wish it was answered with."""
    wishes = range(4, 20)
    async with Emulator(script=JobScript(duration=0)) as emulator, waiting(emulator, policy=PATIENT) as (session, wait):
        refs = [(await session.create_job(str(wish))).ref for wish in wishes]
        for wish in wishes:
            await emulator.inject(f"404 retry-after={wish} x3 on=get", prompt=str(wish))
        await asyncio.gather(*map(wait, refs))
    for wish in wishes:
        gaps = _gaps([request for request in gets(emulator) if request.prompt == str(wish)])
        assert len(gaps) == 3
        assert wish <= min(gaps)
        assert max(gaps) <= CAP + 0.1


async def test_creates() -> None:
    """A create that was put off goes again no sooner than wished for; a wish beyond the cap is raised at once."""

    async def check(wish: str) -> None:
        asked, began = WISHES[wish] or 0, asyncio.get_running_loop().time()
        await emulator.inject(f"429 {wish} x2", prompt=wish)
        async with emulator.session(project_id="docs", policy=every(PACE, max_retry_after=CAP)) as session:
            if asked > CAP:
                with pytest.raises(RateLimitedError) as caught:
                    await session.create_job(wish)
                assert asyncio.get_running_loop().time() - began <= 1
                assert caught.value.outcome is CreateOutcome.REJECTED
                assert (caught.value.retry_after or 0) > CAP
            else:
                await session.create_job(wish)
        assert emulator.agents_started[wish] == (asked <= CAP)
        gaps = _gaps([request for request in emulator.requests if request.prompt == wish])
        assert len(gaps) == (0 if asked > CAP else 2)
        assert all(asked - 0.001 <= gap <= max(asked, 0.5) for gap in gaps)

    async with Emulator() as emulator:
        assert await failures_at_once(check, *WISHES) == {}


async def test_rate_limited_service() -> None:
    """Creates beyond the service's own limit get through as it allows them, each exactly once."""
    async with Emulator(faults="429 retry-after=30 x40") as emulator, emulator.session(project_id="docs") as session:
        await asyncio.gather(*(session.create_job(str(number)) for number in range(40)))
    assert emulator.agents_started == {str(number): 1 for number in range(40)}
    at = sorted(request.at for request in emulator.requests)
    assert at[40] - at[39] >= 29.9
    assert len(at) == 80
