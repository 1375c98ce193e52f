"""The jobs of a bot: its commands, and the ends told where they were asked for."""

import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from inspect import isawaitable
from types import TracebackType
from typing import Final, Self

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_count, checked_instance
from agentjobs_async.batch import Journal, Limits
from agentjobs_async.batch.limits import Kept
from agentjobs_async.chat._commands import Commands
from agentjobs_async.chat._ends import end_text
from agentjobs_async.chat._replies import Replies
from agentjobs_async.chat.place import Place, checked_id, is_to_be_told, place_of
from agentjobs_async.chat.texts import Texts
from agentjobs_async.durable import DurableEntry, DurableJobs, Undeliverable

__all__ = ["ChatJobs", "Send"]

Send = Callable[[Place, str], Awaitable[object] | object]
"""What `send` of `ChatJobs` is: the bot's function of a place and a text, async or plain."""

_LONGEST_TEXT: Final = 1900  # characters; Discord takes 2,000, of which a mention needs some


class ChatJobs:
    """Jobs that users of a chat ask for by commands, each created at most once, its end told where it was asked for.

    Use it as `async with`: entering follows the jobs of the journal that are under way, sends what was planned, and
    tells of ends that were not told yet. Leaving waits up to 5 s for answers under way, then leaves the `DurableJobs`;
    it cancels no job, and the next start continues.

    ====================  ============================================================================================
    command               what it does
    ====================  ============================================================================================
    `/job PROMPT`         plans a job, under a key of its user, chat and message: one that is delivered twice is one job
    `/jobs`               lists the user's last ten jobs of this chat
    `/cancel ID`          takes back a job of the user's own that is planned; of one at work, tells the end no more
    `/settle KEY …`       settles an unknown job, for operators: `job ID` (the one found), `again` or `abandon`
    ====================  ============================================================================================

    Users read texts of this package alone, and of errors the `public_message`: no text of the service, no API key and
    no address. Operators read errors in full in the answers to `/settle`.

    Args:
        send: The bot's function `send(place, text)`, async or plain, which sends a text to a place. It tells ends and
            held jobs, and for `handle` the answers. `Undeliverable`, raised by it, is final, such as for a user who has
            blocked the bot; `RetryLater(seconds)` is the chat's own 429. After any other error an end is told again:
            after 1 s, doubling to 300 s, and after a restart. The same text may be sent twice.
        journal: The path of a file, the URL of a database, or a `Journal` that is open. It is best the bot's own.
        operators: The ids of the users who may settle jobs, as strings or whole numbers.
        session: An open session with a `project_id`; it is not closed. `None` opens one from the environment, and
            closes it.
        most_open: How many jobs a user may have planned, being sent or active at once, in all chats, at least 1; `None`
            for any number.
        texts: What the bot says: a `Texts`, or a subclass that says it otherwise.
        limits: The limits of all jobs, as of `DurableJobs`; "kept" takes those that the journal keeps.

    Raises:
        InvalidInputError: An argument is invalid; the message says what is valid.
    """

    def __init__(
        self,
        send: Send,
        *,
        journal: str | os.PathLike[str] | Journal,
        operators: Collection[str | int] = (),
        session: AgentJobsSession | None = None,
        most_open: int | None = 20,
        texts: Texts | None = None,
        limits: Limits | Kept = "kept",
    ) -> None:
        if isinstance(send, type) or not callable(send):
            raise InvalidInputError(f"send must be a function of a place and a text, not {send!r:.100}")
        self._bots_send = send
        self._replies = Replies(self._send)
        self._journal = journal if isinstance(journal, Journal) else Journal.open(journal)
        self._opens_journal = not isinstance(journal, Journal)
        self._operators = _checked_operators(operators)
        self._session = checked_instance("session", session, AgentJobsSession)
        self._most_open = None if most_open is None else checked_count("most_open", most_open)
        self._texts = checked_instance("texts", texts, Texts) or Texts()
        self._limits = limits
        self._commands: Commands | None = None
        self._was_entered = False
        self._to_leave = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the session and the journal where they are its own, and follow all jobs under way.

        Raises:
            InvalidInputError: The session has no project, or a setting is missing in the environment; the journal
                belongs to another service; or the block was entered before.
            JournalError: The journal can't be used.
        """
        if self._was_entered:
            raise InvalidInputError("a ChatJobs is entered once: make a new one")
        self._was_entered = True
        async with AsyncExitStack() as stack:
            session = self._session
            if session is None:
                session = await stack.enter_async_context(AgentJobsSession())
            if session.project_id is None:
                raise InvalidInputError("the session has no project_id: give it that of the jobs of this chat")
            if self._opens_journal:
                await stack.enter_async_context(self._journal)
            durable = DurableJobs(
                session, self._journal, on_change=self._on_change, on_end=self._on_end, limits=self._limits
            )
            jobs = await stack.enter_async_context(durable)
            stack.push_async_exit(self._replies.leave)
            self._commands = Commands(session, self._journal, jobs, self._texts, self._operators, self._most_open)
            self._to_leave = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._to_leave.__aexit__(kind, error, traceback)

    @property
    def jobs(self) -> DurableJobs:
        """The durable jobs, for what the commands can't do: `stats()`, or `notify(key)` at a webhook.

        Raises:
            InvalidInputError: The block was not entered.
        """
        return self._opened().jobs

    async def answer(self, place: Place, command: str, text: str = "") -> str:
        """Carry out a command, and return what to answer: for chats where the answer acknowledges the command.

        Once it has returned, a `/job` is in the journal: whatever ends the process then, its job is started once, and
        its end told. Where it was delivered before, nothing is started, and the answer says how the job stands. An
        error of this package becomes an answer, such as where the journal can't be written.

        Args:
            place: Where it was written.
            command: `job`, `jobs`, `cancel` or `settle`.
            text: What was written after it. That of `job` is sent as it is, white space included.

        Raises:
            InvalidInputError: An argument is invalid, or the block was not entered.
        """
        if not isinstance(place, Place):
            raise InvalidInputError(f"place must be a Place, not {type(place).__name__}")
        if not isinstance(text, str):
            raise InvalidInputError(f"text must be a string, not {type(text).__name__}")
        return _cut(await self._opened().answer(place, command, text))

    async def handle(self, place: Place, command: str, text: str = "") -> None:
        """Carry out a command, and begin to send the answer: for chats where the answer is a message like any other.

        It returns once the command is done, such as a `/job` in the journal; then the command may be acknowledged. The
        answer is not waited for, so that a chat that is slow or asks to wait holds up no other. An answer that can't be
        sent is logged, and lost; the end of its job is told all the same.

        The arguments and errors are those of `answer`.
        """
        answer = await self.answer(place, command, text)
        self._replies.send(place, answer)

    def _opened(self) -> Commands:
        if self._commands is None:
            raise InvalidInputError("the jobs are not open: use them inside of async with ChatJobs(...)")
        return self._commands

    async def _send(self, place: Place, text: str) -> None:
        sent = self._bots_send(place, _cut(text))
        if isawaitable(sent):  # a plain function has sent it by now: an error here would send it again and again
            await sent

    async def _on_change(self, entry: DurableEntry, found: AgentJob | Exception) -> None:
        """Say once that a job can't be sent at present."""
        if isinstance(found, AgentJobsError):
            place = _place_of(entry)
            await self._send(place, self._texts.held(str(place.message), found))

    async def _on_end(self, entry: DurableEntry, ended: AgentJob | Exception) -> None:
        place = _place_of(entry)
        if not is_to_be_told(entry.context):
            return
        await self._send(place, end_text(self._texts, str(place.message), entry, ended))


def _checked_operators(operators: object) -> frozenset[str]:
    if isinstance(operators, str | bytes) or not isinstance(operators, Collection):
        raise InvalidInputError(f"operators must be a collection of ids, such as {{'42'}}, not {operators!r:.100}")
    return frozenset(checked_id("each of operators", one) for one in operators)


def _place_of(entry: DurableEntry) -> Place:
    place = place_of(entry.context)
    if place is None:
        raise Undeliverable(f"the job {one_line(entry.key, 200)!r} was not asked for in a chat")
    return place


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
