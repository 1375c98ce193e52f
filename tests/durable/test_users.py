"""Jobs of users: keys of their own, a limit of each, and their last jobs."""

import asyncio
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from agentjobs_async import AgentJobsSession, InvalidInputError, UserLimitError
from agentjobs_async.batch import BatchItem, Journal, State
from agentjobs_async.batch._database.schema import APPLICATION
from agentjobs_async.batch._store.durable_rows import DurableRows, Submitted, User
from agentjobs_async.batch.items import checked_key
from agentjobs_async.durable import DurableEntry, DurableJobs, user_key
from agentjobs_async.testing import Emulator
from tests.batch.silence import NEVER

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=20)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_no_two_pairs_have_one_key(user: str, key: str, other_user: str, other_key: str) -> None:
    """Whatever users are called and choose, two pairs have the same key only if they are the same pair."""
    assert (user_key(user, key) == user_key(other_user, other_key)) == ((user, key) == (other_user, other_key))


@given(ANY_TEXT, ANY_TEXT)
def test_key_of_any_characters(user: str, key: str) -> None:
    """A key is one that a journal takes, whatever its parts are; the first slash ends the user."""
    whole = user_key(user, key)
    assert checked_key(whole) == whole
    assert whole.split("/", 1)[0] == user_key(user, "-")[:-2]


def test_plain_names_stay() -> None:
    """Plain names and keys can be read in the key; a slash is escaped in the user alone."""
    assert user_key("alice", "2026/11") == "alice/2026/11"
    assert user_key("a/b", "c") == "a%2Fb/c"
    assert user_key("a", "b%\n") == "a/b%25%0A"


@given(ANY_TEXT, ANY_TEXT)
def test_own_key(user: str, key: str) -> None:
    """What is shown to a user has the key that the user has chosen; what is not of this user keeps its key."""
    entry = DurableEntry(user_key(user, key), State.PLANNED)
    assert entry.to_dict(user=user)["key"] == key
    assert entry.to_dict(user=f"not-{user}")["key"] == entry.to_dict()["key"] == entry.key


@pytest.mark.parametrize("key", ["alice/", "alice/%", "alice/%ff", "alice/%ED%A0", "alice/%41", "alice/a%2Fb", "k"])
def test_key_of_no_user(key: str) -> None:
    """A key that `user_key` has not made is shown to a user as it is, whatever its escapes stand for."""
    assert DurableEntry(key, State.PLANNED).to_dict(user="alice")["key"] == key


@pytest.mark.parametrize(("user", "key"), [("", "k"), ("u", ""), (7, "k"), ("u", None), ("u", "k" * 511)])
def test_no_key(user: Any, key: Any) -> None:
    """An empty part, one that is no text, and more than 512 characters in all are refused."""
    with pytest.raises(InvalidInputError):
        user_key(user, key)


async def test_most_open(session: AgentJobsSession, journal: Journal) -> None:
    """Of many jobs of one user that are submitted at once, as many are planned as may be open, and none of the others.

    Another user's are counted apart, a known key is never refused, and a job that has ended makes room.
    """
    async with DurableJobs(session, journal) as jobs:

        async def submit(user: str, number: int) -> str:
            entry = await jobs.submit(
                user_key(user, str(number)), "long", user=user, most_open=3, wait_for_create=False
            )
            return entry.key

        found = await asyncio.gather(*(submit("alice", number) for number in range(12)), return_exceptions=True)
        planned = [key for key in found if isinstance(key, str)]
        refused = [error for error in found if isinstance(error, UserLimitError)]
        assert (len(planned), len(refused)) == (3, 9)
        assert (refused[0].most_open, refused[0].retry_after) == (3, 60.0)
        assert await submit("bob", 1) == "bob/1"
        assert await submit("alice", int(planned[0].split("/")[1])) == planned[0]
        assert {row.key for row in await journal.rows()} == {*planned, "bob/1"}
        await jobs.submit(planned[0], "long", user="alice")
        await jobs.abandon(planned[0])
        assert await submit("alice", 99) == "alice/99"
        with pytest.raises(UserLimitError):
            await submit("alice", 100)
        await jobs.unfollow(planned[1])
        assert await submit("alice", 100) == "alice/100"


async def test_limit_of_two_processes(session: AgentJobsSession, laid_out: str) -> None:
    """On PostgreSQL, all processes together plan no more jobs of a user than may be open."""
    async with Journal.open(laid_out, owner_timeout=NEVER) as one, Journal.open(laid_out, owner_timeout=NEVER) as other:
        async with DurableJobs(session, one) as here, DurableJobs(session, other) as there:
            submissions = [
                jobs.submit(user_key("alice", f"{number}"), "long", user="alice", most_open=4, wait_for_create=False)
                for number, jobs in enumerate([here, there] * 10)
            ]
            found = await asyncio.gather(*submissions, return_exceptions=True)
        assert sum(isinstance(error, UserLimitError) for error in found) == 16
        assert len(await one.rows()) == 4


async def test_turns_of_users(session: AgentJobsSession, laid_out: str) -> None:
    """While another process counts a user's jobs on PostgreSQL, nothing of this one waits but a job of that user.

    So no two processes can wait for each other, and no id of a job waits to be recorded.
    """
    address = make_url(laid_out).set(drivername="postgresql").render_as_string(hide_password=False)
    take = "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))"
    try_to_take = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, %s))"
    waiting = (
        "SELECT count(*) FROM pg_locks JOIN pg_database AS base ON base.oid = database"
        " WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
    )
    async with (
        await psycopg.AsyncConnection.connect(address) as other,
        Journal.open(laid_out, owner_timeout=NEVER) as journal,
        DurableJobs(session, journal) as jobs,
    ):
        await other.execute(take, ["bob", APPLICATION])
        alice, bob = (
            asyncio.create_task(jobs.submit(f"{user}/1", "long", user=user, most_open=1)) for user in ("alice", "bob")
        )
        async with asyncio.timeout(30):
            while await (await other.execute(waiting)).fetchone() != (1,):  # noqa: ASYNC110 - another process's
                await asyncio.sleep(0.01)
        assert await (await other.execute(try_to_take, ["alice", APPLICATION])).fetchone() == (True,)
        async with asyncio.timeout(30):
            entries = await alice, await jobs.submit("bob/2", "long", user="bob")
        assert {entry.state for entry in entries} == {State.ACTIVE}
        assert not bob.done()
        await other.rollback()
        with pytest.raises(UserLimitError):
            await bob


async def test_key_of_another_user(session: AgentJobsSession, journal: Journal) -> None:
    """A key that a row of another user has is taken, even for the same prompt."""
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "long", user="alice")
        with pytest.raises(InvalidInputError, match="is the key of another prompt, project, extra or user") as raised:
            await jobs.submit("k", "long", user="bob", most_open=1)
        assert raised.value.reason == "key_taken"


async def test_known_meanwhile(session: AgentJobsSession, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that becomes known just as the limit refuses a submission with it is a known key: its job is returned."""
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("old", "long", user="alice")
        real = DurableRows.submit

        async def submit(rows: DurableRows, item: BatchItem, user: User | None = None) -> Submitted | None:
            submitted = await real(rows, item, user)
            if submitted is None:
                await jobs.abandon("old")
                await real(rows, item, user)
            return submitted

        with monkeypatch.context() as patch:
            patch.setattr(DurableRows, "submit", submit)
            entry = await jobs.submit("k", "long", user="alice", most_open=1)
        assert entry.state is State.ACTIVE
        with pytest.raises(InvalidInputError) as raised:
            await jobs.submit("k", "another prompt", user="alice", most_open=1)
        assert raised.value.reason == "key_taken"


async def test_limit_without_user(session: AgentJobsSession, journal: Journal) -> None:
    """A limit of nobody, and one of no job, are refused before anything is planned."""
    async with DurableJobs(session, journal) as jobs:
        with pytest.raises(InvalidInputError, match="name the user as well"):
            await jobs.submit("k", "long", most_open=1)
        with pytest.raises(InvalidInputError, match="most_open"):
            await jobs.submit("k", "long", user="alice", most_open=0)
        assert await journal.rows() == []


async def test_last_jobs(session: AgentJobsSession, journal: Journal) -> None:
    """The last jobs of a user are in the order of their submission, none of another user among them."""
    async with DurableJobs(session, journal) as jobs:
        for number in range(4):
            for user in ("alice", "alice2"):
                await jobs.submit(user_key(user, str(number)), "long", user=user, wait_for_create=False)
        assert [entry.key for entry in await jobs.of_user("alice", last=3)] == ["alice/1", "alice/2", "alice/3"]
        assert await jobs.of_user("nobody") == []
        with pytest.raises(InvalidInputError, match="last"):
            await jobs.of_user("alice", last=0)


async def test_wait_for_the_end(session: AgentJobsSession, journal: Journal) -> None:
    """A wait by key returns the entry of the end: of a job, of a refusal, and of one that was withdrawn."""
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "Hello", wait_for_create=False)
        entry = await jobs.wait("k", timeout=30)
        assert (entry.state, entry.is_terminal, entry.job and entry.job.status) == ("completed", True, "completed")
        await jobs.submit("long", "long")
        waiting = asyncio.create_task(jobs.wait("long"))
        await jobs.abandon("long")
        assert (await waiting).state is State.ABANDONED


async def test_wait_for_what_is_unknown(emulator: Emulator, session: AgentJobsSession, journal: Journal) -> None:
    """An unknown create ends the wait: until a person settles it, nothing changes."""
    await emulator.inject("reset on=create")
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "Hello", wait_for_create=False)
        entry = await jobs.wait("k", timeout=30)
        assert (entry.state, entry.is_terminal) == (State.UNKNOWN, False)


async def test_wait_for_no_job(session: AgentJobsSession, journal: Journal) -> None:
    """A key that no row has is refused at once, with a reason of its own; so are verbs in a state that refuses them."""
    async with DurableJobs(session, journal) as jobs:
        for call in (
            jobs.wait("nobody"),
            jobs.abandon("nobody"),
            jobs.retry("nobody"),
            jobs.set_context("nobody", None),
        ):
            with pytest.raises(InvalidInputError) as raised:
                await call
            assert raised.value.reason == "no_such_key"
        await jobs.submit("k", "long")
        with pytest.raises(InvalidInputError) as raised:
            await jobs.retry("k")
        assert raised.value.reason == "wrong_state"
