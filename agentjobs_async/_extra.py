"""The extra of a create: more fields of its JSON object, checked once for the session, the journal and the shell."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError

_MAX_EXTRA_BYTES: Final = 16_384  # a row of a table; 100,000 items may have one
_NOT_JSON: Final = "extra must be JSON: text as names; dicts, lists, Unicode text, finite numbers, booleans and None"


def checked_extra(value: object, *, fields: Collection[str] = ()) -> dict[str, Any]:
    """Return a deep copy of `value`, more fields of a create's JSON object.

    Args:
        value: A mapping of the fields, by their names; the values are what `json` makes of JSON: dicts, lists, strings,
            finite numbers, booleans and `None`.
        fields: The fields that the object has already, which an extra may not name.

    Raises:
        InvalidInputError: `value` is no mapping; is not JSON, such as with a name that is no string, an infinite number
            or a lone surrogate; has more than 16 KiB as JSON; or names one of `fields`. It quotes no value.
    """
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"extra must be a dict, as of a JSON object, not {type(value).__name__}")
    try:
        given = dict(value)
        text = _canonical(given)
        copy, size = json.loads(text), len(text.encode())
        is_same = copy == given
    except (TypeError, ValueError, RecursionError):
        is_same = False
    # Raised outside of the handler: inside of it, an error that may quote the extra would become its context.
    if not is_same:
        raise InvalidInputError(_NOT_JSON)
    if size > _MAX_EXTRA_BYTES:
        raise InvalidInputError(f"extra must have at most {_MAX_EXTRA_BYTES} bytes as JSON, not {size}")
    if taken := sorted(given.keys() & fields):
        raise InvalidInputError(
            f"extra must not have {one_line(taken[0], 60)!r}: the body of a create has that field already"
        )
    return dict(copy)


def extra_text(extra: Mapping[str, Any] | None) -> str | None:
    """Return an extra as the journal stores it: JSON with sorted names, without spaces; `None` without any field.

    Equal texts are equal extras: the order in which the fields were given doesn't count.
    """
    return _canonical(dict(extra)) if extra else None


def _canonical(extra: dict[str, Any]) -> str:
    return json.dumps(extra, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
