# %% [markdown]
# Jobs in a notebook: open this file in Jupyter (with Jupytext) or in VS Code, or copy the cells. A notebook runs in an
# event loop, so `await` works in every cell.
#
# Before you start Jupyter, run `pip install 'agentjobs-async[cli]'`, and set the environment variables
# AGENTJOBS_BASE_URL, AGENTJOBS_API_KEY and AGENTJOBS_PROJECT_ID.

# %% One session for the whole notebook. Close it (last cell) before you run this cell again.
from agentjobs_async import AgentJobsSession, JobRef
from agentjobs_async.batch import BatchItem, Journal, run_batch

session = AgentJobsSession()

# %% One job. Each run of this cell starts an agent. Keep the token, which outlives the kernel.
job = await session.create_job("Document the v2 endpoints")
token = job.ref.to_token()
print(token)

# %% Show each change of that job, until its end. You may interrupt this cell and run it again: the job continues.
async with session.updates(JobRef.from_token(token), timeout=None) as changes:
    async for job in changes:
        print(job.status, job.pr_link or "")

# %% Many jobs, each under a key of your own. A file, the journal, records them. So you may interrupt the next cell and
# run it again, even after a restart of the kernel: it continues, and starts no agent twice.
prompts = {"links": "Fix the broken links", "glossary": "Translate the glossary"}
items = [BatchItem(key, prompt) for key, prompt in prompts.items()]

# %% Create the jobs that are not created yet, and show how each one ends.
async with Journal.open("notebook.db") as journal, run_batch(session, items, journal=journal, timeout=None) as results:
    async for result in results:
        print(result.item.key, result.outcome)

# %% Show all items of the journal. If a create was interrupted, its item is `unknown`: an agent may have been started.
# Look for its job at the service, then settle the item in a terminal by `agentjobs resolve notebook.db`.
async with Journal.open("notebook.db") as journal:
    async for row in journal.rows():
        print(row.key, row.state, row.pr_link or row.error or "")

# %% Close the session at the end.
await session.aclose()
