"""The answers to the commands of a bot."""

import logging
import re
from collections import deque
from typing import Final

from attrs import frozen

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JobRef, UserLimitError
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_bare_id
from agentjobs_async.batch import Journal, JournalRow, State, Where
from agentjobs_async.chat._ends import end_text
from agentjobs_async.chat.place import (
    Place,
    chat_prefix,
    context_of,
    is_to_be_told,
    job_key,
    place_of,
    sent_again,
    untold,
    was_sent_again,
)
from agentjobs_async.chat.texts import Texts
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.errors import log_text

_COMMANDS: Final = ("job", "jobs", "cancel", "settle")
_LISTED: Final = 10  # jobs: as many lines as a chat shows at once
_LISTED_PROMPT_BYTES: Final = 80  # of each, in one line
_UNKNOWN_LISTED: Final = 10
_SETTLEMENT: Final = re.compile(r"(?P<key>\S.*?)\s+(?:job\s+(?P<job_id>\S+)|(?P<verb>again|abandon))", re.DOTALL)
"""The text of `settle`: a key may contain white space, such as `7/50/my task`."""

_logger: Final = logging.getLogger("agentjobs_async.chat")


@frozen
class Commands:
    """Does what users ask for, and says in a text what became of it.

    Attributes:
        session: Reads the job by which an operator settles another one.
        journal: Has all jobs.
        jobs: The durable jobs.
        texts: What is said.
        operators: The ids of users who may settle jobs, as strings.
        most_open: How many jobs a user may have under way; `None` for any number.
    """

    session: AgentJobsSession
    journal: Journal
    jobs: DurableJobs
    texts: Texts
    operators: frozenset[str]
    most_open: int | None

    async def answer(self, place: Place, command: str, text: str) -> str:
        """Carry out a command, and return the answer.

        Raises:
            InvalidInputError: There is no such command.
        """
        if command not in _COMMANDS:
            raise InvalidInputError(f"command must be one of {', '.join(_COMMANDS)}, not {command!r:.100}")
        try:
            match command:
                case "job":
                    return await self._job(place, text)
                case "jobs":
                    return await self._list(place)
                case "cancel":
                    return await self._cancel(place, text.strip())
                case _:  # settle
                    return await self._settle(place, text.strip())
        except AgentJobsError as error:
            _logger.warning("a command /%s failed: %s", command, log_text(error))
            return self.texts.failed(error)

    async def _job(self, place: Place, prompt: str) -> str:
        """Plan a job: from now on it is started, and its end told, whatever ends the process."""
        job = str(place.message)
        if not prompt.strip():
            return self.texts.no_prompt()
        try:
            entry = await self.jobs.submit(
                job_key(place, place.message),
                prompt,
                context=context_of(place),
                user=str(place.user),
                most_open=self.most_open,
                wait_for_create=False,
            )
        except UserLimitError as error:
            return self.texts.too_many(error.most_open)
        except InvalidInputError as error:
            return self.texts.edited(job) if error.reason == "key_taken" else self.texts.refused(error)
        return self._noted(job, entry)

    def _noted(self, job: str, entry: DurableEntry) -> str:
        """Return how a job stands that was asked for now, or before, where the chat delivers the command once more."""
        if entry.is_terminal or entry.state is State.UNKNOWN:
            return end_text(self.texts, job, entry, entry.job)
        if not is_to_be_told(entry.context):
            return self.texts.no_longer_told(job)
        if entry.error is not None:
            return self.texts.planned_but_held(job)
        return self.texts.planned(job)

    async def _list(self, place: Place) -> str:
        """List the last jobs that a user has asked for in a chat, one in each line."""
        last: deque[JournalRow] = deque(maxlen=_LISTED)
        async for row in self.journal.rows(where=Where(prefix=chat_prefix(place))):
            last.append(row)
        lines = [self._line(asked, row) for row in last if (asked := place_of(row.context)) is not None]
        return "\n".join(lines) or self.texts.none_listed()

    def _line(self, asked: Place, row: JournalRow) -> str:
        prompt = one_line(row.prompt, _LISTED_PROMPT_BYTES)
        return self.texts.listed(str(asked.message), row.state, row.pr_link, prompt)

    async def _cancel(self, place: Place, job: str) -> str:
        """Withdraw a job of a user's own that is planned, or stop telling of one that is at work."""
        entry = await self._own(place, job)
        if entry is None:
            return self.texts.not_known(job)
        if entry.state is State.PLANNED and await self._take_back(entry.key):
            return self.texts.taken_back(job)
        if entry.state is State.ACTIVE:
            # It is followed to its end all the same: only then the user may have one more.
            await self.jobs.set_context(entry.key, untold(entry.context))
        # It may have moved on since it was read.
        return self._standing(job, await self._own(place, job) or entry)

    def _standing(self, job: str, entry: DurableEntry) -> str:
        """Return how a job stands that can't be taken back."""
        if entry.is_terminal and not is_to_be_told(entry.context):  # else nobody would learn how it ended
            return end_text(self.texts, job, entry, entry.job)
        if entry.is_terminal:
            return self.texts.not_under_way(job)
        if entry.state is State.UNKNOWN:
            return self.texts.not_settled(job)
        if entry.state is State.ACTIVE and not is_to_be_told(entry.context):
            return self.texts.no_longer_told(job)
        return self.texts.being_sent(job)

    async def _own(self, place: Place, job: str) -> DurableEntry | None:
        """Return the entry of a job that a user has asked for in a chat; `None` without one."""
        try:
            entry = await self.jobs.get(job_key(place, job))
        except InvalidInputError:  # no message has such an id
            return None
        # A program that shares the journal may have made the same key of users and names of its own.
        return None if entry is None or place_of(entry.context) is None else entry

    async def _take_back(self, key: str) -> bool:
        """Withdraw a planned job; return false where it is not planned any more."""
        try:
            await self.jobs.abandon(key)
        except InvalidInputError:
            return False
        return True

    async def _settle(self, place: Place, text: str) -> str:
        """Settle an unknown job as an operator has found out; nobody else learns anything of it."""
        if str(place.user) not in self.operators:
            return self.texts.operators_only()
        try:
            return await self._settle_as_said(place, text)
        except AgentJobsError as error:
            return self.texts.settling_failed(error)

    async def _settle_as_said(self, place: Place, text: str) -> str:
        unknown = [row.key async for row in self.journal.unknown()]
        said = _SETTLEMENT.fullmatch(text)
        if said is None or (said["job_id"] is None and said["key"] not in unknown):
            return self.texts.how_to_settle(unknown[:_UNKNOWN_LISTED])
        key = said["key"]
        if said["job_id"] is not None:
            await self.journal.resolve(key, job_id=await self._found(key, said["job_id"]))
        elif said["verb"] == "again":
            if not await self._send_again(place, key):
                return self.texts.how_to_settle(unknown[:_UNKNOWN_LISTED])
        else:
            await self.journal.abandon(key)
        return self.texts.settled(key)

    async def _send_again(self, place: Place, key: str) -> bool:
        """Plan an unknown job once more; return false where this very message has asked for that before.

        The chat may deliver the message again after the new create has become unknown, too: that needs a new message.
        """
        row = await self.journal.get(key)
        context = {} if row is None else row.context or {}
        if was_sent_again(context, place):
            return False
        # First: after a crash in between, the job is still unknown, and the operator is told so.
        await self.journal.set_context(key, sent_again(context, place))
        await self.journal.resolve(key, send_again=True)
        return True

    async def _found(self, key: str, job_id: str) -> JobRef:
        """Return the job that an operator has found for an unknown one, in the project to which that was sent.

        Raises:
            InvalidInputError: It can be no id, or there is no such key.
            AgentJobsError: The job can't be read.
        """
        checked_bare_id(job_id)
        row = await self.journal.get(key)
        if row is None:
            raise InvalidInputError(f"there is no job of the key {key!r:.200}")
        return (await self.session.get_job(JobRef(row.project_id, job_id))).ref
