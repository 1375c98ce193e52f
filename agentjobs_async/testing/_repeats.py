"""The creates that the service remembers by their idempotency keys."""

from typing import Final

import attrs

from agentjobs_async.testing._messages import Answer, error

CreateKey = tuple[str, str]
"""The project of a create and its idempotency key. The API key is the same for all creates."""

_CONFLICT: Final = error(409, "a create with this idempotency key is under way")
_OTHER_BODY: Final = error(422, "this idempotency key was used with another body")


@attrs.frozen
class _Remembered:
    body: bytes
    answer: Answer
    at: float


class RememberedCreates:
    """Remembers creates that started an agent.

    Args:
        seconds: How long it remembers one.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._remembered: dict[CreateKey, _Remembered] = {}
        self._under_way: dict[int, CreateKey] = {}
        """The creates that are not answered yet, by their connections."""

    def repeated(self, key: CreateKey, body: bytes, now: float) -> Answer | None:
        """Return the answer to a repetition; `None` if no create with this key is remembered.

        That is the first answer again; 422 for another body; 409 while the first is not answered.
        """
        known = self._remembered.get(key)
        if known is None or now - known.at >= self._seconds:
            return None
        if known.body != body:
            return _OTHER_BODY
        return _CONFLICT if key in self._under_way.values() else known.answer

    def remember(self, key: CreateKey, body: bytes, answer: Answer, now: float, connection: int) -> None:
        """Remember a create; it is under way until its connection is `answered`."""
        self._remembered[key] = _Remembered(body, answer, now)
        self._under_way[connection] = key

    def answered(self, connection: int) -> None:
        """Record that the request on a connection is under way no more."""
        self._under_way.pop(connection, None)
