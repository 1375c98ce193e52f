"""The service's emulator, for your tests and ours: it shares no code with the client."""

from agentjobs_async.testing.emulator import Emulator
from agentjobs_async.testing.faults import Fault, FaultPlan
from agentjobs_async.testing.limits import RateLimit
from agentjobs_async.testing.lives import JobLife, RandomLives
from agentjobs_async.testing.origin import ForeignOrigin
from agentjobs_async.testing.records import ReceivedRequest, StartedJob

__all__ = [
    "Emulator",
    "Fault",
    "FaultPlan",
    "ForeignOrigin",
    "JobLife",
    "RandomLives",
    "RateLimit",
    "ReceivedRequest",
    "StartedJob",
]
