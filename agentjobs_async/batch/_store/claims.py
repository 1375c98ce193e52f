"""The claims of a process whose outcomes it does not know."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

_DOUBT_SECONDS: Final = 600.0  # longer than any claim can stay under way in a connection that broke
_AT_ONCE: Final = 500  # in one statement: SQLite has a limit of parameters


@frozen
class NoRoom:
    """The limits of all owners, or a pause, let no create go now.

    Attributes:
        wait: Seconds after which there may be room.
        project_id: The only project whose creates have to wait; `None` when all have to.
    """

    wait: float
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
        return _slices(self._left)

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
        return _slices(found)


def _slices(claims: Mapping[str, str]) -> Iterator[dict[str, str]]:
    pairs = list(claims.items())
    return (dict(pairs[start : start + _AT_ONCE]) for start in range(0, len(pairs), _AT_ONCE))
