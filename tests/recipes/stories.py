"""What a user of any web recipe sees, told through the test client of its framework."""

from typing import Any

from agentjobs_async.testing import Emulator

GARBAGE = "/jobs/not.a.token"


def body(prompt: str, *, as_json: bool) -> dict[str, Any]:
    """Return how a test client sends a prompt."""
    return {"json": {"prompt": prompt}} if as_json else {"content": prompt}


def check_service(client: Any, emulator: Emulator, *, as_json: bool) -> None:
    """Create a job, wait for it, stream it, and meet each kind of error, through a client with the methods of HTTPX."""
    created = client.post("/jobs", **body("Go", as_json=as_json))
    assert created.status_code == 202
    path = f"/jobs/{created.json()['token']}"
    waited = client.get(path)
    assert (waited.status_code, waited.json()["status"]) == (200, "completed")
    streamed = client.get(f"{path}/events")
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert "event: job_end\n" in streamed.text
    assert (client.get(GARBAGE).status_code, client.get(f"{GARBAGE}/events").status_code) == (400, 400)
    assert client.post("/jobs", **body(" ", as_json=as_json)).status_code == 400
    emulator.call(emulator.inject("429 retry-after=3600 on=create then 500 on=create then 401 on=create"))
    refused, unknown, denied = (client.post("/jobs", **body("Try", as_json=as_json)) for _ in range(3))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3600")
    assert (unknown.status_code, unknown.json()["outcome"]) == (502, "unknown")
    assert (denied.status_code, denied.json()["error"]) == (502, "service_refused")
    assert emulator.agents_started["Go"] == 1
