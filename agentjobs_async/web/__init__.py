"""For web backends and bots: errors as HTTP answers, the changes of a job as events, and draining at a signal."""

from agentjobs_async.web.answers import HttpAnswer, http_answer
from agentjobs_async.web.events import job_events, sse_events
from agentjobs_async.web.shutdown import drain_on_signal

__all__ = ["HttpAnswer", "drain_on_signal", "http_answer", "job_events", "sse_events"]
