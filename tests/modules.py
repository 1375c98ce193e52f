"""The modules of the package, as their sources show them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import agentjobs_async

HOME = Path(agentjobs_async.__file__).parent
PACKAGE = HOME.name
FILES = {
    ".".join(path.relative_to(HOME).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in sorted(HOME.rglob("*.py"))
}
"""Every module by its name within the package; the package itself is the empty name."""


def room_of(module: str) -> str:
    return module.partition(".")[0]


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def is_private(module: str) -> bool:
    """Return whether no program imports a module: by its name, or since it is a part of the command line."""
    return any(part.startswith("_") for part in module.split(".")) or module.startswith("cli.")


@cache
def text_of(module: str) -> str:
    return FILES[module].read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module))


@cache
def imports_of(module: str) -> frozenset[tuple[str, str, bool]]:
    """Return what a module imports as (module, name, whether for types only), wherever in the file it does so."""
    tree = tree_of(module)
    typing_blocks = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    for_types = {id(node) for block in typing_blocks for node in ast.walk(block)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "", id(node) in for_types) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name, id(node) in for_types) for alias in node.names}
    return frozenset(found)


def own_imports(module: str) -> Iterator[tuple[str, str, bool]]:
    """Return what a module imports from this package: (module, name, whether for types only)."""
    for source, name, for_types in imports_of(module):
        if source.split(".")[0] == PACKAGE:
            inner = source.removeprefix(PACKAGE).lstrip(".")
            submodule = f"{inner}.{name}".strip(".")
            yield (submodule, "", for_types) if submodule in FILES else (inner, name, for_types)
