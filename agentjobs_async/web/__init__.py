"""For web backends and bots: bodies, errors, the changes of a job and signals, as HTTP and ASGI have them."""

from agentjobs_async.web.answers import HttpAnswer, http_answer
from agentjobs_async.web.body_limit import BodyLimit
from agentjobs_async.web.events import job_events, sse_events
from agentjobs_async.web.lifespan import Lifespan
from agentjobs_async.web.shutdown import drain_on_signal

__all__ = ["BodyLimit", "HttpAnswer", "Lifespan", "drain_on_signal", "http_answer", "job_events", "sse_events"]
