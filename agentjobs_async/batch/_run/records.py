"""What one run records of its items: its texts are masked, and what it works on is its own."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentjobs_async import AgentJob, AgentJobsError, JobRef, NotFoundError
from agentjobs_async._text import error_text, one_line
from agentjobs_async.batch._store.claims import NoRoom, Repetition
from agentjobs_async.batch._store.late import Sent, record_late
from agentjobs_async.batch._store.rows import LONGEST_ERROR_BYTES, JournalRow, refusal_text
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import CREATED, CREATED_BY_KEY, DOUBT, END, GONE, NOTE, REJECT, RELEASE, UNSENT, State


class Records:
    """Records the moves of rows for one owner. Each call that moves a row returns it, `None` where it has moved on.

    Args:
        store: The journal's rows.
        owner: The name of the owner.
        mask: Removes the API key of its session from each text before it is stored.
    """

    def __init__(self, store: Store, owner: str, mask: Callable[[str], str]) -> None:
        self.store = store
        self.owner = owner
        self._mask = mask

    async def claim(
        self, key: str, digest: str | None = None, repetition: Repetition | None = None
    ) -> str | NoRoom | None:
        """Claim a row, as `Store.claim` does."""
        return await self.store.claim(key, self.owner, digest, repetition)

    async def released(
        self, key: str, claim: str, error: Exception | None, *, was_sent: bool = False
    ) -> JournalRow | None:
        """Record that nothing was sent under a claim, or that the service did nothing about it, which `error` says.

        `was_sent` says the latter: a rate counts the create from now on.
        """
        text = None if error is None else self.text(error)
        matching = {"claim": claim}
        return await self.store.move(
            RELEASE, key, self.owner, matching=matching, was_sent=was_sent, new={"error": text}
        )

    async def unsent(self, key: str, claim: str, error: Exception | None) -> JournalRow | None:
        """Record that a claim repeated nothing, which `error` says: its create is in doubt as before, and stays own."""
        new: dict[str, Any] = {"owner": self.owner} | ({} if error is None else {"error": self.text(error)})
        return await self.store.move(UNSENT, key, self.owner, matching={"claim": claim}, new=new)

    async def created(
        self, key: str, claim: str, ref: JobRef, traceparent: str | None, idempotency_key: str | None = None
    ) -> JournalRow | None:
        """Record a job's id, and the span that created it. Return the row; `None` where the item has moved on.

        With an idempotency key, the job is that of its create, whichever POST of it was sent last.

        The row may have the id by a commit before whose answer was lost. One that was abandoned meanwhile gets it, and
        stays abandoned. Where the item has moved on, its earlier try gets it.

        Raises:
            JournalError: The journal can't be written; or nothing in it has this claim (`locked`).
        """
        job = {"job_id": ref.job_id, "project_id": ref.project_id}
        new = {**job, "owner": self.owner, "traceparent": traceparent}
        row = await self.store.move(CREATED, key, self.owner, matching={"claim": claim}, new=new)
        if row is None and idempotency_key is not None:
            matching = {"idempotency_key": idempotency_key}
            row = await self.store.move(CREATED_BY_KEY, key, self.owner, matching=matching, new=new)
        # After a crash between these two commits, the earlier try stays unknown, and nothing has the id of its job.
        return row or await record_late(self.store, Sent(key, claim, idempotency_key), ref)

    async def ended(self, key: str, job: AgentJob, polls: int) -> JournalRow | None:
        """Record how a job ended, after `polls` polls by all runs."""
        target, matching = State(job.status), {"job_id": job.id}
        new = {"pr_link": self.link(job), "polls": polls}
        return await self.store.move(END, key, self.owner, target=target, matching=matching, new=new)

    async def rejected(self, key: str, claim: str, error: Exception) -> JournalRow | None:
        """Record that the service refused the create of a claim."""
        return await self.store.move(REJECT, key, self.owner, matching={"claim": claim}, new=self._refused(error))

    async def unknown(
        self, key: str, claim: str, error: Exception, *, is_own: bool = False, final: Exception | None = None
    ) -> JournalRow | None:
        """Record that the create of a claim may have started an agent.

        Args:
            key: The key of the row.
            claim: The claim.
            error: Why it is in doubt.
            is_own: Whether this owner is going to repeat it.
            final: The refusal of a repetition after which no owner repeats it; `None` without one.
        """
        new: dict[str, Any] = {"error": self.text(error)} | ({"owner": self.owner} if is_own else {})
        new |= {} if final is None else {"refusal": refusal_text(final, self._mask)}
        return await self.store.move(DOUBT, key, self.owner, matching={"claim": claim}, new=new)

    async def noted(self, key: str, job_id: str | None, error: Exception, polls: int) -> JournalRow | None:
        """Record what ended the wait for a job that has not ended."""
        new = {"error": self.text(error), "polls": polls}
        matching = {"job_id": job_id, "owner": self.owner}
        return await self.store.move(NOTE, key, self.owner, matching=matching, new=new)

    async def gone(self, key: str, job_id: str | None, error: NotFoundError, polls: int) -> JournalRow | None:
        """Record that a job is gone, after `polls` polls."""
        text = one_line(self._mask(f"its job is gone: {error.message}"), LONGEST_ERROR_BYTES)
        new = {"error": text, "refusal": refusal_text(error, self._mask), "polls": polls}
        return await self.store.move(GONE, key, self.owner, matching={"job_id": job_id}, new=new)

    def link(self, job: AgentJob) -> str | None:
        """Return a job's link as it is stored."""
        return None if job.pr_link is None else self._mask(job.pr_link).replace("\0", r"\x00")  # made by hand, say

    def text(self, error: Exception) -> str:
        """Return what happened, in the words that every output shows: of a foreign error, its type first."""
        return one_line(self._mask(_whole_text(error)), LONGEST_ERROR_BYTES)

    def _refused(self, error: Exception) -> dict[str, Any]:
        return {"error": self.text(error), "refusal": refusal_text(error, self._mask)}


def _whole_text(error: Exception) -> str:
    """Return an error's text uncut: it is masked first, since cutting could leave a part of the API key."""
    if isinstance(error, AgentJobsError):
        return error.message
    text = ""
    with suppress(Exception):
        text = str(error)
    return f"{type(error).__name__}: {text or error_text(error)}"
