"""Templates of paths: text with placeholders such as `{project_id}`, checked before any address is known."""

import re
from string import Formatter
from typing import Final, Self

from attrs import frozen

from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError

PROJECT, JOB = "project_id", "job_id"
"""The placeholders of paths."""

_PATH_TEXT: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*")


@frozen
class PathTemplate:
    """A path with placeholders, optionally with a query string.

    Attributes:
        literals: The texts around the placeholders, one more than these.
        names: The placeholders, in order.
    """

    literals: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, name: str, template: object, *, allowed: frozenset[str], required: frozenset[str] = frozenset()
    ) -> Self:
        """Return the template of a text.

        Args:
            name: The setting's name, for error messages.
            template: The text.
            allowed: The placeholders that it may have.
            required: The placeholders that it must have.

        Raises:
            InvalidInputError: It does not start with exactly one slash, has a placeholder that is not `allowed`, lacks
                one of `required`, has `.` or `..` as a segment, or characters that no URL has.
        """
        literals, names = _split(name, template, allowed)
        missing = required - set(names)
        if missing:
            raise InvalidInputError(f"{name} must contain {{{min(missing)}}}: without it all jobs have one address")
        return cls(literals, names)


def _split(name: str, template: object, allowed: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    wanted = f"{name} must be a path such as /v2/agent/{{project_id}}/job"
    if not isinstance(template, str):
        raise InvalidInputError(f"{wanted}, not {type(template).__name__}")
    try:
        fields = list(Formatter().parse(template))
    except ValueError:
        fields = []
    literals, names = [""], []
    for literal, placeholder, specification, conversion in fields:
        literals[-1] += literal
        if placeholder is not None:
            if placeholder not in allowed or specification or conversion:
                raise InvalidInputError(
                    f"{name} may have only the placeholders {_listed(allowed)}, not {{{one_line(placeholder, 60)}}}"
                )
            names.append(placeholder)
            literals.append("")
    text = "".join(literals)
    if not text.startswith("/") or not literals[0].startswith("/") or not _PATH_TEXT.fullmatch(text):
        raise InvalidInputError(f"{wanted}: a slash first, then characters of a URL, no fragment")
    if literals[0].startswith("//"):
        raise InvalidInputError(f"{wanted}: with one slash first: two would begin the name of another host")
    if {".", ".."} & set(template.split("?")[0].split("/")):
        raise InvalidInputError(f"{wanted}: without . and .. as segments")
    return tuple(literals), tuple(names)


def _listed(names: frozenset[str]) -> str:
    return " and ".join(f"{{{name}}}" for name in sorted(names, reverse=True))


def create_template(text: object) -> PathTemplate:
    """Return the template of the path of creates.

    Raises:
        InvalidInputError: As of `PathTemplate.of`.
    """
    return PathTemplate.of("create_path", text, allowed=frozenset({PROJECT}))


def get_template(text: object) -> PathTemplate:
    """Return the template of the path of reads.

    Raises:
        InvalidInputError: As of `PathTemplate.of`.
    """
    return PathTemplate.of("get_path", text, allowed=frozenset({PROJECT, JOB}), required=frozenset({JOB}))
