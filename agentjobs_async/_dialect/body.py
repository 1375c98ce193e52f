"""The template of a create's body: an object whose texts "{prompt}" and the like are replaced, each as a whole."""

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError

_PROMPT, _PROJECT = "{prompt}", "{project_id}"
_EXTRA: Final = re.compile(r"\{extra\.([^{}]+)\}")
_PLACEHOLDER_LIKE: Final = re.compile(r"\{[A-Za-z_][^{}\s\"']*\}")
_WHOLE_PLACEHOLDER: Final = re.compile(r'("\{prompt\}"|"\{project_id\}")')  # in JSON: no longer text may hold one
_PLAIN_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)  # json.dumps would make one for each create
_LEFT_OUT: Final = object()
_MOST_LEVELS: Final = 32


class BodyTemplate:
    """The checked template of a create's body.

    Args:
        body: The object: JSON, with the texts "{prompt}", "{project_id}" and "{extra.NAME}" as placeholders.

    Attributes:
        extras: The names of the extras that have a placeholder.
        taken: The names of its fields that no extra may have; a name in `extras` is none of them.

    Raises:
        InvalidInputError: It is no JSON object, has no "{prompt}", or has a placeholder that is none of these, that is
            a part of a longer text, or that is a name.
    """

    def __init__(self, body: object) -> None:
        self._body: dict[str, Any] = thawed(frozen_body(body))
        texts = [text for text, is_name in _texts(self._body) if not is_name]
        for text, is_name in _texts(self._body):
            _check_text(text, is_name=is_name)
        if _PROMPT not in texts:
            raise InvalidInputError(f'body must contain "{_PROMPT}" as a text of its own: without it no prompt is sent')
        try:
            _PLAIN_JSON.encode(self._body)
        except ValueError:
            is_json = False
        else:
            is_json = True
        if not is_json:
            raise InvalidInputError("body has an integer of thousands of digits: send it as a text")
        self.extras = frozenset(found[1] for text in texts if (found := _EXTRA.fullmatch(text)))
        self.taken = frozenset(self._body) - self.extras
        self._pieces = _WHOLE_PLACEHOLDER.split(_PLAIN_JSON.encode(self._body))

    def filled(self, prompt: str, project_id: str, extra: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """Return the body of one create in UTF-8: the placeholders replaced in one pass, each with its type.

        A field whose placeholder names a missing extra is left out. Extras that the body does not name are fields of
        the object itself.
        """
        values: dict[str, Any] = {_PROMPT: prompt, _PROJECT: project_id}
        if not extra and not self.extras:
            # Nothing is left out or added: most creates cost no encoder of their own.
            texts = {f'"{name}"': _PLAIN_JSON.encode(value) for name, value in values.items()}
            return "".join([texts.get(piece, piece) for piece in self._pieces]).encode()
        for name in self.extras:
            values[f"{{extra.{name}}}"] = extra.get(name, _LEFT_OUT)
        document = _filled(self._body, values)
        if extra:
            document |= {name: value for name, value in extra.items() if name not in self.extras}
        return _PLAIN_JSON.encode(document).encode()


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return values.get(value, value)
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        for name, member in value.items():
            filled = _filled(member, values)
            if filled is not _LEFT_OUT:
                members[name] = filled
        return members
    if isinstance(value, list):
        return [member for each in value if (member := _filled(each, values)) is not _LEFT_OUT]
    return value


def _texts(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield each text of a body, and whether it is the name of a member."""
    if isinstance(value, str):
        yield value, False
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name, True
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


def _check_text(text: str, *, is_name: bool) -> None:
    if not is_name and (text in {_PROMPT, _PROJECT} or _EXTRA.fullmatch(text)):
        return
    found = _PLACEHOLDER_LIKE.search(text)
    if found is None:
        return
    shown = one_line(found[0], 60)
    if is_name:
        raise InvalidInputError(f"body must have placeholders as values, not as names: {shown}")
    if found[0] in {_PROMPT, _PROJECT} or _EXTRA.fullmatch(found[0]):
        raise InvalidInputError(f"body must have {shown} as a whole text: a part of a longer text is not replaced")
    raise InvalidInputError(
        f'body may have only the placeholders "{_PROMPT}", "{_PROJECT}" and "{{extra.NAME}}", not {shown}'
    )


def frozen_body(body: object) -> Any:
    """Return the object of a body as one that can't be changed: objects as read-only mappings, arrays as tuples.

    Raises:
        InvalidInputError: It is no object, has more than 32 levels, or holds what JSON has not, or text that UTF-8
            can't encode.
    """
    if not isinstance(body, Mapping):
        raise InvalidInputError(f"body must be an object, a dict of JSON values, not {type(body).__name__}")
    return _frozen(body, 0)


def _frozen(value: object, level: int) -> Any:
    if level > _MOST_LEVELS:
        raise InvalidInputError(f"body must have at most {_MOST_LEVELS} levels")
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise InvalidInputError("body must have texts as the names of its members")
        return MappingProxyType({_encodable(name): _frozen(member, level + 1) for name, member in value.items()})
    if isinstance(value, list | tuple):
        return tuple(_frozen(member, level + 1) for member in value)
    if isinstance(value, str):
        return _encodable(value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise InvalidInputError(
        f"body must be JSON: dicts, lists, strings, finite numbers, booleans and None, not {type(value).__name__}"
    )


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        pass
    else:
        return text
    raise InvalidInputError("body has a lone surrogate, which UTF-8 can't encode")


def thawed(value: Any) -> Any:
    """Return what `frozen_body` returned as dicts and lists."""
    if isinstance(value, Mapping):
        return {name: thawed(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return [thawed(member) for member in value]
    return value
