"""The extra of creates, as `--extra NAME=TEMPLATE` says it: more fields of their JSON objects."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._extra import checked_extra
from agentjobs_async._text import one_line
from agentjobs_async.cli._input.templates import Template

TAKEN: Final = ("prompt",)
"""What no extra may name at the shell, whatever the dialect: it would be taken for the prompt."""

_SHOWN: Final = 60  # characters of what was typed, in a message


@frozen
class ExtraField:
    """One field.

    Attributes:
        name: Its name.
        template: What it is, for each record.
    """

    name: str
    template: Template

    @classmethod
    def of(cls, text: str) -> Self:
        """Read `NAME=TEMPLATE`.

        Raises:
            InvalidInputError: The name or the template is missing, or the template can't be read; or the name is that
                of the prompt.
        """
        name, _, template = text.partition("=")
        if not name or not template:
            raise InvalidInputError(
                f"{one_line(text, _SHOWN)} is no NAME=TEMPLATE, such as branch={{branch}}; is a variable unset?"
            )
        checked_extra({name: template}, fields=TAKEN)
        return cls(name, Template.of(template, one_line(name, _SHOWN)))


@frozen
class Extras:
    """All fields, each of another name."""

    fields: tuple[ExtraField, ...] = ()

    @classmethod
    def of(cls, fields: Sequence[ExtraField]) -> Self:
        """Return the fields of all options.

        Raises:
            InvalidInputError: Two have one name.
        """
        names = [field.name for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInputError(f"--extra {one_line(name, _SHOWN)} is given twice")
        return cls(tuple(fields))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns or fields of a record that they need."""
        return tuple(name for field in self.fields for name in field.template.names)

    def filled(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields for a record; those for which it has nothing are left out."""
        values = {field.name: field.template.value(record) for field in self.fields}
        return {name: value for name, value in values.items() if value is not None}

    def constants(self) -> dict[str, Any]:
        """Return the fields for a prompt that is no record.

        Raises:
            InvalidInputError: One of them needs a column.
        """
        for field in self.fields:
            if field.template.names:
                raise InvalidInputError(
                    f"--extra {one_line(field.name, _SHOWN)}: a PROMPT has no columns; give a text, {{{{ for a brace"
                )
        return checked_extra(self.filled({}), fields=TAKEN)
