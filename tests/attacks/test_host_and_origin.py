"""Pages of other sites, and names that were bound to this address, reach no server and read nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.attacks.target import AS_JSON, BOTH, HELLO, McpClient, Target, office, serving
from tests.attacks.wire import Answer, Wire, head

APP = "https://app.example.com"
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
PLACES = [
    ("POST", "/mcp"),
    ("POST", "/mcp/office"),
    ("GET", "/sse"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/ready"),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("origin")
    with serving(folder, {"office": office(folder)}, http={"allowed_origins": [APP]}) as target:
        yield target


def begin(
    target: Target, *lines: str, host: str = "127.0.0.1:{port}", method: str = "POST", path: str = "/mcp"
) -> Answer:
    body = INITIALIZE if method == "POST" else b""
    return target.request(method, path, BOTH, AS_JSON, *lines, body=body, host=host.format(port=target.port))


HOSTS = {
    "a name that was bound to loopback": "evil.example",
    "with our port": "evil.example:{port}",
    "a name that begins like ours": "localhost.evil.example",
    "a name that ends like ours": "evil-localhost",
    "an address as a label": "127.0.0.1.nip.io",
    "a user": "localhost@evil.example",
    "our name as a user": "localhost:{port}@evil.example",
    "a number": "2130706433",
    "hexadecimal": "0x7f000001",
    "octal": "0177.0.0.1",
    "a short address": "127.1",
    "all addresses": "0.0.0.0",  # noqa: S104 - a name in a header
    "another address of loopback": "127.0.0.2",
    "full-width letters": "\uff4cocalhost",
    "a list": "localhost, evil.example",
    "a path": "localhost/evil.example",
    "a blank": "localhost evil.example",
    "nothing": "",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_a_name_that_is_not_ours_is_refused(target: Target, host: str) -> None:
    for method, path in PLACES:
        answer = begin(target, host=host, method=method, path=path)
        assert answer.status in (400, 403), (method, path)
        assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    "line", ["X-Forwarded-Host: localhost", "Forwarded: host=localhost", "X-Original-Host: localhost"]
)
def test_no_header_of_a_client_stands_for_the_host(target: Target, line: str) -> None:
    assert begin(target, line, host="evil.example").status == 403


def test_an_absolute_target_does_not_hide_the_host(target: Target) -> None:
    assert begin(target, path="http://evil.example/mcp").status == 403


ORIGINS = {
    "another site": "http://evil.example",
    "none": "null",
    "ours with another port": "http://127.0.0.1:1",
    "ours without a port": "http://127.0.0.1",
    "ours as a label": "http://127.0.0.1.evil.example:{port}",
    "ours as a user": "http://127.0.0.1:{port}@evil.example",
    "ours with a path": "http://127.0.0.1:{port}/evil",
    "a listed one with a suffix": f"{APP}.evil.example",
    "a listed one with a prefix": "https://evil-app.example.com",
    "a listed one over http": "http://app.example.com",
    "a listed one with another port": f"{APP}:444",
    "a listed one and another": f"{APP}, http://evil.example",
    "an extension": "chrome-extension://abcdefghijklmnopabcdefghijklmnop",
    "a file": "file://",
    "an empty one": "",
}


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_a_page_of_another_origin_reaches_nothing_and_reads_nothing(target: Target, origin: str) -> None:
    for method, path in PLACES:
        answer = begin(target, f"Origin: {origin.format(port=target.port)}", method=method, path=path)
        assert answer.status == 403, (method, path)
        assert "access-control-allow-origin" not in answer.headers


def test_two_origins_are_refused(target: Target) -> None:
    assert begin(target, f"Origin: {APP}", "Origin: http://evil.example").status in (400, 403)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT"])
def test_a_preflight_of_another_origin_is_granted_nothing(target: Target, method: str) -> None:
    answer = target.request(
        "OPTIONS", "/mcp", "Origin: http://evil.example", f"Access-Control-Request-Method: {method}"
    )
    assert not [name for name in answer.headers if name.startswith("access-control-allow")]


@pytest.mark.parametrize("mode", ["no-cors", "navigate", "websocket", "cors"])
@pytest.mark.parametrize(("method", "path"), PLACES)
def test_what_another_site_has_a_browser_send_without_an_origin_is_refused(
    target: Target, method: str, path: str, mode: str
) -> None:
    answer = begin(target, "Sec-Fetch-Site: cross-site", f"Sec-Fetch-Mode: {mode}", method=method, path=path)
    assert answer.status == 403


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "text/plain; a=application/json"],
)
def test_a_body_that_a_page_can_send_unasked_is_not_read_as_a_message(target: Target, kind: str) -> None:
    answer = target.request("POST", "/mcp", BOTH, f"Content-Type: {kind}", body=INITIALIZE)
    assert answer.status == 415


def test_a_websocket_is_none(target: Target) -> None:
    with Wire(target.port) as wire:
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a", "Sec-WebSocket-Version: 13")
        wire.send(head("GET", "/mcp", *upgrade, "Origin: http://evil.example"))
        answer = wire.read()
    assert answer is not None
    assert answer.status == 403


def test_a_listed_origin_is_served(target: Target) -> None:
    answer = begin(target, f"Origin: {APP}", "Sec-Fetch-Site: cross-site")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, APP)
    assert target.journal() == []


# --- paths -----------------------------------------------------------------------------------------------

PATHS = [
    "/mcp/../mcp/office",
    "/mcp/./office",
    "/mcp/%2e%2e/office",
    "/mcp/%2e/office",
    "/mcp/..%2foffice",
    "/mcp/..%5coffice",
    "/mcp//office",
    "//mcp/office",
    "/mcp/office/",
    "/mcp/office;a=b",
    "/mcp/%2Foffice",
    "/mcp/%256fffice",
    "/mcp\\office",
    "/MCP/office",
    "/mcp/Office",
    "/mcp/office%00",
    "/mcp/office%0a",
    "/mcp/%6fffice%20",
    "/mcp/%c0%afoffice",
    "/mcp/office/../../health",
    "/nothing/../mcp",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_with_tricks_leads_nowhere(target: Target, path: str) -> None:
    answer = begin(target, path=path)
    assert answer.status in (400, 404)
    assert "mcp-session-id" not in answer.headers


def test_the_paths_that_there_are_lead_somewhere(target: Target) -> None:
    assert [McpClient(target, path=path).begin().id != "" for path in ("/mcp", "/mcp/office")] == [True, True]
