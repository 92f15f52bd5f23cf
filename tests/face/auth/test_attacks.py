"""What attackers try at a face that authenticates its clients, by legacy and by modern requests.

Where each attack is tried:

- here: no credential, which is 401 and says where to log in; a token in the query; a bad host or origin, refused
  before the credential is looked at; preflights; sessions of somebody else; forms that any page can send; what
  operators may ask; tricks with paths
- that a token reaches no upstream and no log: tests/process/test_auth.py, tests/attacks/test_hostile_clients.py
- that ids of sessions cannot be guessed: tests/face/http/test_streamable.py
- too long bodies, too many headers, slow heads: tests/attacks/test_hostile_clients.py,
  tests/face/http/test_ways_in.py and test_server.py; and here, that nothing of a stranger is read
- only loopback where nobody is asked: tests/process/test_http.py; and with authentication, tests/process/test_auth.py
- a doubled header of a reverse proxy: test_forwarded.py; signed tokens: beside their provider
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.face.http.core import HttpFace
from tests.face.auth.parties import METADATA, OTHER_TOKEN, TOKEN, client_of, guarded_face
from tests.face.http.modern_parties import LISTEN, ModernHttpClient, call_of, modern
from tests.face.http.parties import HELLO, HttpClient, Reply

NOBODY = {"authorization": ""}
ANN = {"authorization": f"Bearer {TOKEN}"}
METADATA_URL = f"https://mcp.example.com{METADATA}/mcp"


@pytest.fixture
async def face(tmp_path: Path) -> AsyncIterator[HttpFace]:
    async with guarded_face(tmp_path / "c.json", max_sessions=5) as face:
        yield face


def challenge_of(reply: Reply) -> str:
    """Return the challenge of an answer, of which nothing was done."""
    assert (reply.status, reply.receiver) == (401, None)
    return reply.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("POST", "/messages?session_id=x")],
)
def test_who_shows_nothing_is_told_where_to_log_in(face: HttpFace, method: str, path: str) -> None:
    challenge = challenge_of(HttpClient(face).send(method, path, b"{}"))

    assert challenge == f'Bearer resource_metadata="{METADATA_URL}"'


@pytest.mark.parametrize("message", [call_of("echo"), modern(LISTEN), modern("server/discover")])
def test_a_modern_request_that_shows_nothing_is_told_where_to_log_in(face: HttpFace, message: object) -> None:
    assert METADATA_URL in challenge_of(ModernHttpClient(face).begin(message))


async def test_a_token_in_the_query_or_in_a_cookie_is_none(face: HttpFace) -> None:
    client = HttpClient(face)
    for path in (f"/mcp?access_token={TOKEN}", f"/mcp?token={TOKEN}&authorization=Bearer%20{TOKEN}"):
        assert "error" not in challenge_of(client.send("POST", path, b"{}"))
    assert "error" not in challenge_of(client.send("POST", "/mcp", b"{}", cookie=f"access_token={TOKEN}"))
    assert "error" not in challenge_of(client.send("POST", "/mcp", b"{}", x_authorization=f"Bearer {TOKEN}"))


@pytest.mark.parametrize("headers", [NOBODY, ANN], ids=["nobody", "ann"])
@pytest.mark.parametrize(
    "attack",
    [
        {"host": "evil.example.net"},
        {"host": "mcp.example.com.evil.example.net"},
        {"origin": "http://evil.example.net"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example.net"},
        {"origin": "http://mcp.example.com"},
    ],
)
def test_a_foreign_host_or_page_is_refused_whatever_it_shows(
    face: HttpFace, headers: dict[str, str], attack: dict[str, str]
) -> None:
    for reply in (
        HttpClient(face).send("POST", "/mcp", b"{}", **headers, **attack),
        ModernHttpClient(face).begin(call_of("echo"), {**headers, **attack}),
        HttpClient(face).send("GET", "/ready", **headers, **attack),
        HttpClient(face).send("GET", "/authorize", **headers, **attack),
    ):
        assert reply.status == 403
        assert "access-control-allow-origin" not in reply.headers


async def test_the_host_and_the_pages_of_the_public_url_are_ours(face: HttpFace) -> None:
    client = client_of(face)
    for host in ("mcp.example.com", "127.0.0.1:8808"):
        reply = await client.request("initialize", HELLO, host=host, origin="https://mcp.example.com").ends()
        assert reply.status == 200


@pytest.mark.parametrize("path", ["/mcp", "/mcp/up", "/sse", "/ready", "/messages"])
def test_a_preflight_grants_nothing(face: HttpFace, path: str) -> None:
    for origin in ("", "https://mcp.example.com"):
        reply = HttpClient(face).send("OPTIONS", path, origin=origin, access_control_request_method="POST")
        assert reply.status == 204
        assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_the_session_of_somebody_else_is_none_whatever_is_done_with_it(face: HttpFace) -> None:
    ann, bob = client_of(face), client_of(face, OTHER_TOKEN)
    await ann.initialize()
    stream = ann.listen()
    none = client_of(face, OTHER_TOKEN)
    none.session = "made-up"
    bob.session = ann.session

    for attack in ("listen", "resume", "call", "cancel", "delete"):
        answers = [
            {
                "listen": lambda c: c.listen(),
                "resume": lambda c: c.listen(stream.ids[0]),
                "call": lambda c: c.request("tools/list", id=1),
                "cancel": lambda c: c.post({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
                "delete": lambda c: c.send("DELETE"),
            }[attack](client)
            for client in (bob, none)
        ]
        assert [(each.status, each.body) for each in answers] == [(404, answers[0].body)] * 2, attack
    assert not stream.has_ended
    assert (await ann.request("tools/list").ends()).status == 200


async def test_the_session_of_the_old_transport_of_somebody_else_is_none(face: HttpFace) -> None:
    stream = client_of(face, path="/sse").send("GET")
    messages = stream.body.decode().partition("data: ")[2].split("\n")[0]
    assert messages.startswith("/messages?session_id=")

    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert client_of(face, OTHER_TOKEN).send("POST", messages, ping).status == 404
    assert HttpClient(face).send("POST", messages, ping).status == 401
    assert client_of(face).send("POST", messages, ping).status == 202


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_form_that_any_page_can_send_is_refused(face: HttpFace, kind: str) -> None:
    assert client_of(face).request("initialize", {}, content_type=kind).status == 415
    assert ModernHttpClient(face).begin(call_of("echo"), {**ANN, "content-type": kind}).status == 415


@pytest.mark.parametrize("length", ["10", str(1 << 40)])
def test_no_body_of_a_stranger_is_read(face: HttpFace, length: str) -> None:
    assert challenge_of(HttpClient(face).send("POST", "/mcp", b"", content_length=length))


def test_strangers_take_no_session_from_those_who_are_known(face: HttpFace) -> None:
    for _ in range(100):
        assert HttpClient(face).request("initialize", {}).status == 401
    assert repr(face) == "<HttpFace 0 sessions, 0 modern requests>"


async def test_operators_are_told_that_it_serves_and_nothing_else(face: HttpFace) -> None:
    await client_of(face).initialize()
    for method in ("GET", "HEAD"):
        ready = HttpClient(face).send(method, "/ready")
        assert (ready.status, ready.json) == (200, {"status": "ready"})
    assert HttpClient(face).send("GET", "/health").json == {"status": "alive"}
    await face.drain(0)
    assert HttpClient(face).send("GET", "/ready").json == {"status": "ending"}


@pytest.mark.parametrize(
    "path",
    [
        "/mcp/../mcp",
        "/mcp/%2e%2e/up",
        "/mcp//up",
        "//mcp",
        "/mcp/up/",
        "/mcp/%2Fup",
        "/mcp/%2575p",
        "/MCP",
        "/mcp;x",
        "/./mcp",
        "/ready/",
        "/ready/../mcp",
        "/.well-known/../mcp",
        f"{METADATA}/../mcp",
        f"{METADATA}/mcp/../../../mcp",
    ],
)
async def test_a_path_with_tricks_leads_nowhere_with_or_without_a_token(face: HttpFace, path: str) -> None:
    stranger = HttpClient(face).send("POST", path, b"{}")
    assert stranger.status in (401, 404)
    assert client_of(face, path=path).request("initialize", {}).status == 404
    assert ModernHttpClient(face, path).begin(modern("server/discover"), ANN).status == 404


async def test_who_is_refused_cannot_tell_which_groups_there_are(face: HttpFace) -> None:
    answers = [HttpClient(face).send("POST", f"/mcp/{name}", b"{}") for name in ("up", "no")]

    assert {each.status for each in answers} == {401}
    assert answers[0].body == answers[1].body


async def test_of_two_tokens_in_one_request_none_counts(face: HttpFace) -> None:
    fields = (("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {OTHER_TOKEN}"))
    reply = ModernHttpClient(face).send("POST", *fields)

    assert reply.status == 400
    assert 'error="invalid_request"' in reply.headers["www-authenticate"]
    assert TOKEN not in reply.body.decode()
