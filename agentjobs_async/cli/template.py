"""The template of a prompt, such as `Document {title}: {body}`, filled from the fields of a record."""

import json
from collections.abc import Mapping
from string import Formatter
from typing import Any, Self

from attrs import frozen

from agentjobs_async import InvalidInputError

__all__ = ["Template", "text_of"]


@frozen
class Template:
    """A template that was read.

    Attributes:
        pieces: Pieces of text, each followed by the field of this name; `None` for no field.
    """

    pieces: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a template: `{name}` stands for the field of this name, `{{` and `}}` for braces.

        Raises:
            InvalidInputError: A brace is not closed, a name is empty or has a format, or there is no name at all.
        """
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            defect = str(error)
        else:
            defect = ""
            if any(name == "" or spec or conversion for _, name, spec, conversion in parsed):
                defect = "only {name} is possible, without a format"
            elif all(name is None for _, name, _, _ in parsed):
                defect = "it names no column or field, so that all prompts would be the same"
        if defect:
            raise InvalidInputError(f"--prompt: {defect}; write it like 'Document {{title}}', and {{{{ for a brace")
        return cls(tuple((literal, name) for literal, name, _, _ in parsed))

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that it needs."""
        return tuple(name for _, name in self.pieces if name is not None)

    def filled(self, fields: Mapping[str, Any]) -> str:
        """Return the prompt of a record that has all of the fields."""
        return "".join(literal + ("" if name is None else text_of(fields[name])) for literal, name in self.pieces)


def text_of(value: object) -> str:
    """Return the text of a field: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
