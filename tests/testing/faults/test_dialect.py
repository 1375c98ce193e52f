"""Faults of a service with another dialect."""

import json
from datetime import UTC, datetime

from agentjobs_async import Dialect
from agentjobs_async.testing import Fault
from agentjobs_async.testing._dialect import served_dialect
from agentjobs_async.testing._faults.responses import apply_fault, forge, placeholders
from agentjobs_async.testing._messages import Answer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = placeholders("emk_1", "http://base", "http://foreign")
DIALECT = served_dialect(
    Dialect(fields={"id": "job.number", "status": "job.state", "pr_link": "links.0.href"}, integer_ids=True)
)
GOOD = Answer(201, {"job": {"number": 7, "state": "active"}, "links": [{"href": None}]})


def test_documents() -> None:
    """Fields are replaced and removed where the dialect has them."""
    documents = {
        "document id=8 status=paused": {"job": {"number": 8, "state": "paused"}, "links": [{"href": None}]},
        "missing:id": {"job": {"state": "active"}, "links": [{"href": None}]},
        "missing:prLink": {**GOOD.document, "links": [{}]},
        "document job.number=x": {"job": {"number": "x", "state": "active"}, "links": [{"href": None}]},
        "missing:links": {"job": GOOD.document["job"]},
    }
    shown = {text: json.loads(apply_fault(GOOD, Fault.parse(text), NOW, WORDS, DIALECT).body) for text in documents}
    assert shown == documents


def test_forged() -> None:
    """The second answer that no request asked for shows a job in the dialect."""
    fault = Fault.parse("surplus status=failed")
    document = json.loads(forge(GOOD, fault, NOW, WORDS, DIALECT).body)
    assert document == {"job": {"number": 1, "state": "failed"}, "links": [{"href": "http://foreign/pull/1"}]}
    assert json.dumps(document).encode() in apply_fault(GOOD, fault, NOW, WORDS, DIALECT).surplus


def test_a_name_twice() -> None:
    """The first member of a document without a `status` comes twice."""
    body = apply_fault(GOOD, Fault.parse("body:twice"), NOW, WORDS, DIALECT).body
    assert [name for name, _ in json.loads(body, object_pairs_hook=list)] == ["job", "job", "links"]
