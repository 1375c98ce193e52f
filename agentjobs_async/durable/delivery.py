"""What a callback raises to say how its message fared: it can't be delivered, or not yet."""

from typing import Final

from agentjobs_async._validation import checked_seconds

__all__ = ["RetryLater", "Undeliverable"]

_SHORTEST_SECONDS: Final = 1.0  # a chat that answers 429 and "in 0 s" must not be asked without a pause
_LONGEST_SECONDS: Final = 3600.0  # whatever a chat asks for, what is untold is tried again within the hour


class Undeliverable(Exception):  # noqa: N818 - it says how a message fared, and no program handles it as an error
    """Raise it in `on_end` or `on_change` for what can never be delivered: the user has blocked the bot, or is gone.

    It is final: the text is logged as a warning, the end counts as told, and the callback is not called for it again.
    Within an `ExceptionGroup`, as of a `TaskGroup`, it is an error like any other: other messages may have been cut.
    """


class RetryLater(Exception):  # noqa: N818 - as above
    """Raise it in `on_end` for what can be delivered only later, such as at a chat's own 429.

    `on_end` is called again after this time, in place of the usual 1 s, 2 s, and so on. It is not logged. Within an
    `ExceptionGroup` it is an error like any other.

    Args:
        seconds: Seconds from 0 on; less than 1 counts as 1, more than 3600 as 3600.

    Attributes:
        seconds: Seconds until the next call.

    Raises:
        InvalidInputError: `seconds` is not a finite number from 0 on.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds: float = _bounded(checked_seconds("seconds", seconds, zero=True))


def _bounded(seconds: float) -> float:
    return min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
