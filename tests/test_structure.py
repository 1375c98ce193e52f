"""The shape of the house: who knows whom, what is public, what an import costs."""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from importlib import import_module
from types import ModuleType

import pytest

import agentjobs_async
from agentjobs_async.testing import Emulator, JobScript
from tests.modules import (
    FILES,
    HOME,
    PACKAGE,
    imports_of,
    is_private,
    is_within,
    own_imports,
    room_of,
    text_of,
    tree_of,
)

ROOMS: dict[str, set[str]] = {
    "_version": set(),
    "_text": set(),
    "_extras": set(),
    "_deferred": set(),
    "errors": {"_deferred", "_text"},
    "_errors": {"errors"},
    "_loop": {"errors"},
    "_validation": {"_text", "errors"},
    "_extra": {"_text", "errors"},
    "_job_json": {"_validation", "errors"},
    "models": {"_job_json", "_text", "_validation", "errors"},
    "_dialect": {"_text", "_validation", "errors", "models"},
    "_documents": {"_validation", "_dialect", "errors", "models"},
    "policy": {"_validation", "errors", "models"},
    "telemetry": {"_deferred", "_text", "_validation", "errors", "models"},
    "learning": {"_text", "_validation", "errors", "models", "policy"},
    # One exchange, and when to ask: neither imports the other.
    "_http": {
        *("_dialect", "_documents", "_loop", "_errors", "_text", "_validation", "_version", "errors"),
        *("models", "telemetry"),
    },
    "_polling": {
        *("_deferred", "_documents", "_loop", "_errors", "_text", "_validation", "errors", "learning", "models"),
        *("policy", "telemetry"),
    },
    "tracker": {"_documents", "_polling", "errors", "models", "policy", "telemetry"},
    "session": {
        *("_dialect", "_extra", "_http", "_loop", "_polling", "_validation", "errors", "models"),
        *("policy", "telemetry"),
    },
    "": {
        *(
            "_dialect",
            "_http",
            "_polling",
            "_version",
            "errors",
            "learning",
            "models",
            "policy",
            "session",
            "telemetry",
        ),
        "tracker",
    },
    # From here on the public names, as a user imports them, and little else: `_text` cleans what is shown,
    # `_validation` checks numbers, `_loop` waits for tasks and refuses another loop, `telemetry` links traces,
    # `_polling` takes a share of the polls, `errors` has the reasons of an error and its text for a log, and `session`
    # the emulators' service.
    "batch": {
        *("", "_extra", "_extras", "_loop", "_polling", "_errors", "_text", "_validation", "errors", "learning"),
        *("session", "telemetry"),
    },
    "durable": {  # a followed job is a wait
        *("", "_extras", "_loop", "_polling", "_text", "_validation", "batch", "errors", "telemetry"),
    },
    "chat": {"", "_extras", "_loop", "_text", "_validation", "batch", "durable", "errors"},
    "engines": {"", "_extras", "_validation", "batch"},
    "web": {"", "_loop", "_text", "_validation", "errors"},
    "report": {
        *("", "_deferred", "_extras", "_text", "_validation", "batch"),
        "web",  # the live page sends server-sent events
    },
    "testing": {"", "_deferred", "_validation", "session"},
    "tracing": {"_extras", "_version", "errors", "telemetry"},
    "prometheus": {"_extras", "telemetry"},
    "cli": {
        *("", "_dialect", "_extra", "_http", "_loop", "_text", "_validation", "batch", "engines", "report", "session"),
        "testing",
    },
    "__main__": {"_extras", "_loop", "cli"},
}
"""The exact map: every room, and the rooms that it imports, all of them further up."""

# For the annotations of type checkers only, errors name the models that they carry.
TYPES_ONLY = {("errors", "models")}

PUBLIC_ROOMS = (
    "batch",
    "durable",
    "chat",
    "engines",
    "report",
    "web",
    "testing",
    "tracing",
    "prometheus",
    "cli",
    "__main__",
)
"""What the package's own import does not load."""

MOST_LINES_OF_CODE, MOST_LINES = 300, 500
"""Of a module: without docstrings, comments, blank lines and imports; and in all."""

MOST_MODULES = 17
"""Of a folder, without its `__init__`."""

IMPORTERS = {
    "aiohttp": {"_http.transport", "_http.connections", "testing", "report"},  # the client, its private parts; servers
    "cattrs": {"_documents"},
    "tenacity": {"policy", "learning.strategy", "_http.create"},  # strategies of polls; the tries of a create
    "yarl": {"_http"},  # addresses are made in urls, handed on by the others
    "sqlalchemy": {"batch._store", "batch._database"},
    "filelock": {"batch._database.file_lock"},
    "multidict": {"testing"},  # the headers that a handler gets are made of it
    "procrastinate": {"engines"},
    "psycopg": {"engines", "batch._database.listening"},  # the queue's errors, notifications; the rest is SQLAlchemy's
    "click": {"cli"},
    "jinja2": {"report.html"},  # imported when a page is written: the other formats need no extra
    "platformdirs": {"cli._input.own_journals"},
    "rich": {"cli._output.screen", "cli._output.live", "cli._output.columns"},
    "pydantic_core": {"_job_json"},  # imported when Pydantic asks for a schema: no dependency
    "opentelemetry": {"tracing"},
    "prometheus_client": {"prometheus"},
    "pytest": {"testing.pytest_plugin"},
    "pytest_asyncio": {"testing.pytest_plugin"},
}
"""Which rooms or modules may import a third-party library; every module may import attrs."""

# What modules share beyond their public names.
WITHIN_THE_PACKAGE = {
    "errors": {
        "JournalReason",
        "NotSentReason",
        "ProtocolReason",
        *("describe", "is_busy", "log_description", "log_text"),
        *("LASTING_SERVER_STATUSES", "SERVER_STATUSES"),
    },
    "batch.states": {
        *("ABANDON", "CORRECT", "CREATED", "CREATED_BY_KEY", "DOUBT", "END", "GONE", "HOLD", "NOTE", "REJECT"),
        *("RELEASE", "RETRY", "SEND_AGAIN", "SETTLE", "UNSENT"),
    },
    "models": {"Seen", "TERMINAL", "with_label"},
    "session": {"EMULATOR"},
    "web.events": {"HEARTBEAT", "frame"},
}


def loaded(module: str) -> ModuleType:
    return import_module(f"{PACKAGE}.{module}".rstrip("."))


def run(program: str, *arguments: str) -> str:
    """Run a program in a child that finds what we find, and nothing that a test run adds; give what it prints."""
    prologue = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", prologue + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert done.returncode == 0, done.stderr
    return done.stdout


def room_imports(room: str) -> set[str]:
    """Return the other rooms that a room imports."""
    return {
        room_of(target)
        for module in FILES
        if room_of(module) == room
        for target, _, for_types in own_imports(module)
        if not (for_types and (room, room_of(target)) in TYPES_ONLY)
    } - {room}


def test_rooms() -> None:
    """The map names every room and no other, and each room imports exactly the rooms that the map names."""
    assert {room: room_imports(room) for room in {room_of(module) for module in FILES}} == ROOMS


def test_layers() -> None:
    """A room imports only rooms further up, so that there is no circle."""
    order = list(ROOMS)
    assert {room: below for room in ROOMS if (below := ROOMS[room] - set(order[: order.index(room)]))} == {}


def test_exchange_and_polling_are_apart() -> None:
    """`_http` and `_polling` never import each other; both have an empty `__init__`."""
    assert "_polling" not in ROOMS["_http"]
    assert "_http" not in ROOMS["_polling"]
    assert FILES["_http"].read_text(encoding="utf-8") == FILES["_polling"].read_text(encoding="utf-8") == ""


def test_the_screen_of_the_command_line() -> None:
    """What draws on the screen knows no command: `cli._output` imports nothing of the room around it."""
    drawing = [module for module in FILES if is_within(module, "cli._output")]
    above = {(module, target) for module in drawing for target, _, _ in own_imports(module) if is_within(target, "cli")}
    assert {(module, target) for module, target in above if not is_within(target, "cli._output")} == set()


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def lines_of_code(module: str) -> int:
    """Count the lines of a module that hold more than docstrings, comments, blanks and imports."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text_of(module)).readline):
        if token.type not in layout:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and is_text(node.value)):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_modules_are_short() -> None:
    """No module has more than 300 lines of code, or 500 lines in all."""
    assert {module: lines for module in FILES if (lines := lines_of_code(module)) > MOST_LINES_OF_CODE} == {}
    assert {module: lines for module in FILES if (lines := len(text_of(module).splitlines())) > MOST_LINES} == {}


def test_folders_are_not_crowded() -> None:
    """A folder has at most 17 modules beside its `__init__`."""
    counts = Counter(path.parent.relative_to(HOME).as_posix() for path in FILES.values() if path.name != "__init__.py")
    crowded = {folder: count for folder, count in counts.items() if count > MOST_MODULES}
    assert crowded == {}


def test_private_modules_have_no_list_of_names() -> None:
    """No private module has an `__all__`: a leading underscore says as much."""
    found = [module for module in FILES if is_private(module) and "\n__all__ =" in text_of(module)]
    assert found == []


def in_circles(graph: dict[str, set[str]]) -> set[str]:
    """Return the modules that import themselves through others, and those that lead to such ones."""
    left = dict(graph)
    while free := [module for module, targets in left.items() if not targets & set(left)]:
        for module in free:
            del left[module]
    return set(left)


def test_no_module_imports_itself() -> None:
    """No module imports itself through others, except for annotations; in these two rooms not even for them."""
    targets = {module: list(own_imports(module)) for module in FILES}
    assert (
        in_circles({module: {to for to, _, for_types in targets[module] if not for_types} for module in FILES}) == set()
    )
    for room in ("_http", "_polling"):
        modules = [module for module in FILES if is_within(module, room)]
        assert in_circles({module: {to for to, _, _ in targets[module]} for module in modules}) == set(), room


def test_third_parties() -> None:
    """Each third-party library lives behind the rooms that the table names, most behind one file."""
    importers: dict[str, set[str]] = {}
    for module in FILES:
        for source, _, _ in imports_of(module):
            importers.setdefault(source.split(".")[0], set()).add(module)
    foreign = set(importers) - set(sys.stdlib_module_names) - {PACKAGE, "attrs"}
    assert foreign == set(IMPORTERS)
    for library in foreign:
        for module in importers[library]:
            assert any(is_within(module, room) for room in IMPORTERS[library]), (library, module)


def test_client_of_aiohttp() -> None:
    """Only the transport and its connections know aiohttp's client; the emulator and the live page know its server."""
    for module in FILES:
        for source, name, _ in imports_of(module):
            if source.split(".")[0] == "aiohttp" and not is_within(module, "_http"):
                assert (source, name) != ("aiohttp", ""), module
                assert not name.startswith("Client"), module
                assert name not in {"TCPConnector", "request"}, module


def test_public_names() -> None:
    """The package exports what the public face names, and nothing else, before and after the first use."""
    assert agentjobs_async.__all__ == sorted(agentjobs_async.__all__, key=isort_style)
    submodules = {room_of(module) for module in FILES}
    public = {name for name in dir(agentjobs_async) if not name.startswith("_")} - submodules
    assert {name for name in public if not hasattr(agentjobs_async, name)} == set()
    assert public | {"__version__"} == set(agentjobs_async.__all__)
    settled = {
        *("AgentJob", "AgentJobsSession", "CreateOutcome", "Dialect", "Estimate", "Event", "GetJob", "History"),
        *("Hook", "HttpTimeouts", "JobRef", "JobSource", "JobStatus", "JobTracker", "LoggingHook"),
        *("OnCancel", "OnUpdate", "PollBudget", "PollPolicy", "RetryStrategy", "SpanHook", "TrackerStats"),
        *("WaitResult", "WaitStrategy", "wait_for_job", "wait_learned", "DEFAULT_RETRY"),
        *("RunStarted", "RunEnded", "CreateStarted", "JobCreated", "CreateRetried", "CreateFailed"),
        *("JobPolled", "JobChanged", "PollFailed", "WaitStarted", "WaitEnded", "KeyRequested"),
        *loaded("errors").__all__,
    }
    assert public == settled


def test_the_modules_of_public_names() -> None:
    """The package names one module for each public name, the one where type checkers find it, and it has the name."""
    assert set(agentjobs_async._MODULES) == set(agentjobs_async.__all__) - {"__version__"}
    for name, module in agentjobs_async._MODULES.items():
        assert hasattr(loaded(module), name), name
    for_types = {name: module for module, name, is_for_types in own_imports("") if is_for_types}
    assert for_types.keys() == agentjobs_async._MODULES.keys()
    assert {name: module for name, module in for_types.items() if module != agentjobs_async._MODULES[name]} == {}


def isort_style(name: str) -> tuple[int, str]:
    """Constants first, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def names_of(module: str) -> list[str]:
    return list(getattr(loaded(module), "__all__", ()))


MODULES = [module for module in FILES if module not in {"", "_version", "__main__"}]


def test_all() -> None:
    """Every `__all__` is sorted, without doubles, and made of names that come from the module or its package."""
    wrong = {}
    for module in MODULES:
        names = names_of(module)
        values = {name: found for name in names if (found := getattr(loaded(module), name, None)) is not None}
        foreign = [
            name
            for name, value in values.items()
            if isinstance(value, type) and not value.__module__.startswith(loaded(module).__name__)
        ]
        if foreign or names != sorted(set(names), key=isort_style) or set(names) != set(values):
            wrong[module] = names
    assert wrong == {}


def test_shared_names() -> None:
    """What others take from a public module is in its `__all__`, but for what the table keeps within the package."""
    used: dict[str, set[str]] = {module: set() for module in FILES}
    for module in FILES:
        for target, name, _ in own_imports(module):
            if name:
                used[target].add(name)
    public = [module for module in MODULES if not is_private(module)]
    beyond = {module: names for module in public if (names := used[module] - set(names_of(module)))}
    assert beyond == WITHIN_THE_PACKAGE


def test_docstrings_begin_plainly() -> None:
    """No docstring begins with Give, Tell, Let, Take or Have: a caller wants to read what is returned or done."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    begins = ("Give ", "Tell ", "Let ", "Take ", "Have ")
    found = [
        f"{module}: {text.splitlines()[0]}"
        for module in FILES
        for node in ast.walk(tree_of(module))
        if isinstance(node, documented) and (text := ast.get_docstring(node) or "").startswith(begins)
    ]
    assert found == []


FACES = ["", *(room for room in ROOMS if room and not room.startswith("_")), "engines.procrastinate"]
ALONE = f"""
import importlib, json
failed = {{}}
for module in json.loads(sys.argv[1]):
    for name in [name for name in sys.modules if name.split(".")[0] == {PACKAGE!r}]:
        del sys.modules[name]
    try:
        importlib.import_module(f"{PACKAGE}.{{module}}".rstrip("."))
    except BaseException as error:
        failed[module] = repr(error)
print(json.dumps(failed))
"""


def test_lone_imports() -> None:
    """Each face of the package imports alone, without a warning."""
    assert json.loads(run(ALONE, json.dumps(FACES))) == {}


BESIDE_DEPENDENCIES = f"""
import aiohttp, attrs, cattrs, tenacity
before = set(sys.modules)
from {PACKAGE} import AgentJobsSession
print(*set(sys.modules) - before, sep="\\n")
"""


def test_light_import() -> None:
    """Importing the package loads its own modules and its dependencies: no extra, no server, no optional room."""
    modules = set(run(BESIDE_DEPENDENCIES).split())
    assert {name for name in modules if name.split(".")[0] != PACKAGE} == set()
    assert f"{PACKAGE}.session" in modules
    assert modules & {f"{PACKAGE}.{room}" for room in PUBLIC_ROOMS} == set()
    unused = ("telemetry.events", "telemetry.hooks", "telemetry.logging_hook", "learning")
    assert (
        modules & {f"{PACKAGE}.{module}" for module in (*unused, "_polling.as_completed", "_polling.updates")} == set()
    )


FIRST_JOB = f"""
import asyncio
from tenacity import wait_fixed
from {PACKAGE} import AgentJobsSession, PollPolicy
before = set(sys.modules)

async def main():
    async with AgentJobsSession(*sys.argv[1:], project_id="docs", policy=PollPolicy(wait=wait_fixed(0.01))) as session:
        job = await session.create_job("Say hello")
        print((await session.wait_for_job(job)).status)

asyncio.run(main())
loaded = set(sys.modules) - before
print(*(name for name in loaded if name.split(".")[0] in {{{PACKAGE!r}, "attrs", "cattrs", "tenacity"}}))
"""


def test_nothing_is_loaded_by_a_first_job() -> None:
    """What a create and a wait use has been imported with the session: neither pays for it later."""
    with Emulator.in_thread(script=JobScript(duration=0.01)) as emulator:
        assert run(FIRST_JOB, emulator.base_url, emulator.api_key).split() == ["completed"]


@pytest.mark.parametrize("name", ["JobTracker", "wait_for_job", "History"])
def test_waits_do_without_http(name: str) -> None:
    """A program that reads jobs its own way, or only keeps durations, loads no session and no HTTP client."""
    modules = set(run(f"from {PACKAGE} import {name}; print(*sys.modules, sep='\\n')").split())
    assert f"{PACKAGE}.{agentjobs_async._MODULES[name]}" in modules
    http = ("aiohttp", "yarl", f"{PACKAGE}._http", f"{PACKAGE}.session")
    assert {module for module in modules if module.startswith(http)} == set()


def test_a_batch_is_loaded_when_used() -> None:
    """What a batch speaks of, such as its items and limits, loads no database; a journal does."""
    light = "BatchItem, BatchResult, Limits, JournalRow, Outcome, Rate, Rows, State, Where, check_items"
    importing = f"import {PACKAGE}.batch as batch; from {PACKAGE}.batch import {light}"
    is_loaded, *names = run(f"{importing}; print('sqlalchemy' in sys.modules, *dir(batch))").split()
    assert is_loaded == "False"
    assert set(names_of("batch")) - set(names) == set()


def test_a_file_does_without_a_server() -> None:
    """The rooms of a journal in a file load neither PostgreSQL's dialect nor the part of SQLAlchemy for event loops."""
    modules = set(run(f"from {PACKAGE}.batch import *; print(*sys.modules, sep='\\n')").split())
    assert "sqlalchemy" in modules
    assert modules & {"sqlalchemy.dialects.postgresql", "sqlalchemy.ext.asyncio", "sqlalchemy.orm", "psycopg"} == set()
