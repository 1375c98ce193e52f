"""For web backends and bots: errors as HTTP answers, and the changes of a job as events, and tokens for one user."""

from agentjobs_async.web.answers import HttpAnswer, http_answer
from agentjobs_async.web.events import job_events, sse_events
from agentjobs_async.web.shutdown import drain_on_signal
from agentjobs_async.web.tokens import SignedTokens

__all__ = ["HttpAnswer", "SignedTokens", "drain_on_signal", "http_answer", "job_events", "sse_events"]
