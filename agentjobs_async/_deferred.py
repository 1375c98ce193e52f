"""Types of annotations whose modules are imported when a program asks for its types, and not before."""

from typing import ForwardRef


def deferred(module: str, name: str) -> ForwardRef:
    """Return a reference to a class for annotations; `typing.get_type_hints` imports its module, and gives the class.

    It stands in the `else` of an `if TYPE_CHECKING`, under the name that is imported for type checkers there.
    """
    return ForwardRef(f"__import__({module!r}, fromlist=[{name!r}]).{name}")
