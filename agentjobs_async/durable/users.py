"""The keys of users: each names one job of one user, and no other user can have it."""

import re
from typing import Final
from urllib.parse import quote, unquote

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import checked_count
from agentjobs_async.batch._store.durable_rows import User
from agentjobs_async.batch.items import checked_key

__all__ = ["checked_user", "own_key", "user_id_of", "user_key"]

_IN_A_KEY: Final = re.compile("[%\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_IN_A_USER: Final = re.compile("[/%\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What is escaped: what no key may have, `%`, and in a user's name what separates it from the key."""


def user_key(user: str, key: str) -> str:
    """Return the key of a job for a key that a user has chosen, such as an Idempotency-Key: `alice/4711`.

    It is safe with names and keys of any characters, and no two pairs of user and key have the same one: `%`, control
    characters and surrogates are percent-encoded, and in `user` the `/` as well.

    Args:
        user: Who the user is, by a name or id that never changes: at least 1 character.
        key: The user's own name for the job: at least 1 character.

    Raises:
        InvalidInputError: One of the two is not a string, or is empty; or what they make has more than 512 characters.
    """
    parts: dict[str, object] = {"user": user, "key": key}
    for name, value in parts.items():
        if not isinstance(value, str) or not value:
            raise InvalidInputError(f"{name} must be a string of at least 1 character, not {value!r:.100}")
    return checked_key(f"{_escaped(_IN_A_USER, user)}/{_escaped(_IN_A_KEY, key)}")


def user_id_of(user: str) -> str:
    """Return what the journal has of a user: the beginning of the user's keys.

    Raises:
        InvalidInputError: `user` is not a string of at least 1 character, or has more than keys can hold.
    """
    return user_key(user, "-").removesuffix("/-")


def own_key(user: str, key: str) -> str:
    """Return the key that a user has chosen, of one that `user_key` has made; any other key as it is."""
    beginning = f"{user_id_of(user)}/"
    if not key.startswith(beginning):
        return key
    rest = key.removeprefix(beginning)
    try:
        own = unquote(rest, errors="surrogatepass")
    except UnicodeDecodeError:  # its escapes stand for no text
        return key
    return own if own and _escaped(_IN_A_KEY, own) == rest else key


def _escaped(characters: re.Pattern[str], text: str) -> str:
    return characters.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), text)


def checked_user(user: str | None, most_open: int | None) -> User | None:
    """Return whose job is submitted.

    Raises:
        InvalidInputError: One of the two is invalid, or there is a limit and no user.
    """
    if most_open is not None:
        checked_count("most_open", most_open)
        if user is None:
            raise InvalidInputError("most_open is how many jobs a user may have under way: name the user as well")
    return None if user is None else User(user_id_of(user), most_open)
