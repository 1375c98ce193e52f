# %% [markdown]
# Jobs in a notebook: open this file in Jupyter (with Jupytext) or in VS Code, or copy the cells. A notebook runs in an
# event loop, so `await` works in every cell.

# %% One session for the whole notebook. Close it (last cell) before you run this cell again.
from agentjobs_async import AgentJobsSession, JobRef

session = AgentJobsSession()

# %% Each run of this cell starts an agent: after an interrupt or an error, look at the service before you run it again.
# Keep the token: it outlives the kernel.
job = await session.create_job("Document the v2 endpoints")
token = job.ref.to_token()
print(token)

# %% Each change, until the end. If you interrupt the kernel (Ctrl-C), the job continues: run this cell again.
async with session.updates(JobRef.from_token(token), timeout=None) as changes:
    async for job in changes:
        print(job.status, job.pr_link or "")

# %% Many jobs: what is to be done, and what was created. To run this cell again forgets that.
prompts = ["Fix the broken links", "Translate the glossary"]
jobs = {}

# %% Each is kept once it is created: after an interrupt or an error, this cell continues with the next. First look
# at the service: the agent whose create was under way may have been started.
for prompt in prompts:
    if prompt not in jobs:
        jobs[prompt] = await session.create_job(prompt)
        print(jobs[prompt].ref.to_token(), prompt)

# %% Their ends, as they come. This cell may be interrupted and run again.
async with session.as_completed(list(jobs.values()), timeout=None) as results:
    async for result in results:
        print(result.ref.to_token(), result.error or result.job.status)

# %% At the end.
await session.aclose()
