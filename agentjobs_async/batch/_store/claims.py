"""The claims of a process whose outcomes it does not know."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from attrs import frozen

from agentjobs_async import AgentJobsError
from agentjobs_async.batch._pages import pages_of

_DOUBT_SECONDS: Final = 600.0  # longer than any claim can stay under way in a connection that broke

Cause = Literal["max_active", "create_rate", "pause", "lock"]
"""Why no create goes now: a limit that is used up; the service wants none; or the journal did not answer in time."""

_WORDS: Final[dict[Cause, str]] = {
    "max_active": "max_active is used up: as many items are under way, over all that work on the journal",
    "create_rate": "create_rate is used up, over all that work on the journal",
    "pause": "the service wants no creates of this project for now, as it told another run",
    "lock": "the journal does not answer in time, and nothing is sent before that",
}


class NoRoomError(AgentJobsError):
    """A create waits although nothing has failed.

    Attributes:
        cause: What it waits for.
    """

    def __init__(self, cause: Cause, message: str | None = None) -> None:
        super().__init__(message or _WORDS[cause], public_message="The job waits for its turn.")
        self.cause: Cause = cause


def is_limit(error: Exception | None) -> bool:
    """Return whether an error says that a limit is used up, as in any run that goes well."""
    return isinstance(error, NoRoomError) and error.cause in ("max_active", "create_rate")


@frozen
class NoRoom:
    """The limits of all owners, or a pause, let no create go now.

    Attributes:
        wait: Seconds after which there may be room.
        cause: Why.
        project_id: The only project whose creates have to wait; `None` when all have to.
    """

    wait: float
    cause: Cause
    project_id: str | None = None


@frozen
class Repetition:
    """How a create is sent once more whose outcome is unknown.

    Attributes:
        key: Its idempotency key.
        seconds: For how long after the first POST the service remembers the key.
    """

    key: str
    seconds: float


class Claims:
    """Which claims had no answer, and which senders have gone before an outcome was recorded."""

    def __init__(self) -> None:
        self._unanswered: dict[str, tuple[str, float]] = {}  # key and the loop time at which that was noticed, by claim
        self._left: dict[str, str] = {}  # key by claim

    def note_unanswered(self, claim: str, key: str) -> None:
        """Note a claim that may have been executed, or may be yet; nothing is sent under it."""
        self._unanswered[claim] = (key, asyncio.get_running_loop().time())

    def leave(self, claim: str, key: str) -> None:
        """Note that the sender under a claim has gone, and has perhaps recorded no outcome."""
        self._left[claim] = key

    def left(self) -> Iterator[dict[str, str]]:
        """Return the claims whose senders have gone, with their keys, as many at a time as fit into a statement."""
        return map(dict, pages_of(list(self._left.items())))

    def forget_left(self, claims: Mapping[str, str]) -> None:
        """Forget claims of `left` whose rows have an outcome by now."""
        for claim in claims:
            self._left.pop(claim, None)

    def unanswered(self) -> Iterator[dict[str, str]]:
        """Return the claims that had no answer, with their keys, as many at a time as fit into a statement.

        Each is among them for ten minutes: it may still be executed, or be executed once more.
        """
        oldest = asyncio.get_running_loop().time() - _DOUBT_SECONDS
        found = {claim: key for claim, (key, _) in self._unanswered.items()}
        self._unanswered = {claim: entry for claim, entry in self._unanswered.items() if entry[1] >= oldest}
        return map(dict, pages_of(found.items()))
