"""What objects may do to each other: none writes a field of another, and few are handed a callable."""

import ast
import re

from tests.modules import FILES, room_of, tree_of

ROOMS_WITH_OWNERS = {"_http", "_polling", "batch", "durable"}
"""Where an object's fields are its own, and a reader follows methods by definitions."""

CALLABLES_OF_CONSTRUCTORS = {
    "_http.progress: before_send",  # the user's
    "batch._run.records: mask",
    "batch._store.opened: clock",
    "batch._store.rows: pages",
    "batch._store.store: clock",
    "batch.worker: on_result",
    "durable._callback: function",
}
"""Parameters of constructors that are callables. The list only gets shorter."""

WRITTEN_FROM_OUTSIDE = {
    "_http.create": {"error.outcome", "result.outcome"},
    "_http.responses": {"error.retry_after", "refusal.outcome"},
    "_http.transport": {
        "interrupted.__cause__",
        "interrupted.__context__",
        "received.body",
        "received.whole",
        "self._reads._retry_connection",
    },
    "_polling.reading": {"error.ref"},
    "batch._run.item_create": {
        "self.item.failures",
        "self.item.ref",
        "self.item.row",
        "self.item.spent_seconds",
    },
    "batch._run.item_run": {"item.over", "item.row", "item.watch"},
    "batch._run.slots": {"slot.left", "slot.taken"},
    "batch._run.tasks": {"item.phase", "running.phase"},
    "batch._database.writer": {"queue.connection", "queue.writer"},
    "durable._creates": {"item.over"},
    "durable._following": {
        "followed.earlier_polls",
        "followed.is_recorded",
        "followed.left",
        "followed.state",
        "followed.task",
        "followed.watch",
    },
    "durable.entry": {"error.outcome", "error.ref"},
}
"""Fields of other objects that a module writes. The list only gets shorter."""


def test_constructors_take_no_further_callable() -> None:
    """No constructor of these rooms is handed a callable, but for those that are listed."""
    found = {
        f"{module}: {argument.arg}"
        for module in FILES
        if room_of(module) in ROOMS_WITH_OWNERS
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.annotation is not None and "Callable[" in ast.unparse(argument.annotation)
    }
    assert found == CALLABLES_OF_CONSTRUCTORS


def written_fields(module: str) -> set[str]:
    """Return the fields of other objects that a module assigns to or deletes, as `name.field`."""
    written = {
        ast.unparse(node)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    }
    return {target for target in written if not re.fullmatch(r"(self|cls)\.\w+", target)}


def test_nobody_writes_another_objects_field() -> None:
    """In these rooms no object's field is written from outside the object, but for those that are listed."""
    modules = [module for module in FILES if room_of(module) in ROOMS_WITH_OWNERS]
    assert {module: fields for module in modules if (fields := written_fields(module))} == WRITTEN_FROM_OUTSIDE
