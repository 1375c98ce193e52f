"""For web backends and bots: errors as HTTP answers."""

from agentjobs_async.web.answers import HttpAnswer, http_answer

__all__ = ["HttpAnswer", "http_answer"]
