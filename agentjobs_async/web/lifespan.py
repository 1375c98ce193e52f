"""A lifespan for ASGI applications that have none of their own."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from traceback import format_exception
from typing import Any

from agentjobs_async import AgentJobsError
from agentjobs_async.web._asgi import Application, Receive, Send

__all__ = ["Lifespan"]


class Lifespan:
    """An ASGI application that keeps a block open from the start of its server to the end, for another application.

    For applications without a lifespan of their own, such as Django's. The server must support lifespans, as uvicorn,
    hypercorn and gunicorn with uvicorn's workers do.

    Args:
        app: The application.
        lifespan: A function without arguments that returns an async context manager, such as one that is decorated with
            `asynccontextmanager`. The block is entered in the server's event loop before the first request, and left
            after the last one. If it yields a mapping, that is added to the `scope["state"]` of each request. An error
            of entering it keeps the server from starting, which logs it.
    """

    def __init__(
        self,
        app: Application,
        lifespan: Callable[[], AbstractAsyncContextManager[Mapping[str, Any] | None]],
    ) -> None:
        self._app = app
        self._lifespan = lifespan
        self._state: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a request, or keep the block open."""
        if scope["type"] == "lifespan":
            await self._keep_open(receive, send)
            return
        scope.setdefault("state", {}).update(self._state)  # of this request alone
        await self._app(scope, receive, send)

    async def _keep_open(self, receive: Receive, send: Send) -> None:
        await receive()  # the server starts
        phase = "startup"
        try:
            async with self._lifespan() as state:
                self._state.update(state or {})
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()  # it has served its last request
        except Exception as error:  # noqa: BLE001 - the server is told, which logs it and ends
            await send({"type": f"lifespan.{phase}.failed", "message": _message(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


def _message(error: Exception) -> str:
    """Return an error of ours as its text, any other, which is a fault of the program, with its traceback."""
    if isinstance(error, AgentJobsError):
        return f"{type(error).__name__}: {error}"
    return "".join(format_exception(error))
