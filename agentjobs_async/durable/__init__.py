"""Durable jobs: single jobs that come one by one, each created at most once and followed across restarts.

Needs the extra `batch`, of whose journal and creates this room is made.
"""

from agentjobs_async._extras import extra_named

with extra_named("agentjobs_async.durable"):
    from agentjobs_async.durable.delivery import RetryLater, Undeliverable
    from agentjobs_async.durable.entry import DurableEntry
    from agentjobs_async.durable.jobs import DurableJobs, OnChange, OnEnd
    from agentjobs_async.durable.stats import DurableStats
    from agentjobs_async.durable.users import user_key

__all__ = [
    "DurableEntry",
    "DurableJobs",
    "DurableStats",
    "OnChange",
    "OnEnd",
    "RetryLater",
    "Undeliverable",
    "user_key",
]
