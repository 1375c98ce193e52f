"""The service: a real server that misbehaves as a plan says, and knows who sent what, and which agents were started."""

import json
from typing import Any

from agentjobs_async.testing import Emulator, RandomScripts
from tests.simulation.postgresql.plan import KEY, Plan
from tests.simulation.postgresql.records import Agent, Request


async def misbehave(emulator: Emulator, plan: Plan) -> None:
    """Begin with the faults of a plan."""
    for prompt, fault in plan.faults:
        await emulator.inject(fault, prompt=prompt)


def service_of(plan: Plan) -> Emulator:
    """Return the service of a plan, not started yet."""
    scripts = RandomScripts(seed=plan.seed, shortest=0.05, longest=plan.longest, failed=0.15, archived=0.1)
    return Emulator(api_key=KEY, script=scripts, latency=plan.latency)


def requests_of(emulator: Emulator) -> tuple[Request, ...]:
    """Return the requests that have arrived, but for what is neither a create nor a read of a job."""
    return tuple(
        Request(
            one.at,
            one.headers["User-Agent"],
            "create" if one.method == "POST" else "poll",
            one.project_id,
            subject,
            None if one.fault is None or one.fault.startswith("ok") else one.fault,
            _extra(one.body) if one.method == "POST" else None,
        )
        for one in emulator.requests
        if one.project_id is not None and (subject := one.job_id or one.prompt) is not None
    )


def _extra(body: bytes) -> dict[str, Any] | None:
    fields = json.loads(body)
    del fields["prompt"]
    return fields or None


def agents_of(emulator: Emulator) -> tuple[Agent, ...]:
    """Return the agents that were started."""
    return tuple(
        Agent(
            job.job_id,
            job.prompt,
            job.project_id,
            job.started_at,
            job.started_at + job.script.duration,
            job.script.outcome,
        )
        for job in emulator.jobs.values()
    )
