"""An emulator of the service for tests; it shares no code of an exchange with the client."""

from agentjobs_async.testing._emulator import Emulator, ForeignOrigin
from agentjobs_async.testing._faults.fault import Fault, FaultPlan
from agentjobs_async.testing._messages import ReceivedRequest
from agentjobs_async.testing._scripts import JobScript, RandomScripts
from agentjobs_async.testing._service import RateLimit, StartedJob

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
