"""What is told at the end of a job."""

from agentjobs_async import AgentJob
from agentjobs_async.batch import State
from agentjobs_async.chat.texts import Texts
from agentjobs_async.durable import DurableEntry


def end_text(texts: Texts, job: str, entry: DurableEntry, ended: AgentJob | Exception | None) -> str:
    """Return what is told at the end of a job, or when nobody knows whether it was started."""
    if isinstance(ended, AgentJob):
        return texts.ended(job, ended)
    if entry.state is State.UNKNOWN:
        return texts.unknown(job, entry.key)
    if entry.state is State.REJECTED:
        return texts.rejected(job)
    if entry.state is State.ABANDONED and entry.sent_at is None:
        return texts.withdrawn(job)
    if entry.state is State.ABANDONED:
        return texts.abandoned(job)
    return texts.gone(job)
