"""The ASGI application of a Django project that serves agent jobs. It replaces the one in your asgi.py.

pip install 'agentjobs-async[batch]' django uvicorn
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
uvicorn --ws none --app-dir docs/recipes django_project.asgi:application

curl localhost:8000/jobs -H 'X-User: ann' -H 'Idempotency-Key: links-1' --data 'Fix the links'
curl localhost:8000/jobs/links-1 -H 'X-User: ann'

The jobs are kept in the file jobs.db, or in the journal that JOURNAL names.

The server must support lifespans, as uvicorn and hypercorn do: `manage.py runserver` and daphne do not.

Django serves no web sockets, and each request for one is logged with a traceback. With `--ws none`, uvicorn refuses it;
hypercorn has no such option, so let your proxy refuse it there.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from django.core.asgi import get_asgi_application

from agentjobs_async import AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.web import BodyLimit, Lifespan, drain_on_signal

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_project.settings")


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, Any]]:
    async with (
        AgentJobsSession(project_id=os.environ["AGENTJOBS_PROJECT_ID"]) as session,
        drain_on_signal(session),  # at SIGTERM, ends waits and streams, for which the server waits
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal) as jobs,  # sends the planned jobs, and follows each one to its end
    ):
        yield {"jobs": jobs}


application = Lifespan(BodyLimit(get_asgi_application()), lifespan)  # 413 above 64 KiB, 408 after 25 s
