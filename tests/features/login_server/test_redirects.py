"""Where a browser may be sent, and what is asked for beside."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.login_server.redirects import find_redirect
from tests.examples import examples
from tests.features.login_server.parties import (
    REDIRECT,
    Browser,
    authorize_url,
    error_of,
    header,
    open_site,
)

EVIL = "https://evil.example"


@pytest.mark.parametrize(
    "redirect",
    [
        f"{REDIRECT}/",
        f"{REDIRECT}?a=b",
        f"{REDIRECT}/../x",
        f"{REDIRECT}#f",
        REDIRECT.upper(),
        "https://client.example",
        "http://client.example/callback",
        "https://client.example:444/callback",
        "https://client.example@evil.example/callback",
        "https://client.example.evil.example/callback",
        f"{EVIL}/callback",
        "javascript:alert(1)",
        "//client.example/callback",
        "https://client.example\\@evil.example/callback",
        "https://CLIENT.example/callback",
        f" {REDIRECT}",
        f"{REDIRECT}\r\nx: y",
    ],
)
async def test_nobody_is_sent_to_an_address_that_is_not_exactly_the_registered_one(
    tmp_path: Path, redirect: str
) -> None:
    async with open_site(tmp_path) as site:
        response = await Browser(site).open(authorize_url(await site.client(), redirect_uri=redirect))
        assert response.status == 400
        assert header(response, "location") == ""


@pytest.mark.parametrize(
    ("redirect", "is_same"),
    [
        ("http://127.0.0.1:1234/cb", True),
        ("http://127.0.0.1:65535/cb", True),
        ("http://localhost:1234/cb", False),
        ("http://127.0.0.1:1234/other", False),
        ("http://127.0.0.1:1234/cb?x=y", False),
        ("http://127.0.0.1.evil.example:1234/cb", False),
        ("http://127.0.0.1:1234@evil.example/cb", False),
        ("http://127.0.0.1:99999/cb", False),
        ("https://127.0.0.1:1234/cb", False),
        ("http://127.0.0.1:1234/cb#x", False),
    ],
)
async def test_of_a_program_on_the_computer_only_the_port_may_differ(
    tmp_path: Path, redirect: str, is_same: bool
) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client("http://127.0.0.1:8080/cb")
        assert ((await Browser(site).open(authorize_url(id, redirect_uri=redirect))).status == 200) is is_same


@pytest.mark.parametrize(
    "redirect",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "blob:https://x/y",
        "about:blank",
        "vbscript:x",
        "ws://x/y",
        "http://client.example/cb",
        "http://localhost.evil.example/cb",
        "https:///cb",
        "https:client.example",
        "https://u:p@x.example/cb",
        "https://x.example/cb#f",
        "https://x.example/a b",
        "HTTPS://x.example/cb",
        "/cb",
        "",
        "https://x.example/ü",
        "intent://x#y",
        "http://0.0.0.0/cb",
        "http://127.1/cb",
        'https://x.example/"><script>',
        "JavaScript:alert(1)",
        "java\nscript:alert(1)",
        "com.x y:/cb",
    ],
)
async def test_no_client_can_have_a_redirect_that_is_not_for_clients(tmp_path: Path, redirect: str) -> None:
    async with open_site(tmp_path) as site:
        response = await site.register(redirect)
        assert (response.status, error_of(response)) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    "redirect",
    [
        "https://claude.ai/api/mcp/auth_callback",
        "https://claude.com/api/mcp/auth_callback",
        "https://chatgpt.com/connector/oauth/aB3-x_9",
        "https://chatgpt.com/connector_platform_oauth_redirect",
        "http://localhost:8787/callback",
        "http://[::1]:3000/cb",
        "http://127.0.0.1/",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "vscode://ms.vscode/cb",
        "com.example.app:/oauth",
        "https://vscode.dev/redirect",
    ],
)
async def test_the_redirects_of_known_clients_are_taken(tmp_path: Path, redirect: str) -> None:
    async with open_site(tmp_path) as site:
        browser = Browser(site)
        await browser.open(authorize_url(await site.client(redirect), redirect_uri=redirect))
        assert header(await browser.submit("allow"), "location").startswith(f"{redirect}?code=")


@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge": ""},
        {"code_challenge_method": ""},
        {"code_challenge_method": "plain"},
        {"code_challenge": "short"},
        {"response_type": "token"},
        {"response_type": ""},
        {"response_mode": "fragment"},
        {"request": "eyJ"},
        {"client_id": "unknown"},
        {"request_uri": EVIL},
        {"state": "s" * 5000},
        {"client_id": ""},
        {"resource": EVIL},
    ],
)
async def test_a_wrong_request_shows_a_page_and_redirects_nobody(tmp_path: Path, changes: dict[str, str]) -> None:
    async with open_site(tmp_path) as site:
        response = await Browser(site).open(authorize_url(await site.client(), **changes))
        assert (response.status, header(response, "location")) == (400, "")


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "code_challenge", "scope"])
async def test_a_parameter_that_is_there_twice_is_refused(tmp_path: Path, name: str) -> None:
    async with open_site(tmp_path) as site:
        url = authorize_url(await site.client(), scope="files")
        assert (await Browser(site).open(f"{url}&{name}=x")).status == 400


@examples(100)
@given(st.text("ahtp:s/.@\\?#%[]0127 \t\n\x00üclient.example127.0.0.1localhost", max_size=60))
def test_whatever_is_asked_for_leads_nowhere_else(tail: str) -> None:
    for registered in (REDIRECT, "http://127.0.0.1:8080/cb"):
        for asked in (
            tail,
            registered + tail,
            registered.replace("/c", tail + "/c"),
            registered.replace("//", f"//{tail}"),
        ):
            found = find_redirect([registered], asked)
            if found is not None and found != registered:
                parts, own = urlsplit(found), urlsplit(registered)
                assert (parts.scheme, parts.hostname, parts.path) == (own.scheme, own.hostname, own.path)
                assert found == f"http://127.0.0.1:{parts.netloc.rpartition(':')[2]}/cb"
