"""What a bot says."""

from collections.abc import Sequence
from typing import Final

from agentjobs_async import AgentJob, AgentJobsError
from agentjobs_async.batch import State

__all__ = ["Texts"]

_SETTLE: Final = "/settle KEY job JOB_ID, /settle KEY again or /settle KEY abandon"


class Texts:
    """What a bot says, in English. Override methods in a subclass, for other words or another language.

    In all of them, `job` is the name by which the user knows the job: the id of the command's message. Each text may
    have any length; what is sent of it are 1,900 characters, which every chat takes.
    """

    def planned(self, job: str) -> str:
        """Return the answer to `/job`, once the job is in the journal."""
        return f"{job} is noted, and its end will be told."

    def planned_but_held(self, job: str) -> str:
        """Return the answer to `/job` where the job is in the journal, and can't be sent at present."""
        return f"{job} is noted, and waits."

    def no_prompt(self) -> str:
        """Return the answer to a `/job` that does not say what is to be done."""
        return "What is to be done? /job PROMPT"

    def edited(self, job: str) -> str:
        """Return the answer to a `/job` whose message has become another job before: it was edited since."""
        return f"{job} was asked for before you edited it. Write a new message."

    def too_many(self, most_open: int) -> str:
        """Return the answer to a `/job` of a user who has as many jobs under way as one may have."""
        jobs = "1 job" if most_open == 1 else f"{most_open} jobs"
        return f"You have {jobs} under way, as many as you may. Ask again when one has ended: /jobs"

    def refused(self, error: AgentJobsError) -> str:
        """Return the answer to a `/job` whose text can't be sent; `error` says why, in words fit for a chat."""
        return f"{error}\nNothing was started."

    def failed(self, error: AgentJobsError) -> str:
        """Return the answer to a command that failed; only `error.public_message` is fit for a chat."""
        return f"{error.public_message}\nLook at /jobs before you ask again."

    def held(self, job: str, reason: AgentJobsError) -> str:
        """Return what is told, once after each start, when a job can't be sent.

        Only `reason.public_message` is fit for a chat.
        """
        return f"{job} waits to be sent: {reason.public_message}"

    def ended(self, job: str, end: AgentJob) -> str:
        """Return what is told at the end of a job: `end.status` is `completed`, `failed` or `archived`."""
        return f"{job} {end.status}: {end.pr_link or 'no change'}"

    def unknown(self, job: str, key: str) -> str:
        """Return what is told where nobody knows whether a job was started; operators settle it by its `key`."""
        return (
            f"{job} I can't tell whether this was started; please look before you ask again."
            f" Operators settle it: {_SETTLE.replace('KEY', key)}"
        )

    def rejected(self, job: str) -> str:
        """Return what is told where the service has refused a job."""
        return f"{job} the service refused this; nothing was started"

    def gone(self, job: str) -> str:
        """Return what is told where a job was started, and the service does not have it any more."""
        return f"{job} the job is gone, and I can't tell how it ended"

    def withdrawn(self, job: str) -> str:
        """Return what is told where a job was taken back before it was sent."""
        return f"{job} was taken back; nothing was started"

    def abandoned(self, job: str) -> str:
        """Return what is told where a person gave up a job that may have been started."""
        return f"{job} an operator gave this up; an agent may still be at work"

    def listed(self, job: str, state: State, pr_link: str | None, prompt: str) -> str:
        """Return the line of a job in the answer to `/jobs`; of `prompt` it has the beginning, in one line."""
        return f"{job} {state} {pr_link} '{prompt}'" if pr_link else f"{job} {state} '{prompt}'"

    def none_listed(self) -> str:
        """Return the answer to `/jobs` of a user who has asked for none in this chat."""
        return "You have asked for no jobs in this chat."

    def not_known(self, job: str) -> str:
        """Return the answer to a `/cancel` of no job of this user in this chat; `job` is what was written."""
        del job
        return "Which? Look at /jobs."

    def not_under_way(self, job: str) -> str:
        """Return the answer to a `/cancel` of a job that has ended."""
        return f"{job} is not under way. Look at /jobs."

    def not_settled(self, job: str) -> str:
        """Return the answer to a `/cancel` of a job of which nobody knows whether it was started."""
        return f"{job} may have been started: operators settle it."

    def being_sent(self, job: str) -> str:
        """Return the answer to a `/cancel` of a job that is being sent in this moment."""
        return f"{job} is being sent in this moment. Ask again."

    def taken_back(self, job: str) -> str:
        """Return the answer to a `/cancel` of a job that was planned, and is not sent now."""
        return f"{job} is taken back."

    def no_longer_told(self, job: str) -> str:
        """Return the answer to a `/cancel` of a job that is at work: its end will not be told."""
        return f"{job} is at work: its agent goes on, but its end will not be told."

    def operators_only(self) -> str:
        """Return the answer to a `/settle` by somebody who is no operator."""
        return "Only operators may do this."

    def how_to_settle(self, unknown: Sequence[str]) -> str:
        """Return the answer to a `/settle` that can't be understood; `unknown` has up to ten keys of unknown jobs."""
        return f"Write {_SETTLE}. Unknown: {', '.join(unknown) or 'none'}"

    def settled(self, key: str) -> str:
        """Return the answer to a `/settle` that was done."""
        return f"{key} is settled, and its end will be told."

    def settling_failed(self, error: AgentJobsError) -> str:
        """Return the answer to a `/settle` that failed: an operator may read all that `error` says."""
        return f"{error}"
