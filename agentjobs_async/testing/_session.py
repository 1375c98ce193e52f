"""The session of an emulator."""

from agentjobs_async import AgentJobsSession
from agentjobs_async.session import EMULATOR


class EmulatorSession(AgentJobsSession):
    """A session that says that it is an emulator's: a journal that it has served refuses every other service."""

    @property
    def service(self) -> str:
        """What a journal records of the service: `emulator`, whatever its address is."""
        return EMULATOR
