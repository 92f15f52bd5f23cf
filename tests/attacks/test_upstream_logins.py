"""Nobody logs somebody else in to a server behind the proxy, or gets the login of somebody else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.attacks.loop_thread import entered
from tests.attacks.target import McpClient, Target, bearer, serving
from tests.attacks.wire import Answer, request
from tests.journeys.remote_server import free_port
from tests.upstreams.auth_server import AuthServer

TOKENS = {name: f"token-of-{name}-0123456789abcdef" for name in ("ann", "eve", "bob")}
FORM = "Content-Type: application/x-www-form-urlencoded"
LINK = re.compile(r"http://127\.0\.0\.1:[0-9]+/upstream-login/[\w-]+")


@pytest.fixture(scope="module")
def server() -> Iterator[AuthServer]:
    """A server behind the proxy, which says whose login a call has."""
    server = AuthServer()
    server.manners.is_personal = True
    with entered(server):
        yield server


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, server: AuthServer) -> Iterator[Target]:
    folder, port = tmp_path_factory.mktemp("links"), free_port()
    tokens = [{"token": token, "subject": name} for name, token in TOKENS.items()]
    http = {"public_url": f"http://127.0.0.1:{port}/mcp", "auth": [{"kind": "bearer", "tokens": tokens}]}
    with serving(
        folder, {"far": {"url": server.mcp_url}}, port=port, http=http, access={"default": "allow"}
    ) as target:
        yield target


class Browser:
    """A browser without a name, with cookies of its own."""

    def __init__(self) -> None:
        self.cookies: dict[str, str] = {}

    def open(self, url: str, *lines: str, form: dict[str, str] | None = None) -> Answer:
        parts = urlsplit(url)
        body = urlencode(form).encode() if form is not None else b""
        cookies = (f"Cookie: {'; '.join(f'{name}={value}' for name, value in self.cookies.items())}",)
        place = f"{parts.path}?{parts.query}" if parts.query else parts.path
        sent = (*(cookies if self.cookies else ()), *((FORM,) if form is not None else ()), *lines)
        host = f"{parts.hostname}:{parts.port}"
        answer = request(parts.port or 80, "GET" if form is None else "POST", place, *sent, body=body, host=host)
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].split(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def begin(self, link: str) -> str:
        """Agree to a login, and return the address that the authorization server sends the browser back to."""
        page = self.open(link)
        token = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
        assert token is not None, page
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
        begun = self.open(link, f"Origin: {origin}", form={"token": token[1]})
        return self.open(begun.headers["location"]).headers["location"]


def client_of(target: Target, name: str) -> McpClient:
    return McpClient(target, bearer(TOKENS[name])).begin()


def echo(client: McpClient) -> str:
    """Call a tool, and return what it says, or why it was not called."""
    return str(client.call("far", "echo")["result"]["content"][0]["text"])


def link_of(client: McpClient) -> str:
    found = LINK.search(echo(client))
    assert found is not None
    return found[0]


def test_a_callback_is_of_no_use_in_another_browser(target: Target, server: AuthServer) -> None:
    callback = Browser().begin(link_of(client_of(target, "ann")))
    before = len(server.requests_to("/token"))
    assert Browser().open(callback).status == 403
    assert len(server.requests_to("/token")) == before


def test_a_code_of_one_person_is_not_taken_for_the_login_of_another(target: Target, server: AuthServer) -> None:
    of_ann, of_eve = Browser(), Browser()
    theirs = of_ann.begin(link_of(client_of(target, "ann")))
    mine = of_eve.begin(link_of(client_of(target, "eve")))
    before = len(server.requests_to("/token"))
    # the code of ann with the state of eve is one that the authorization server does not take for eve's challenge
    mixed = {**dict(parse_qsl(urlsplit(mine).query)), "code": dict(parse_qsl(urlsplit(theirs).query))["code"]}
    assert of_eve.open(f"{theirs.partition('?')[0]}?{urlencode(mixed)}").status == 400
    # and with the state of ann it is one that the browser of eve did not begin
    assert of_eve.open(theirs).status == 403
    assert len(server.requests_to("/token")) <= before + 1
    assert LINK.search(echo(client_of(target, "eve")))
    assert LINK.search(echo(client_of(target, "ann")))


CALLBACKS: dict[str, dict[str, str | None]] = {
    "no state": {"state": None},
    "another state": {"state": "x" * 43},
    "a state that is a list": {"state": "a,b"},
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "a script as an error": {"error": "<script>alert(1)</script>", "code": None},
}


@pytest.mark.parametrize("changes", CALLBACKS.values(), ids=CALLBACKS)
def test_a_callback_that_is_not_of_the_login_changes_nothing(
    target: Target, server: AuthServer, changes: dict[str, str | None]
) -> None:
    browser = Browser()
    callback = browser.begin(link_of(client_of(target, "ann")))
    before = len(server.requests_to("/token"))
    given = {**dict(parse_qsl(urlsplit(callback).query)), **changes}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    answer = browser.open(f"{callback.partition('?')[0]}?{query}")
    assert answer.status == 400
    assert "<script" not in answer.text
    assert len(server.requests_to("/token")) == before


def test_a_page_of_another_site_cannot_begin_a_login(target: Target, server: AuthServer) -> None:
    link, browser = link_of(client_of(target, "ann")), Browser()
    before = len(server.requests_to("/authorize"))
    token = re.search(r'name="token" value="([0-9a-f]+)"', browser.open(link).text)
    assert token is not None
    for line in ("Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"):
        assert browser.open(link, line, form={"token": token[1]}).status == 403
    assert Browser().open(link, form={"token": token[1]}).status == 403
    assert len(server.requests_to("/authorize")) == before


@pytest.mark.parametrize("id", ["x" * 43, "callback/x", "..", "%2e%2e/mcp", "a" * 10_000, ""])
def test_a_guessed_link_leads_nowhere(target: Target, id: str) -> None:
    assert Browser().open(f"{target.origin}/upstream-login/{id}").status in (400, 401, 404)


def test_the_login_of_one_person_is_not_that_of_another_and_counts_once(target: Target, server: AuthServer) -> None:
    bob, eve, browser = client_of(target, "bob"), client_of(target, "eve"), Browser()
    link = link_of(bob)
    callback = browser.begin(link)
    assert browser.open(callback).status == 200
    assert browser.open(callback).status == 400
    assert browser.open(link).status == 404
    assert echo(bob).startswith("grant ")
    assert LINK.search(echo(eve))
    assert "tool_of_" not in json.dumps(eve.call("far", "tool_of_0"))
    sent = str([(each.headers, each.body, each.query) for each in server.requests])
    assert not [token for token in TOKENS.values() if token in sent]
