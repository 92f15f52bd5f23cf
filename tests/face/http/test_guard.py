"""Pages of other sites reach nothing, by no name; pages of listed origins do, and can read what they get."""

from __future__ import annotations

import pytest

from dynamic_mcp.face.http.exchange import HeadNotes, RequestHead
from dynamic_mcp.face.http.options import HttpOptions
from tests.face.http.parties import HELLO, HttpClient, Reply, face_of
from tests.fakes import FakeUpstream, Opener

APP = "https://app.example.com"


async def _begin(headers: dict[str, str], **options: object) -> Reply:
    async with face_of(Opener(up=[FakeUpstream()]), **options) as face:
        return await HttpClient(face).request("initialize", HELLO, **headers).ends()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8808",
        "LOCALHOST:1",
        "127.0.0.1:8808",
        "[::1]:8808",
        "[::1]",
    ],
)
async def test_a_request_to_where_it_listens_is_answered(host: str) -> None:
    assert (await _begin({"host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example.com",
        "localhost.evil.example.com",
        "127.0.0.1.evil.example.com",
        "evil.example.com:8808",
        "localhost:8808.evil.example.com",
        "localhost:evil",
        "user@localhost",
        "192.168.1.5",
        "[::2]",
        "2130706433",
        "localhost, evil.example.com",
        "é",
    ],
)
async def test_a_request_to_another_name_is_refused(host: str) -> None:
    reply = await _begin({"host": host})

    assert reply.status == 403
    assert "allowed_hosts" in reply.json["error"]["message"]


async def test_a_listed_host_is_answered_and_no_other() -> None:
    hosts = {"allowed_hosts": ("mcp.example.com", "exact.example.com:8443")}

    assert (await _begin({"host": "mcp.example.com:444"}, **hosts)).status == 200
    assert (await _begin({"host": "exact.example.com:8443"}, **hosts)).status == 200
    assert (await _begin({"host": "exact.example.com:8444"}, **hosts)).status == 403
    assert (await _begin({"host": "x.mcp.example.com"}, **hosts)).status == 403


async def test_a_face_on_all_addresses_answers_to_any_address_and_to_no_name() -> None:
    assert (await _begin({"host": "192.168.1.5:8808"}, accepts_any_address=True)).status == 200
    assert (await _begin({"host": "[fe80::1]"}, accepts_any_address=True)).status == 200
    assert (await _begin({"host": "evil.example.com"}, accepts_any_address=True)).status == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "null",
        "http://localhost.evil.example.com",
        "http://localhost.evil.example.com:8808",
        "http://127.0.0.1:9999",
        "file://127.0.0.1:8808",
        "127.0.0.1:8808",
        "https://app.example.com.evil.example.com",
        f"{APP}, {APP}",
    ],
)
async def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    reply = await _begin({"origin": origin}, allowed_origins=(APP,))

    assert reply.status == 403
    assert "access-control-allow-origin" not in reply.headers
    assert ("allowed_origins" in reply.json["error"]["message"]) is (origin != "null")


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages", "/ready", "/nowhere"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
async def test_what_a_page_of_another_site_has_a_browser_send_without_an_origin_is_refused(
    method: str, path: str, mode: str
) -> None:
    async with face_of(Opener(up=[FakeUpstream()]), allowed_origins=(APP,)) as face:
        reply = HttpClient(face).send(method, path, sec_fetch_site="cross-site", sec_fetch_mode=mode)

        assert reply.status == (404 if (path, mode) == ("/nowhere", "navigate") else 403)


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none"])
async def test_what_no_other_site_has_a_browser_send_is_answered(site: str) -> None:
    assert (await _begin({"sec-fetch-site": site})).status == 200


async def test_a_page_of_another_site_whose_origin_is_listed_is_answered() -> None:
    headers = {"sec-fetch-site": "cross-site", "origin": APP}

    assert (await _begin(headers, allowed_origins=(APP,))).status == 200
    assert (await _begin(headers)).status == 403


async def test_its_own_pages_and_those_of_listed_origins_are_answered() -> None:
    assert (await _begin({"origin": "http://127.0.0.1:8808"})).status == 200
    assert (await _begin({"origin": "http://localhost:8808", "host": "localhost:8808"})).status == 200
    assert (await _begin({"origin": APP}, allowed_origins=(APP,))).status == 200


async def test_a_page_of_a_listed_origin_can_read_its_session_and_every_kind_of_answer() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), allowed_origins=(APP,)) as face:
        client = HttpClient(face)
        hello = await client.request("initialize", HELLO, origin=APP).ends()
        client.session = hello.headers["mcp-session-id"]

        replies = [
            hello,
            client.listen(origin=APP),
            client.request("ping", origin=APP, content_type="text/plain"),
            client.send("GET", "/none", origin=APP),
            client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, origin=APP),
        ]

        for reply in replies:
            assert reply.headers["access-control-allow-origin"] == APP
            assert "mcp-session-id" in reply.headers["access-control-expose-headers"]
            assert reply.headers["vary"] == "origin"


async def test_a_preflight_says_what_a_page_of_a_listed_origin_may_send() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), allowed_origins=(APP,)) as face:
        client = HttpClient(face)

        granted = client.send("OPTIONS", origin=APP, access_control_request_method="POST")
        refused = client.send("OPTIONS", origin="http://evil.example.com", access_control_request_method="POST")
        plain = client.send("OPTIONS")

        assert (granted.status, granted.headers["access-control-allow-origin"]) == (204, APP)
        assert {"POST", "DELETE"} <= set(granted.headers["access-control-allow-methods"].split(", "))
        assert "mcp-session-id" in granted.headers["access-control-allow-headers"]
        assert refused.status == 403
        assert (plain.status, "access-control-allow-origin" in plain.headers) == (204, False)


@pytest.mark.parametrize(
    ("trusted", "status"), [((), 403), (("10.0.0.0/8",), 403), (("127.0.0.1",), 200), (("127.0.0.0/8", "unix"), 200)]
)
async def test_a_forwarded_host_counts_from_trusted_addresses_only(trusted: tuple[str, ...], status: int) -> None:
    headers = {"host": "backend", "x_forwarded_host": "mcp.example.com"}
    options = {"trusted_proxies": trusted, "allowed_hosts": ("mcp.example.com",)}

    assert (await _begin(headers, **options)).status == status


async def test_whether_it_is_alive_may_be_asked_by_any_name_and_how_it_serves_by_its_own() -> None:
    async with face_of(Opener(secret=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()

        assert client.send("GET", "/health", host="10.1.2.3").status == 200
        assert client.send("HEAD", "/health").status == 200
        assert client.send("GET", "/ready", host="evil.example.com").status == 403
        ready = client.send("GET", "/ready")

        assert ready.status == 200
        assert (ready.json["status"], ready.json["sessions"]) == ("ready", 1)
        assert sum(ready.json["groups"].values()) == 1
        assert "secret" not in ready.body.decode()
        assert ready.json["version"]


async def test_a_head_that_was_let_in_is_checked_again_by_other_options() -> None:
    fields = {b"host": b"here", b"content-type": b"application/json", b"mcp-session-id": b"none"}
    head = RequestHead(method="POST", target=b"/mcp", headers=fields, peer="127.0.0.1", notes=HeadNotes())

    async with face_of(Opener(up=[FakeUpstream()]), allowed_hosts=("here",)) as face:

        def answer() -> int:
            reply = Reply()
            face.begin(head, reply)
            return reply.status

        assert [answer(), answer()] == [404, 404]  # no such session
        face.configure(HttpOptions())
        assert [answer(), answer()] == [403, 403]
        face.configure(HttpOptions(allowed_hosts=("here",), path="/elsewhere"))
        assert answer() == 404
        face.configure(HttpOptions(allowed_hosts=("here",)))
        assert answer() == 404
