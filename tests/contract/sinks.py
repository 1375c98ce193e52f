"""Where a key could come out: every text that an error, a job, a session or a log can be made to show."""

import asyncio
import base64
import io
import json
import logging
import pickle
import re
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, Final, Self
from urllib.parse import quote

import attrs

from agentjobs_async import AgentJob, AgentJobsError

_TESTS: Final = str(Path(__file__).parents[1])
_EMULATOR: Final = "agentjobs_async.testing"
_BEFORE: Final = (b"", b"x", b"xx", b"Bearer ")
_NOT_WALKED: Final = (
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    CodeType,
    asyncio.AbstractEventLoop,  # it leads to the server, which knows the key by right
    asyncio.Handle,
    logging.Logger,
)


def echoes_of(key: str) -> str:
    """Return a text that says a key in each of its forms."""
    coded = (base64.b64encode(before + key.encode()).decode() for before in _BEFORE)
    return " ".join((*_written(key), *coded))


def forms_of(key: str) -> tuple[str, ...]:
    """Return what a key looks like: plain, percent, JSON and base64, alone or behind something else."""
    forms = _written(key)
    for before in _BEFORE:
        coded = base64.b64encode(before + key.encode()).decode()[len(before) * 4 // 3 + 1 : -4]
        forms += [coded, coded.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(forms))


def _written(key: str) -> list[str]:
    raw = key.encode()
    hexed = "".join(f"%{byte:02X}" for byte in raw)
    escaped = "".join(f"\\u{byte:04x}" for byte in raw)
    forms = [key, quote(key, safe=""), hexed, hexed.lower(), escaped, escaped.replace("\\", "\\\\")]
    return [*forms, json.dumps(key)[1:-1], key.replace("/", "\\/")]


class Log(logging.Handler):
    """Collects what every logger says, at DEBUG; a context manager."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> Self:
        names = [None, *logging.root.manager.loggerDict, "agentjobs_async", "aiohttp.client", "asyncio"]
        self._levels = {logger: logger.level for logger in map(logging.getLogger, names)}
        for logger in self._levels:
            logger.setLevel(logging.DEBUG)
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_details: object) -> None:
        logging.getLogger().removeHandler(self)
        for logger, level in self._levels.items():
            logger.setLevel(level)


def leaks(key: str, ends: Iterable[object], log: Log) -> list[str]:
    """Return every place in which a form of the key is: in what calls ended with, and in the log."""
    found = re.compile("|".join(map(re.escape, forms_of(key)))).search
    ends = list(ends)
    sinks = [f"{type(end).__name__}: {sink}" for end in ends for sink, text in _shown(end) if found(text)]
    sinks += [path for path, text in _texts(ends) if found(text)]
    for record in log.records:
        told = logging.Formatter().format(record)
        sinks += [f"log of {record.name}" for text in (told, repr(record.args)) if found(text)]
        ours = record.args if record.name.startswith("agentjobs_async") else None
        sinks += [f"log of {record.name}{path}" for path, text in _texts((ours, record.exc_info)) if found(text)]
    return sinks


def _shown(end: object) -> Iterator[tuple[str, str]]:
    """Return what a value shows of itself when it is asked to."""
    yield "str", str(end)
    yield "repr", repr(end)
    if isinstance(end, AgentJob):
        yield "asdict", repr(attrs.asdict(end))
        yield "raw", json.dumps(end.raw) + json.dumps(end.raw, ensure_ascii=False)
    if isinstance(end, AgentJob | AgentJobsError):
        yield "pickle", pickle.dumps(end).decode("latin-1")
        yield "pickle of old", pickle.dumps(end, protocol=0).decode("latin-1")
    if isinstance(end, BaseException):
        yield "args", repr(end.args)
        yield "traceback", "".join(_told(end).format())


def _told(error: BaseException) -> traceback.TracebackException:
    """Return what a careful report says of an error, less the locals of the tests: they know the key by right."""
    told = first = traceback.TracebackException.from_exception(error, capture_locals=True, lookup_lines=False)
    while told is not None:
        told.stack[:] = [_without_source(frame) for frame in told.stack if not frame.filename.startswith(_TESTS)]
        told = told.__cause__ or told.__context__  # type: ignore[assignment]  # None ends it
    return first


def _without_source(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """Return a frame with its locals but without its line of source, which holds no key and takes long to mark up."""
    bare = traceback.FrameSummary(frame.filename, frame.lineno, frame.name, line="")
    bare.locals = frame.locals
    return bare


def _texts(root: object) -> Iterator[tuple[str, str]]:
    """Return all texts that can be reached from an object, each with the way to it."""
    seen: dict[int, object] = {}
    todo: deque[tuple[str, object]] = deque([("", root)])
    while todo:
        path, one = todo.popleft()
        if id(one) in seen or isinstance(one, _NOT_WALKED) or type(one).__module__.startswith((_EMULATOR, "tests.")):
            continue
        seen[id(one)] = one
        text = _text(one)
        if text is not None:
            yield path, text
        else:
            todo.extend((f"{path}.{name}", part) for name, part in _parts(one))


def _text(one: object) -> str | None:
    if isinstance(one, str):
        return one
    if isinstance(one, bytes | bytearray | memoryview):
        return bytes(one).decode("latin-1")
    if isinstance(one, io.BytesIO):
        return "" if one.closed else one.getvalue().decode("latin-1")
    return one.pattern if isinstance(one, re.Pattern) and isinstance(one.pattern, str) else None


def _parts(one: Any) -> Iterator[tuple[str, object]]:
    """Return what an object holds."""
    if isinstance(one, Mapping):
        for number, (name, value) in enumerate(_items(one)):
            yield f"key {number}", name
            yield f"[{name!r}]", value
    elif isinstance(one, list | tuple | set | frozenset | deque):
        yield from ((f"[{number}]", value) for number, value in enumerate(tuple(one)))
    elif isinstance(one, TracebackType):
        yield from _of_traceback(one)
    elif isinstance(one, FrameType):
        yield from _of_frame(one)
    elif isinstance(one, CoroutineType | GeneratorType):
        yield "frame", one.cr_frame if isinstance(one, CoroutineType) else one.gi_frame
    elif isinstance(one, MethodType):
        yield "__self__", one.__self__
    yield from _attributes(one)


def _items(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(mapping.items())
    except Exception:  # noqa: BLE001 - a strange mapping has nothing to show
        return []


def _of_traceback(one: TracebackType) -> Iterator[tuple[str, object]]:
    yield f"frame {one.tb_frame.f_code.co_name}", one.tb_frame
    yield "tb_next", one.tb_next


def _of_frame(frame: FrameType) -> Iterator[tuple[str, object]]:
    """Return the locals, but not those of the tests, nor of who called them: they know the key by right."""
    if not frame.f_code.co_filename.startswith(_TESTS):
        yield from dict(frame.f_locals).items()


def _attributes(one: Any) -> Iterator[tuple[str, object]]:
    if isinstance(one, BaseException):
        yield "args", one.args
        yield "cause", one.__cause__
        yield "context", one.__context__
        yield "traceback", one.__traceback__
    yield from dict(getattr(one, "__dict__", None) or {}).items()
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            mangled = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            yield name, getattr(one, mangled, None)
