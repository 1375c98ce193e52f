"""Templates of prompts and of other fields, filled from the fields of a record."""

import json
from collections.abc import Mapping
from string import Formatter
from typing import Any, Self

from attrs import frozen

from agentjobs_async import InvalidInputError


@frozen
class Template:
    """A template, such as `Document {title}: {body}`, filled from the fields of a record.

    Attributes:
        pieces: Pieces of text, each followed by the field of this name; `None` for no field.
    """

    pieces: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, text: str, option: str = "--prompt") -> Self:
        """Read a template: `{name}` stands for the field of this name, `{{` and `}}` for braces.

        Args:
            text: The template.
            option: What it was given to, for the error.

        Raises:
            InvalidInputError: A brace is not closed, or a name is empty or has a format.
        """
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            defect = str(error)
        else:
            is_plain = not any(name == "" or spec or conversion for _, name, spec, conversion in parsed)
            defect = "" if is_plain else "only {name} is possible, without a format"
        if defect:
            raise InvalidInputError(f"{option}: {defect}; write it like 'Document {{title}}', and {{{{ for a brace")
        return cls(tuple((literal, name) for literal, name, _, _ in parsed))

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that it needs."""
        return tuple(name for _, name in self.pieces if name is not None)

    def filled(self, fields: Mapping[str, Any]) -> str:
        """Return the text for a record; a field that is missing or `None` is an empty text."""
        return "".join(literal + field_text(fields, name) for literal, name in self.pieces)

    def value(self, fields: Mapping[str, Any]) -> Any:
        """Return what it makes of a record: the field itself where it is no more than `{name}`, else the text.

        Return `None` where one of its fields is missing, `None` or white space.
        """
        if not all(field_text(fields, name).strip() for name in self.names):
            return None
        match self.pieces:
            case (("", str(name)),):
                return fields[name]
        return self.filled(fields)


def field_text(fields: Mapping[str, Any], name: str | None) -> str:
    """Return the text of the field of this name; an empty one where it is missing or `None`."""
    value = None if name is None else fields.get(name)
    return "" if value is None else text_of(value)


def text_of(value: object) -> str:
    """Return the text of a field: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
