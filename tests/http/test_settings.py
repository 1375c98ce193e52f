"""The settings of a session: from its arguments or from the environment."""

import pytest

from agentjobs_async import AgentJobsSession, InvalidInputError
from tests.scripted import KEY, SERVICE, session_of


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not given comes from the environment; what is given goes before it."""
    monkeypatch.setenv("AGENTJOBS_BASE_URL", SERVICE)
    monkeypatch.setenv("AGENTJOBS_API_KEY", KEY)
    monkeypatch.setenv("AGENTJOBS_PROJECT_ID", "docs")
    assert repr(AgentJobsSession()) == f"<AgentJobsSession {SERVICE} project_id='docs' open>"
    assert "https://other.example project_id='x'" in repr(AgentJobsSession("https://other.example", project_id="x"))


@pytest.mark.parametrize("value", ["", None])
@pytest.mark.parametrize("name", ["base_url", "api_key"])
def test_missing(name: str, value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address or a key, the error names both ways to give it; an empty variable is as good as none."""
    variable = f"AGENTJOBS_{name.upper()}"
    if value is not None:
        monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError, match=rf"{name} is missing: pass {name}=.* or set {variable}"):
        session_of(**{name: None})


def test_all_missing() -> None:
    """All that is missing is named in one error."""
    with pytest.raises(InvalidInputError) as caught:
        AgentJobsSession()
    assert caught.value.message == (
        "base_url and api_key are missing: pass base_url=..., api_key=... or set AGENTJOBS_BASE_URL and"
        " AGENTJOBS_API_KEY in the environment"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("base_url", "api.example.com"), ("api_key", "marmalade jar"), ("project_id", "..")]
)
def test_environment_that_makes_no_sense(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting from the environment that makes no sense is refused with the variable's name, a key never quoted."""
    variable = f"AGENTJOBS_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError, match=rf"^{name} must .*\(it was read from {variable}\)$") as caught:
        session_of(**{name: None})
    assert "marmalade" not in str(caught.value)
    assert caught.value.__context__ is None
