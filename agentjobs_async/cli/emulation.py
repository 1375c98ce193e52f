"""The emulator behind a command, or alone."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from agentjobs_async import AgentJobsSession, InvalidInputError, PollPolicy
from agentjobs_async.cli.log_lines import LogLines
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.process import Context

if TYPE_CHECKING:
    from agentjobs_async.testing import Emulator, FaultPlan

__all__ = ["Notice", "emulate", "emulated_session"]

Notice = Callable[[str], None]

_PROJECT: Final = "demo"
_SPEED: Final = 60.0  # jobs of 1 to 5 minutes take 1 to 5 seconds
_POLL_DELAY_SECONDS: Final = 0.2  # the emulator is on the same machine


@asynccontextmanager
async def emulated_session(
    project_id: str | None, notice: Notice, settings: dict[str, Any]
) -> AsyncIterator[AgentJobsSession]:
    """Start an emulator, show that by `notice`, and open a session for it; both end with the block."""
    from agentjobs_async.testing import Emulator, RandomScripts  # noqa: PLC0415 - a web server, only where it is asked for

    policy = PollPolicy(wait=lambda _: _POLL_DELAY_SECONDS)
    async with Emulator(script=RandomScripts(), speed=_SPEED) as emulator:
        notice(f"Emulator at {emulator.base_url}: no real agents; jobs run {_SPEED:g} times as fast.")
        async with emulator.session(project_id=project_id or _PROJECT, policy=policy, **settings) as session:
            yield session


async def emulate(
    context: Context,
    port: int,
    speed: float,
    faults: str | None,
    failed: float,
    seed: int,
    *,
    polls_per_second: int | None,
    quiet: bool,
) -> int:
    """Run an emulator until a signal stops it; unless `quiet`, show each request on standard error.

    Args:
        context: The command's output and signals.
        port: The port; 0 chooses a free one.
        speed: The factor by which jobs run faster than real ones.
        faults: A fault plan, or `None`.
        failed: The share of jobs that fail, from 0 to 1.
        seed: The seed of the jobs' durations and ends.
        polls_per_second: The quota of polls, of all projects together; `None` for no quota.
        quiet: Whether to show no requests.

    Raises:
        InvalidInputError: The port is taken or not allowed, or `faults` is no plan.
    """
    from agentjobs_async.testing import Emulator, RandomScripts, RateLimit  # noqa: PLC0415 - a web server, only where it is asked for

    async with AsyncExitStack() as stack:
        script = RandomScripts(seed=seed, failed=failed)
        quota = None if polls_per_second is None else RateLimit(None, per=1.0, reads=polls_per_second)
        emulator = Emulator(port=port, speed=speed, script=script, rate_limit=quota, faults=_plan(faults or "ok"))
        try:
            await stack.enter_async_context(emulator)
        except OSError as error:
            defect = f"--port {port}: {os.strerror(error.errno or 0)}; give another one, 0 takes any that is free"
        else:
            if not quiet:
                stack.enter_context(LogLines(context.screen, "agentjobs_async.testing").shown())
            await _announced(context, emulator, speed)
            return ExitCode.COMPLETED
    raise InvalidInputError(defect)


def _plan(text: str) -> "FaultPlan":
    from agentjobs_async.testing import FaultPlan  # noqa: PLC0415 - a web server, only where it is asked for

    try:
        return FaultPlan.parse(text)
    except ValueError as error:
        defect = f"--fault: {error}; pydoc agentjobs_async.testing.Fault lists what there is"
    raise InvalidInputError(defect)


async def _announced(context: Context, emulator: "Emulator", speed: float) -> None:
    """Show the emulator's address and how to use it from another shell; wait until the command is asked to stop."""
    context.screen.notice(f"Emulator at {emulator.base_url}: jobs run {speed:g} times as fast; Ctrl-C stops it.")
    for name, value in emulator.environment(_PROJECT).items():
        context.screen.raw_line(f"export {name}={value}")
    await context.interruption.stop_requested()
