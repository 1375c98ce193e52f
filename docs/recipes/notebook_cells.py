# %% [markdown]
# Jobs in a notebook: open this file in Jupyter (with Jupytext) or in VS Code, or copy the cells. A notebook runs in an
# event loop, so `await` works in every cell.

# %% One session for the whole notebook. Close it (last cell) before you run this cell again.
from agentjobs_async import AgentJobsSession, JobRef

session = AgentJobsSession()

# %% Each run of this cell starts an agent. Keep the token: it outlives the kernel.
job = await session.create_job("Document the v2 endpoints")
token = job.ref.to_token()
print(token)

# %% Each change, until the end. If you interrupt the kernel (Ctrl-C), the job continues: run this cell again.
async with session.updates(JobRef.from_token(token), timeout=None) as changes:
    async for job in changes:
        print(job.status, job.pr_link or "")

# %% Many jobs, as they end.
prompts = ["Fix the broken links", "Translate the glossary"]
jobs = [await session.create_job(prompt) for prompt in prompts]
async with session.as_completed(jobs) as results:
    async for result in results:
        print(result.ref.to_token(), result.error or result.job.status)

# %% At the end.
await session.aclose()
