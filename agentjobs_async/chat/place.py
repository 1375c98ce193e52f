"""Where a command was written, and the key that its job has by that."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import asdict, field, frozen
from attrs.validators import optional

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import checked_name
from agentjobs_async.durable import user_key

__all__ = [
    "Place",
    "chat_prefix",
    "checked_id",
    "context_of",
    "is_to_be_told",
    "job_key",
    "place_of",
    "sent_again",
    "untold",
    "was_sent_again",
]

_IN_CONTEXT: Final = "place"
_IS_TOLD: Final = "is_told"
_SENT_AGAIN_BY: Final = "sent_again_by"
_MOST_BITS: Final = 64  # of a number: what chats have; Python refuses to write out thousands of digits


def checked_id(name: str, value: object) -> str:
    """Return an id of a chat as a string.

    Raises:
        InvalidInputError: It is neither a string nor a whole number, or can be no name.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidInputError(f"{name} must be a string or a whole number, not {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise InvalidInputError(f"{name} must not have more than 64 bits")
    return checked_name(name, str(value))


def _check_id(_place: object, attribute: Any, value: Any) -> None:
    checked_id(attribute.name, value)


@frozen
class Place:
    """Where a command was written, and where its answer and the end of its job are sent.

    The ids are strings or whole numbers, as the chat has them; `7` and `"7"` name the same user.

    Attributes:
        chat: The chat, channel or group.
        user: Who wrote the command.
        message: The command's message, or whatever the chat names one command by. It is unique in the chat, and the
            same where the chat delivers the command again. Users know their job by it.
        thread: The thread or topic in which the answer belongs; `None` without one.

    Raises:
        InvalidInputError: An id is neither a string nor a whole number; or is a string that is empty, has more than 512
            characters, or contains control characters or surrogates; or is a number of more than 64 bits.
    """

    chat: str | int = field(validator=_check_id)
    user: str | int = field(validator=_check_id)
    message: str | int = field(validator=_check_id)
    thread: str | int | None = field(default=None, validator=optional(_check_id))


def job_key(place: Place, message: str | int) -> str:
    """Return the key of the job that the user of a place has asked for there by a message.

    Raises:
        InvalidInputError: The ids are too long for a key.
    """
    return user_key(str(place.user), _in_chat(place, message))


def chat_prefix(place: Place) -> str:
    """Return what the keys of all jobs begin with that the user of a place has asked for in its chat."""
    return job_key(place, "")


def context_of(place: Place) -> dict[str, Any]:
    """Return the context of the job that is asked for at a place."""
    return {_IN_CONTEXT: asdict(place)}


def untold(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of a job whose end is not to be told: its user wants to hear no more of it."""
    return {**context, _IS_TOLD: False}


def is_to_be_told(context: Mapping[str, Any]) -> bool:
    """Return whether the end of a job with this context is to be told."""
    return context.get(_IS_TOLD) is not False


def sent_again(context: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return the context of an unknown job that an operator has sent again by a message."""
    return {**context, _SENT_AGAIN_BY: [*_sent_again_by(context), _in_chat(place, place.message)]}


def was_sent_again(context: Mapping[str, Any], place: Place) -> bool:
    """Return whether the job with this context was sent again by this very message."""
    return _in_chat(place, place.message) in _sent_again_by(context)


def _sent_again_by(context: Mapping[str, Any]) -> list[Any]:
    found = context.get(_SENT_AGAIN_BY)
    return found if isinstance(found, list) else []


def place_of(context: Mapping[str, Any] | None) -> Place | None:
    """Return the place at which a job with this context was asked for; `None` where it was no chat."""
    found = (context or {}).get(_IN_CONTEXT)
    if not isinstance(found, dict):
        return None
    try:
        return Place(**found)
    except (TypeError, InvalidInputError):  # of a program that has another meaning for this name
        return None


def _in_chat(place: Place, message: str | int) -> str:
    """Return the name of a message among all chats: both ids, with the slashes in the chat's escaped."""
    chat = str(place.chat).replace("%", "%25").replace("/", "%2F")
    return f"{chat}/{message}"
