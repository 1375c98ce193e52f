"""An emulator of the service for tests; it shares no code with the client."""

from agentjobs_async.testing._service import RateLimit
from agentjobs_async.testing.emulator import Emulator
from agentjobs_async.testing.faults.fault import Fault, FaultPlan
from agentjobs_async.testing.origin import ForeignOrigin
from agentjobs_async.testing.records import ReceivedRequest, StartedJob
from agentjobs_async.testing.scripts import JobScript, RandomScripts

__all__ = [
    "Emulator",
    "Fault",
    "FaultPlan",
    "ForeignOrigin",
    "JobScript",
    "RandomScripts",
    "RateLimit",
    "ReceivedRequest",
    "StartedJob",
]
