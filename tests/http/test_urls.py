"""Where a request goes, whatever the ids hold."""

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from agentjobs_async._dialect.templates import create_template, get_template
from agentjobs_async._http.urls import UrlTemplate, checked_base_url
from agentjobs_async.errors import InvalidInputError
from tests.ids import LEGAL_IDS
from tests.rows import failures

BASE = URL("https://api.example.com/own")
DEFAULT = "/v2/agent/{project_id}/job/{job_id}"


def template(text: Any, base: URL = BASE) -> UrlTemplate:
    return UrlTemplate(base, get_template(text))


def test_base_url() -> None:
    """An https address is accepted, and plain http to loopback; its own path stays without a slash at its end."""
    bases = {
        "https://api.example.com": "https://api.example.com",
        "https://api.example.com//": "https://api.example.com",
        "HTTPS://API.Example.com:8443/own/path/": "https://api.example.com:8443/own/path",
        "https://api.example.com/a%2Fb": "https://api.example.com/a%2Fb",
        "https://api.example.com/@you": "https://api.example.com/@you",
        "https://[2001:db8::1]:444/x": "https://[2001:db8::1]:444/x",
        "http://localhost:8080": "http://localhost:8080",
        "http://127.9.9.9:1/x": "http://127.9.9.9:1/x",
        "http://[::1]:80": "http://[::1]",
    }
    assert {value: str(checked_base_url(value)).rstrip("/") for value in bases} == bases


NO_BASE_URLS: list[tuple[object, str]] = [
    (None, "must be a string, not NoneType"),
    (b"https://a", "must be a string, not bytes"),
    ("", "an address such as https://api.example.com: it is empty"),
    ("api.example.com", "http or https, and a host"),
    ("localhost:8080", "http or https, and a host"),
    ("https:///path", "http or https, and a host"),
    ("ftp://api.example.com", "http or https, and a host"),
    ("https://api.example.com:99999", "http or https, and a host"),
    ("https://api.example.com:0", "http or https, and a host"),
    ("https://[::1", "http or https, and a host"),
    ("https://api example.com", "without spaces"),
    ("https://api.example.com\n", "without spaces, backslashes or control"),
    ("https://api.example.com\\@evil", "backslashes"),
    ("https://api.example.com/\x85", "control characters"),
    ("https://api.example.com/\ud800", "control characters"),
    ("https://api.example.com/?", "no query and no fragment"),
    ("https://api.example.com/#", "no query and no fragment"),
    ("https://user:marmalade@api.example.com", "no user name or password; pass the key as api_key"),
    ("https://@api.example.com", "no user name or password"),
    ("http://api.example.com", "use https, or pass allow_insecure=True"),
    ("http://localhost.example.com", "plain text to localhost.example.com"),
    ("http://0.0.0.0:80", "plain text to 0.0.0.0"),
    ("http://[::2]", "plain text to ::2"),
]


def test_no_base_url() -> None:
    """Anything else is refused, with what was wrong and what would be right, never quoting a password."""

    def check(value: object, words: str) -> None:
        with pytest.raises(InvalidInputError, match=r"^base_url ") as caught:
            checked_base_url(value)
        assert words in str(caught.value)
        assert "marmalade" not in str(caught.value)
        assert caught.value.__context__ is None

    assert failures(check, *NO_BASE_URLS) == {}


def test_insecure() -> None:
    """Plain http to any host is there for who asks for it."""
    assert str(checked_base_url("http://10.0.0.1:81/x", allow_insecure=True)) == "http://10.0.0.1:81/x"


@given(st.text(max_size=30) | st.text(st.sampled_from("htps:/@?#[]\\.%0a1:é\u2100\u3002")).map("https://".__add__))
@example("https://\u2100.com")
@example("https://xn--a")
@example("https://a..b")
def test_any_base_url(text: str) -> None:
    """Any text is an address of a host without userinfo, query and fragment, or an InvalidInputError."""
    try:
        url = checked_base_url(text)
    except InvalidInputError:
        return
    assert url.host
    assert (url.user, url.password, url.raw_query_string, url.raw_fragment) == (None, None, "", "")


def test_template() -> None:
    """A template may have any placeholders that it knows, anywhere, in a query too; ids are percent-encoded."""
    paths = {
        DEFAULT: "/own/v2/agent/p%2F1/job/j%3F%23",
        "/jobs/{job_id}/": "/own/jobs/j%3F%23/",
        "/x-{job_id}.json": "/own/x-j%3F%23.json",
        "/jobs?id={job_id}&in={project_id}": "/own/jobs?id=j%3F%23&in=p%2F1",
        "/jobs/{job_id}?full=yes&x": "/own/jobs/j%3F%23?full=yes&x",
        "/a//{job_id}": "/own/a//j%3F%23",
        "/%7Ba%7D/{job_id}": "/own/%7Ba%7D/j%3F%23",
        "/{job_id}/{job_id}": "/own/j%3F%23/j%3F%23",
    }
    assert {text: template(text).url("p/1", "j?#").raw_path_qs for text in paths} == paths
    assert {template(text).url("p/1", "j?#").origin() for text in paths} == {BASE.origin()}
    assert str(UrlTemplate(BASE, create_template("/jobs")).url("p")) == "https://api.example.com/own/jobs"


NO_TEMPLATES: list[tuple[object, str]] = [
    (None, "must be a path such as /v2/agent/{project_id}/job, not NoneType"),
    ("", "a slash first"),
    ("jobs/{job_id}", "a slash first"),
    ("{project_id}/jobs/{job_id}", "a slash first"),
    ("https://evil.example/{job_id}", "a slash first"),
    ("//evil.example/{job_id}", "one slash first"),
    ("/jobs/{job_id}#top", "no fragment"),
    ("/jobs/{job_id}\r\nX: y", "characters of a URL"),
    ("/jobs\\{job_id}", "characters of a URL"),
    ("/jöbs/{job_id}", "characters of a URL"),
    ("/{{x}}/{job_id}", "characters of a URL"),
    ("/jobs/{job_id", "a slash first"),
    ("/../{job_id}", "without . and .. as segments"),
    ("/{job_id}/.?x=y", "without . and .. as segments"),
    ("/jobs/{id}", "only the placeholders {project_id} and {job_id}, not {id}"),
    ("/jobs/{job_id}/{}", "only the placeholders"),
    ("/jobs/{job_id!r}", "only the placeholders"),
    ("/jobs/{job_id:>9}", "only the placeholders"),
    ("/jobs/{job_id.real}", "only the placeholders"),
    ("/jobs/{project_id}", "must contain {job_id}"),
]


def test_no_template() -> None:
    """Any other template is refused by its name, with what would be right."""

    def check(text: object, words: str) -> None:
        with pytest.raises(InvalidInputError, match=r"^get_path m(ust|ay) ") as caught:
            template(text)
        assert words in str(caught.value)
        assert str(caught.value).isprintable()

    assert failures(check, *NO_TEMPLATES) == {}


BASES = [BASE, URL("https://api.example.com"), URL("http://[::1]:8080/a/b")]


@given(st.sampled_from(BASES), LEGAL_IDS, LEGAL_IDS)
@example(BASE, "...", "%2e%2e")
@example(BASE, "../..", "//evil.example/")
@example(BASE, "a@evil.example", "?x=y#z")
def test_id_is_one_segment(base: URL, project_id: str, job_id: str) -> None:
    """An id never changes the path's depth, the query or the host, and arrives as it was: yarl does not rewrite it."""
    url = template(DEFAULT, base).url(project_id, job_id)
    for again in (urlsplit(str(url)), urlsplit(str(URL(str(url), encoded=True)))):
        assert (again.scheme, again.netloc) == (base.scheme, base.raw_authority)
        assert (again.query, again.fragment) == ("", "")
        own = [part for part in base.raw_path.split("/") if part]
        segments = again.path.split("/")[1:]
        assert segments[: len(own)] == own
        assert [unquote(part) for part in segments[len(own) :]] == ["v2", "agent", project_id, "job", job_id]
    assert url.raw_path_qs.isascii()
    assert not set(url.raw_path_qs) & set(" \r\n\t\\?#")


@given(st.sampled_from(BASES), LEGAL_IDS, LEGAL_IDS)
def test_id_is_one_value(base: URL, project_id: str, job_id: str) -> None:
    """In a query, an id never changes the other members, the path or the host."""
    url = template("/jobs?in={project_id}&id={job_id}&full=1", base).url(project_id, job_id)
    again = urlsplit(str(url))
    assert (again.netloc, again.fragment) == (base.raw_authority, "")
    assert again.path == url.raw_path == base.raw_path.rstrip("/") + "/jobs"
    assert again.query == url.raw_query_string
    members = [member.partition("=") for member in again.query.split("&")]
    assert [(name, unquote(value)) for name, _, value in members] == [("in", project_id), ("id", job_id), ("full", "1")]
