"""What `doctor --deployment` finds out as claude.ai or ChatGPT would: by the URL alone, without a credential."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dynamic_mcp.config.auth import BearerAuth, Forwarded, LoginAuth, Provider
from dynamic_mcp.config.http import Http
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.doctor.hosted_clients import check_hosted_clients
from tests.doctor.hosted_service import NOT_FOUND, PAGE, PROTECTED, SERVER, HostedService, Reply, hosting
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S, Json
from tests.reverse_proxies import running_nginx, skip_without

LOGIN: tuple[Provider, ...] = (LoginAuth(), Forwarded(trusted_proxies=("unix",)))
INITIALIZED = Reply(document={"jsonrpc": "2.0", "id": 1, "result": {}}, headers={"mcp_session_id": "s1"})
PASSWORD = Reply(401, text="401", headers={"www_authenticate": 'Basic realm="x"'})
Change = Callable[[HostedService], Reply]


async def on_the_internet(host: str) -> list[str]:
    return ["1.1.1.1"]


async def on_this_machine(host: str) -> list[str]:
    return ["127.0.0.1"]


async def nowhere(host: str) -> list[str]:
    raise OSError(-2, "Name or service not known")


async def look(
    changes: dict[str, Change] | None = None,
    auth: tuple[Provider, ...] = LOGIN,
    look_up: Callable[[str], object] = on_this_machine,
) -> tuple[list[Finding], HostedService]:
    """Return what is found but for the address, and what was asked."""
    async with asyncio.timeout(BOUND_S), hosting() as service:
        service.changes = {request: change(service) for request, change in (changes or {}).items()}
        http = Http(public_url=service.url, auth=auth)
        _, *findings = await check_hosted_clients(
            http,
            lacks_credential=True,
            look_up=look_up,  # type: ignore[arg-type] # one of the above
        )
    return findings, service


def problems_of(findings: Sequence[Finding]) -> list[Finding]:
    return [each for each in findings if each.level is not Level.OK]


async def test_a_service_with_a_login_is_fine_and_is_only_looked_at() -> None:
    findings, service = await look()
    assert problems_of(findings) == []
    assert ["is told to read" in findings[0].what, "clients can register" in findings[1].what] == [True, True]
    assert service.requests == [
        *(
            "POST /mcp",
            "POST /mcp",
            PROTECTED,
            SERVER,
            "POST /register",
            "GET /authorize",
            "GET /ui",
            "GET /metrics",
            "POST /mcp",
        ),
    ]


def always(reply: Reply) -> Change:
    return lambda service: reply


@pytest.mark.parametrize(
    ("request_line", "change", "what", "hint"),
    [
        ("POST /mcp", always(PASSWORD), "asks for a login (401), which claude.ai", "`login` authenticates"),
        ("POST /mcp", always(Reply(302)), "asks for a login (302)", "`login` authenticates"),
        ("POST /mcp", always(INITIALIZED), "a request without a credential is let in", "a name for everyone"),
        ("POST /mcp", always(PAGE), "a page of HTML comes instead", "a tunnel"),
        (
            "POST /mcp",
            always(Reply(404, text="tunnel not found", headers={"ngrok_error_code": "ERR_NGROK_3200"})),
            "ngrok answers with a page of its own (ERR_NGROK_3200)",
            "does its agent run",
        ),
        (
            "POST /mcp",
            always(Reply(403, text="Just a moment…", headers={"cf_mitigated": "challenge"})),
            "Cloudflare answers with a challenge",
            "skip bots and challenges",
        ),
        (
            "POST /mcp",
            lambda service: Reply(401, service.answer("POST /mcp").document),
            "does not say where to log in",
            "pass `WWW-Authenticate` on",
        ),
        ("POST /mcp", lambda service: service.challenge("/.well-known/x"), "not absolute", ""),
        (
            "POST /mcp",
            lambda service: service.challenge("http://10.0.0.1/x"),
            "names `http://10.0.0.1/x`, not",
            "to the last",
        ),
        (SERVER, always(NOT_FOUND), "is not there", "pass `/.well-known/` on"),
        (SERVER, always(PAGE), "a page of HTML comes instead", "a tunnel"),
        (
            SERVER,
            lambda service: service.server(issuer="https://other.example"),
            "calls itself `https://other",
            "refuse it",
        ),
        (
            SERVER,
            lambda service: service.server(code_challenge_methods_supported=["plain"]),
            "does not offer PKCE",
            "",
        ),
        (SERVER, lambda service: service.server(token_endpoint="/token"), "the `token_endpoint` of", "absolute"),
        (
            SERVER,
            lambda service: service.server(registration_endpoint=None, client_id_metadata_document_supported=False),
            "clients cannot register at",
            "https://claude.ai/api/mcp/auth_callback",
        ),
        ("POST /register", always(PASSWORD), "clients cannot register: ", "pass `/register`"),
        (
            "GET /ui",
            always(Reply(text="servers", headers={"content_security_policy": "x"})),
            "/ui` is open",
            "location ^~ /ui",
        ),
        ("GET /metrics", always(Reply(text="calls 1", kind="text/plain")), "/metrics` is open to everyone", "nginx"),
        (
            "large",
            always(Reply(413, text="too large")),
            "is answered 413 by what is in front",
            "client_max_body_size",
        ),
    ],
)
async def test_each_fault_is_named_with_what_to_do(request_line: str, change: Change, what: str, hint: str) -> None:
    findings, _ = await look({request_line: change})
    (found,) = problems_of(findings)
    assert (found.level, what in found.what, hint in found.hint) == (Level.WARNING, True, True), found


async def test_a_client_that_can_give_itself_a_name_is_an_error() -> None:
    findings, service = await look({"named": always(INITIALIZED)})
    (found,) = problems_of(findings)
    assert (found.level, "whoever sends `x-forwarded-user`" in found.what) == (Level.ERROR, True)
    assert "DELETE /mcp" in service.requests


async def test_a_page_that_people_see_before_the_login_is_a_note() -> None:
    warned = Reply(text="You are about to visit", headers={"ngrok_error_code": "ERR_NGROK_6024"})
    findings, _ = await look({"GET /authorize": always(warned)})
    (found,) = problems_of(findings)
    assert (found.level, "people see a page of ngrok" in found.what) == (Level.NOTE, True)


async def test_a_login_page_of_the_reverse_proxy_is_not_in_the_way() -> None:
    findings, _ = await look({"GET /authorize": always(PAGE), "GET /ui": always(PAGE)})
    assert problems_of(findings) == []


async def test_another_login_server_decides_by_itself_who_registers() -> None:
    async with asyncio.timeout(BOUND_S), hosting() as other:
        findings, _ = await look(
            {PROTECTED: lambda service: service.protected_resource(authorization_servers=[other.origin])}
        )
    (found,) = problems_of(findings)
    assert (found.level, "is decided there" in found.what) == (Level.NOTE, True)
    assert "POST /register" not in other.requests


@pytest.mark.parametrize(("look_up", "level"), [(on_this_machine, Level.NOTE), (on_the_internet, Level.WARNING)])
async def test_a_service_without_a_login_is_open_and_its_session_is_ended(
    look_up: Callable[[str], object], level: Level
) -> None:
    findings, service = await look({"POST /mcp": always(INITIALIZED)}, (), look_up)
    (found,) = problems_of(findings)
    assert (found.level, "everyone who reaches it can use every server" in found.what) == (level, True)
    assert "DELETE /mcp" in service.requests


async def test_with_tokens_alone_it_says_that_these_clients_take_none() -> None:
    findings, _ = await look(
        {PROTECTED: lambda service: service.protected_resource(authorization_servers=[])}, (BearerAuth(),)
    )
    (found,) = problems_of(findings)
    assert (found.level, found.hint) == (Level.NOTE, "add `login` to `auth`")


@pytest.mark.parametrize(
    ("scheme", "look_up", "level", "what"),
    [
        ("https", nowhere, Level.WARNING, "`127.0.0.1` has no address: name or service not known"),
        ("http", on_the_internet, Level.WARNING, "has no TLS"),
        ("https", on_the_internet, Level.OK, "1.1.1.1, an address of the internet"),
        ("https", on_this_machine, Level.NOTE, "is not reached from the internet"),
    ],
)
async def test_the_address_is_judged(scheme: str, look_up: Callable[[str], object], level: Level, what: str) -> None:
    http = Http(public_url=f"{scheme}://127.0.0.1:{free_port()}/mcp", auth=LOGIN)
    async with asyncio.timeout(BOUND_S):
        found, *_ = await check_hosted_clients(http, look_up=look_up)  # type: ignore[arg-type] # one of the above
    assert (found.level, what in found.what) == (level, True), found


async def test_a_host_that_no_name_server_can_be_asked_for_has_no_address() -> None:
    http = Http(public_url="https://a..example/mcp", auth=LOGIN)
    async with asyncio.timeout(BOUND_S):
        (found,) = await check_hosted_clients(http)
    assert "`a..example` has no address" in found.what


@pytest.mark.parametrize(
    ("reply", "level", "what"),
    [
        (Reply(301, headers={"location": "https://127.0.0.1/mcp"}), Level.OK, "http leads to https"),
        (Reply(401), Level.WARNING, "answers 401 without TLS"),
    ],
)
async def test_what_is_served_without_tls_is_to_redirect(reply: Reply, level: Level, what: str) -> None:
    async with asyncio.timeout(BOUND_S), hosting() as plain:
        plain.changes["GET /mcp"] = reply
        http = Http(public_url=f"https://127.0.0.1:{free_port()}/mcp", auth=LOGIN)
        port = int(plain.origin.rpartition(":")[2])
        found = await check_hosted_clients(http, plain_port=port, look_up=on_this_machine)
    assert (found[1].level, what in found[1].what) == (level, True), found[1]


# --- the real one ----------------------------------------------------------------------------------------------

_GOOD = (
    "proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-User '';"
    " client_max_body_size 64m;"
)
_PASSES = _GOOD.replace("proxy_set_header X-Forwarded-User '';", "")
_NAMES = _GOOD.replace("X-Forwarded-User ''", "X-Forwarded-User alice")
SITES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # the lines of each location, other locations, and what is found
    "good": (_GOOD, "", ()),
    "password": (f"{_GOOD} auth_basic x; auth_basic_user_file /dev/null;", "", ("asks for a login (401)",)),
    "strips": (f"{_GOOD} proxy_hide_header WWW-Authenticate;", "", ("does not say where to log in",)),
    "names": (_NAMES, "", ("a request without a credential is let in", "/ui` is open to everyone")),
    "passes": (_PASSES, "", ("whoever sends `x-forwarded-user` has that name",)),
    "register": (_GOOD, "location = /register { return 403; }", ("clients cannot register",)),
    "page": (
        _GOOD,
        "location = /mcp { default_type text/html; return 200 hello; }",
        ("a page of HTML", "is answered 413"),
    ),
    "server": (_GOOD, "location ~ authorization-server|openid { return 404; }", ("is not there",)),
    "small": (_GOOD.replace("client_max_body_size 64m;", ""), "", ("is answered 413",)),
}


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="nginx is for Unix")
@pytest.mark.parametrize("name", SITES)
async def test_nginx_in_front_of_the_program_is_fine_or_found_out(tmp_path: Path, name: str) -> None:
    skip_without("nginx")
    port, (lines, others, expected) = free_port(), SITES[name]
    url = f"http://127.0.0.1:{port}/mcp"
    auth: Json = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    settings: Json = {"http": {"public_url": url, "auth": auth}}
    async with asyncio.timeout(2 * BOUND_S), serving_http(tmp_path, {}, settings=settings) as program:
        site = (
            f"upstream service {{ server {program.origin.removeprefix('http://')}; }}\n"
            f"server {{ listen 127.0.0.1:{port}; {others} location / {{ proxy_pass http://service; {lines} }} }}\n"
        )
        async with running_nginx(tmp_path, site, port):
            found = await check_hosted_clients(Http(public_url=url, auth=LOGIN), lacks_credential=True)
    problems = [each.what for each in problems_of(found[1:])]
    assert len(problems) == len(expected), problems
    assert all(what in problem for what, problem in zip(expected, problems, strict=True)), problems
