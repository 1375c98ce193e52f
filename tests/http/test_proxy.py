"""Which proxy requests go through, what an error at it says, and that its password is shown nowhere."""

import asyncio
import copy
import pickle
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from yarl import URL

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    HttpTimeouts,
    InvalidInputError,
    NotSentError,
    PollPolicy,
    RejectedError,
    TransportError,
)
from agentjobs_async._http.proxy import DIRECT, Proxy, ProxySetting, checked_proxy, environment_entry
from agentjobs_async.testing import Emulator
from tests.contract.sinks import Log, leaks
from tests.http.tunnel import TunnelProxy
from tests.rows import failures, failures_in_turn
from tests.scripted import KEY, Reply, Scripted, address, http, job, loopback_socket, reply, session_of

HTTPS = URL("https://api.example.com")
PASSWORD = "marmalade/+p@ss"
USERINFO = "clerk:marmalade%2F%2Bp%40ss"
CREDENTIALS = "Basic Y2xlcms6bWFybWFsYWRlLytwQHNz"
PROXY = "http://proxy.corp:3128"
VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


ENTRIES: list[tuple[str, dict[str, str], str | None]] = [
    ("https://a.example", {}, None),
    ("https://a.example", {"https": PROXY}, "https"),
    ("https://a.example", {"https": PROXY, "all": PROXY, "http": PROXY}, "https"),
    ("https://a.example", {"http": PROXY}, None),
    ("http://a.example", {"http": PROXY, "https": PROXY}, "http"),
    ("http://a.example", {"https": PROXY}, None),
    ("https://a.example", {"all": PROXY}, "all"),
    ("https://a.example", {"ftp": PROXY}, None),
    # Loopback
    ("https://localhost", {"https": PROXY}, None),
    ("http://127.8.9.1:81", {"http": PROXY, "all": PROXY}, None),
    ("https://[::1]:8443", {"https": PROXY}, None),
    ("https://localhost.example", {"https": PROXY}, "https"),
    # NO_PROXY
    ("https://a.example", {"https": PROXY, "no": "*"}, None),
    ("https://a.example", {"https": PROXY, "no": "a.example"}, None),
    ("https://a.example", {"https": PROXY, "no": "b.example, A.Example"}, None),
    ("https://x.a.example", {"https": PROXY, "no": "a.example"}, None),
    ("https://x.a.example", {"https": PROXY, "no": ".a.example"}, None),
    ("https://xa.example", {"https": PROXY, "no": "a.example"}, "https"),
    ("https://a.example", {"https": PROXY, "no": "x.a.example,,"}, "https"),
    ("https://a.example:8443", {"https": PROXY, "no": "a.example:8443"}, None),
    ("https://a.example:8443", {"https": PROXY, "no": "a.example"}, None),
    ("https://x.a.example:8443", {"https": PROXY, "no": "a.example:8443"}, None),
    ("https://a.example:8443", {"https": PROXY, "no": "a.example:443"}, "https"),
    ("https://a.example", {"https": PROXY, "no": "a.example:443"}, None),
    ("http://a.example", {"http": PROXY, "no": "a.example:443"}, "http"),
    ("https://192.0.2.7:8443", {"https": PROXY, "no": "192.0.2.7"}, None),
    ("https://[2001:db8::7]:8443", {"https": PROXY, "no": "2001:db8::7"}, None),
    ("https://[2001:db8::7]:8443", {"https": PROXY, "no": "[2001:db8::7]:8443"}, None),
    ("https://[2001:db8::7]:8443", {"https": PROXY, "no": "2001:db8::8"}, "https"),
    ("https://b\u00fccher.example", {"https": PROXY, "no": "b\u00fccher.example"}, None),
    ("https://b\u00fccher.example", {"https": PROXY, "no": "xn--bcher-kva.example"}, None),
    ("https://a.example", {"all": "socks5://proxy", "no": "a.example"}, None),
]


def test_entries_of_the_environment() -> None:
    """The scheme of the service says which entry counts; loopback and hosts of NO_PROXY, with ports, have none."""

    def check(base: str, proxies: dict[str, str], entry: str | None) -> None:
        assert environment_entry(URL(base), proxies) == entry

    assert failures(check, *ENTRIES) == {}


def test_addresses() -> None:
    """A proxy is an http(s) address, http without a scheme; host and port are shown, a user and a password are not."""

    def check(value: str, url: str, name: str, credentials: str | None) -> None:
        proxy = checked_proxy("proxy", value, HTTPS)
        headers = {} if credentials is None else {"Proxy-Authorization": credentials}
        assert (str(proxy.url), proxy.name, proxy.tunnel_headers()) == (url, name, headers)
        assert (proxy.request_headers(), proxy.has_credentials) == ({}, bool(headers))
        assert repr(proxy) == f"<Proxy {name}>"

    rows = [
        (PROXY, PROXY, "proxy.corp:3128", None),
        (f"{PROXY}/", PROXY, "proxy.corp:3128", None),
        ("https://proxy.corp", "https://proxy.corp", "proxy.corp:443", None),
        ("proxy.corp:3128", PROXY, "proxy.corp:3128", None),
        (f"{USERINFO}@proxy.corp:3128", PROXY, "proxy.corp:3128", CREDENTIALS),
        (f"http://{USERINFO}@proxy.corp:3128", PROXY, "proxy.corp:3128", CREDENTIALS),
        ("http://us%C3%BCr@[2001:db8::1]", "http://[2001:db8::1]", "[2001:db8::1]:80", "Basic dXPDvHI6"),
    ]
    assert failures(check, *rows) == {}


def test_addresses_that_are_none() -> None:
    """Anything else is refused by the setting's name, with what would be right, and never quoted."""

    def check(value: object, words: str) -> None:
        with pytest.raises(InvalidInputError, match=r"^HTTPS_PROXY must be ") as caught:
            checked_proxy("HTTPS_PROXY", value, HTTPS)
        assert words in str(caught.value)
        assert "marmalade" not in str(caught.value)
        assert caught.value.__context__ is None

    rows: list[tuple[object, str]] = [
        (7, "a string, not int"),
        (b"http://proxy", "a string, not bytes"),
        ("", "it is empty"),
        ("marmalade", "neither a scheme nor a port"),
        ("clerk:marmalade@proxy.corp", "neither a scheme nor a port"),
        ("http://marmalade proxy", "without spaces"),
        ("ftp://clerk:marmalade@proxy", "http or https, and a host"),
        ("http:marmalade:3128", "http or https, and a host"),
        ("http://:3128", "http or https, and a host"),
        ("socks5://clerk:marmalade@proxy:1080", "SOCKS proxies are not supported"),
        ("SOCKS5h://marmalade", "SOCKS proxies are not supported"),
        ("socks:marmalade", "SOCKS proxies are not supported"),
    ]
    assert failures(check, *rows) == {}


def test_proxy_that_would_read_the_key() -> None:
    """With plain http, only a proxy on loopback gets the key, unless others may; each request then has its password."""
    loopback, proxy = URL("http://127.0.0.1:8080"), f"http://{USERINFO}@192.0.2.1:3128"
    with pytest.raises(InvalidInputError, match=r"proxy would get the key in plain text at 192\.0\.2\.1"):
        checked_proxy("proxy", proxy, loopback)
    asked = checked_proxy("proxy", proxy, loopback, allow_insecure=True)
    assert (asked.request_headers(), asked.tunnel_headers()) == ({"Proxy-Authorization": CREDENTIALS}, None)
    assert checked_proxy("proxy", "http://localhost:3128", loopback).name == "localhost:3128"


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`"env"` reads the variables as they are when the session is made, by the rules of the standard library."""

    def proxy_of(**variables: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return ProxySetting("env").proxy_to(HTTPS, allow_insecure=False).name

    assert proxy_of() == ""
    assert proxy_of(HTTPS_PROXY="upper:1") == "upper:1"
    assert proxy_of(HTTPS_PROXY="upper:1", https_proxy="http://lower:2") == "lower:2"
    assert proxy_of(HTTPS_PROXY="upper:1", https_proxy="") == ""
    assert proxy_of(HTTPS_PROXY="upper:1", no_proxy="example.com") == ""
    assert proxy_of(HTTPS_PROXY="upper:1", ALL_PROXY="socks5://other") == "upper:1"
    assert proxy_of(ALL_PROXY="socks5://other", NO_PROXY="example.com") == ""
    monkeypatch.setenv("HTTPS_PROXY", "upper:1")
    assert ProxySetting(None).proxy_to(HTTPS, allow_insecure=False) is DIRECT


def test_the_environment_of_cgi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a web server sets variables from headers, HTTP_PROXY is not read, and http_proxy is."""
    base = URL("http://a.example")
    monkeypatch.setenv("REQUEST_METHOD", "GET")
    monkeypatch.setenv("HTTP_PROXY", "evil:1")
    assert ProxySetting("env").proxy_to(base, allow_insecure=True) is DIRECT
    monkeypatch.setenv("http_proxy", "own:2")
    assert ProxySetting("env").proxy_to(base, allow_insecure=True).name == "own:2"


def test_variables_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SOCKS proxy, ALL_PROXY and a broken address are refused when the session is made; the variable is named."""

    def check(name: str, value: str, words: str) -> None:
        with monkeypatch.context() as patch, Log() as log:
            patch.setenv(name, value)
            with pytest.raises(InvalidInputError, match=f"^{name} {words}") as caught:
                session_of(proxy="env")
            assert leaks("marmalade", [caught.value], log) == []

    rows = [
        ("HTTPS_PROXY", "socks5://clerk:marmalade@proxy:1080", "must be .*: SOCKS proxies are not supported"),
        ("https_proxy", "socks5h:marmalade", "must be .*: SOCKS proxies are not supported"),
        ("HTTPS_PROXY", "marmalade", "must be .*: it has neither a scheme nor a port"),
        ("ALL_PROXY", "http://clerk:marmalade@proxy:3128", "is not read: .* HTTPS_PROXY, .* NO_PROXY, .* --proxy none"),
        ("all_proxy", "socks5://clerk:marmalade@proxy", "is not read: .*proxy=None"),
    ]
    assert failures(check, *rows) == {}


def test_not_copied() -> None:
    """What holds a password is neither pickled nor copied."""

    def check(duplicate: Callable[[object], object]) -> None:
        with pytest.raises(TypeError, match="never pickled or copied"):
            duplicate(Proxy(URL(f"http://{USERINFO}@proxy:1")))

    assert failures(check, pickle.dumps, copy.deepcopy, copy.copy) == {}


def server_of(authority: trustme.CA, name: str = "service.example") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def service_of(server: Scripted) -> str:
    """Return the address of a server under a name that only a proxy can resolve."""
    return server.base_url.replace("127.0.0.1", "service.example")


async def test_through_a_tunnel(
    authority: trustme.CA, client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creates and reads go through the environment's proxy, which gets its password and not the key."""
    replies = (job(), job("completed"))
    async with Scripted(*replies, ssl=server_of(authority)) as server, TunnelProxy(server.base_url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.with_password(USERINFO))
        async with session_of(base_url=service_of(server), ssl=client_tls, proxy="env") as session:
            created = await session.create_job("x")
            for _ in range(3):
                assert (await session.get_job(created)).succeeded
    port = server.base_url.rpartition(":")[2]
    assert [head.split("\r\n")[0] for head in proxy.heads] == [f"CONNECT service.example:{port} HTTP/1.1"] * 2
    for head in proxy.heads:
        assert f"\r\nProxy-Authorization: {CREDENTIALS}\r\n" in head
        assert KEY not in head
    assert [request.connection for request in server.requests] == [1, 2, 2, 2]
    for request in server.requests:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert "proxy-authorization" not in request.headers


async def test_plain_http_with_a_password() -> None:
    """A proxy of plain http gets its password with each request."""
    async with Scripted(job()) as proxy:
        settings = {"base_url": "http://a.example", "allow_insecure": True}
        async with session_of(**settings, proxy=proxy.base_url.replace("//", f"//{USERINFO}@")) as session:
            await session.get_job(await session.create_job("x"))
    assert [request.headers["proxy-authorization"] for request in proxy.requests] == [CREDENTIALS] * 2
    assert {request.headers["authorization"] for request in proxy.requests} == {f"Bearer {KEY}"}


async def test_a_proxy_that_echoes_its_password() -> None:
    """What a proxy of plain http says itself is masked: the password, alone and as its header has it."""
    echo = reply(407, {"error": f"{CREDENTIALS} {PASSWORD}"})
    async with Scripted(echo) as proxy:
        settings = {"base_url": "http://a.example", "allow_insecure": True}
        async with session_of(**settings, proxy=proxy.base_url.replace("//", f"//{USERINFO}@")) as session:
            for call in (session.get_job("job_1"), session.create_job("x")):
                with Log() as log, pytest.raises(RejectedError) as caught:
                    await call
                assert leaks(PASSWORD, [caught.value, session], log) == []
                assert leaks(CREDENTIALS.removeprefix("Basic ")[:-3], [caught.value, session], log) == []
            assert PASSWORD not in session.mask(f"{USERINFO} {PASSWORD}")


async def test_loopback_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service on loopback is never asked through the environment's proxy, nor does an emulator's session use it."""
    async with Scripted(job()) as server, Scripted(job()) as proxy, Emulator() as emulator:
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.base_url)
        async with server.session(proxy="env") as session, emulator.session(project_id="docs", proxy="env") as emulated:
            await session.get_job("job_1")
            await emulated.create_job("x")
    assert (len(server.requests), len(proxy.requests)) == (1, 0)


async def test_a_host_without_proxy(
    authority: trustme.CA, client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host and port of NO_PROXY are connected to directly."""
    plain = socket.getaddrinfo

    def resolved(host: str, *arguments: Any, **options: Any) -> Any:
        return plain("127.0.0.1" if host == "service.example" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    async with Scripted(job(), ssl=server_of(authority)) as server, TunnelProxy(server.base_url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.base_url)
        monkeypatch.setenv("NO_PROXY", service_of(server).partition("//")[2])
        async with session_of(base_url=service_of(server), ssl=client_tls, proxy="env") as session:
            await session.get_job("job_1")
    assert (len(server.requests), proxy.heads) == (1, [])


async def failures_of(base_url: str, proxy: str, **settings: Any) -> list[AgentJobsError]:
    """Return the errors of a create, a read and a wait through a proxy; none shows its password or the key."""
    found: list[AgentJobsError] = []
    settings = {"policy": PollPolicy(not_found_grace=0)} | settings
    with Log() as log:
        async with AgentJobsSession(base_url, KEY, project_id="docs", proxy=proxy, **settings) as session:
            for call in (session.create_job("x", retry=False), session.get_job("job_1")):
                with pytest.raises(AgentJobsError) as caught:
                    await call
                found.append(caught.value)
            assert leaks(PASSWORD, [session], log) == []
    assert leaks(PASSWORD, found, log) == leaks(USERINFO, found, log) == leaks(KEY, found, log) == []
    return found


async def test_proxies_that_refuse() -> None:
    """The refusal of a tunnel names the proxy and its status, and quotes no word of it: nothing was sent."""

    async def check(status: int, userinfo: str, reason: str, words: str) -> None:
        answer = http(status, CREDENTIALS.encode(), ("X-Echo", CREDENTIALS)).replace(b"Reason", PASSWORD.encode())
        async with TunnelProxy(answer=answer) as proxy:
            errors = await failures_of("https://service.example", proxy.with_password(userinfo))
        for error in errors:
            assert isinstance(error, NotSentError)
            assert error.reason == reason
            assert error.message == f"nothing was sent to service.example: the proxy {proxy.name} {words}"

    rows = [
        (407, USERINFO, "proxy", "answered with status 407: it refuses the user and password in its address"),
        (403, USERINFO, "proxy", "refused to connect, with status 403"),
        (302, USERINFO, "proxy", "refused to connect, with status 302"),
        (503, USERINFO, "connect", "refused to connect, with status 503"),
    ]
    assert await failures_in_turn(check, *rows) == {}
    async with TunnelProxy(answer=http(407)) as proxy:
        for error in await failures_of("https://service.example", proxy.base_url):
            assert "it wants a user and a password in its address" in error.message


async def test_proxies_without_connection(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails on the way to the proxy is said of the proxy: its name, its port, its TLS."""

    def fail(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    async def check(proxy: str, reason: str, words: str) -> None:
        for error in await failures_of("https://service.example", proxy):
            assert isinstance(error, NotSentError)
            assert (error.reason, error.message[: len(words)]) == (reason, words)

    with loopback_socket() as sock:
        name = address(sock).partition("//")[2]
        words = f"nothing was sent: the proxy {name} refused the connection"
        await check(f"http://{USERINFO}@{name}", "refused", words)
    async with TunnelProxy(ssl=server_of(authority, "127.0.0.1")) as proxy:
        words = f"nothing was sent to the proxy {proxy.name}: [SSL: CERTIFICATE_VERIFY_FAILED]"
        await check(proxy.with_password(USERINFO), "certificate", words)
    async with Scripted(Reply(), greeting=http(400)) as plain:
        name = plain.base_url.partition("//")[2]
        await check(f"https://{USERINFO}@{name}", "tls", f"nothing was sent to the proxy {name}: [SSL")
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    await check(f"http://{USERINFO}@proxy.corp:3128", "dns", "nothing was sent to the proxy proxy.corp:3128: ")


@pytest.mark.looptime
async def test_proxies_that_hang_or_leave() -> None:
    """A proxy that says nothing, or leaves, is named; a create was not sent."""
    limits = HttpTimeouts(connect=5, request=20)
    async with Scripted(Reply(then="hang")) as proxy:
        name = proxy.base_url.partition("//")[2]
        errors = await failures_of("https://service.example", f"http://{USERINFO}@{name}", timeouts=limits)
        words = f"nothing was sent to service.example through the proxy {name}: no connection within 5 s"
        assert [error.message[: len(words)] for error in errors] == [words] * 2
    async with TunnelProxy(answer=b"") as leaving:
        created, read = await failures_of("https://service.example", leaving.with_password(USERINFO))
    assert isinstance(created, NotSentError)
    through = f"through the proxy {leaving.name}"
    assert created.message == f"nothing was sent to service.example {through}: the server disconnected"
    assert isinstance(read, TransportError)
    assert read.message == f"the exchange {through} broke: the server disconnected"


async def test_the_certificate_behind_a_proxy(authority: trustme.CA) -> None:
    """A service that is not trusted is named with its proxy, and what to do about its authority."""
    async with Scripted(job(), ssl=server_of(authority)) as server, TunnelProxy(server.base_url) as proxy:
        for error in await failures_of(service_of(server), proxy.with_password(USERINFO)):
            assert isinstance(error, NotSentError)
            assert error.reason == "certificate"
            begins = f"nothing was sent to service.example through the proxy {proxy.name}: "
            assert error.message.startswith(begins)
            assert all(name in error.message for name in ("SSL_CERT_FILE", "ssl=", "--ca-file"))
    assert server.requests == []


async def test_tls_to_the_proxy(authority: trustme.CA, client_tls: ssl.SSLContext) -> None:
    """A proxy may be spoken to over TLS; the session's context is for it, too."""
    async with (
        Scripted(job(), ssl=server_of(authority)) as server,
        TunnelProxy(server.base_url, ssl=server_of(authority, "127.0.0.1")) as proxy,
        session_of(base_url=service_of(server), ssl=client_tls, proxy=proxy.with_password(USERINFO)) as session,
    ):
        await session.get_job(await session.create_job("x"))
    assert [f"Proxy-Authorization: {CREDENTIALS}" in head for head in proxy.heads] == [True] * 2


def test_a_password_beside_a_bad_setting() -> None:
    """Whichever setting is refused, the error's traceback with locals does not show the password of the proxy."""

    def check(settings: dict[str, Any]) -> None:
        with Log() as log, pytest.raises(InvalidInputError) as caught:
            session_of(**{"proxy": f"http://{USERINFO}@proxy.corp:3128"} | settings)
        assert leaks(PASSWORD, [caught.value], log) == leaks(USERINFO, [caught.value], log) == []

    rows: list[dict[str, Any]] = [
        *({"api_key": ""}, {"base_url": ""}, {"base_url": "http://127.0.0.1"}, {"user_agent": ""}, {"ssl": 5}),
        *({"timeouts": 5}, {"dialect": 5}, {"project_id": ""}, {"policy": 5}, {"hooks": [5]}),
        *({"proxy": f"socks5://{USERINFO}@proxy"}, {"proxy": f"{USERINFO}@proxy"}, {"proxy": f"ftp://{USERINFO}@p"}),
    ]
    assert failures(check, *((row,) for row in rows)) == {}


async def test_a_password_beside_a_cancellation(authority: trustme.CA, client_tls: ssl.SSLContext) -> None:
    """A read and a create that are cancelled show no password in their traceback with locals."""
    asked = asyncio.Event()
    reply = Reply(then="hang", after=asked.set)
    async with Scripted(reply, ssl=server_of(authority)) as server, TunnelProxy(server.base_url) as proxy:
        settings = {"base_url": service_of(server), "ssl": client_tls, "proxy": proxy.with_password(USERINFO)}
        async with session_of(**settings) as session:
            for call in (session.get_job("job_1"), session.create_job("x")):
                with Log() as log:
                    task = asyncio.ensure_future(call)
                    await asked.wait()
                    asked.clear()
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError) as caught:
                        await task
                    ends = [caught.value, session]
                    assert leaks(PASSWORD, ends, log) == leaks(USERINFO, ends, log) == []
