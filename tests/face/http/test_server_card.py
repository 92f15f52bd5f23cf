"""The server card and the AI catalog: where they are, what they say and do not say, and who may read them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dynamic_mcp import __version__
from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.server_card import ServerCards
from dynamic_mcp.mcp.revisions import SUPPORTED
from tests.face.auth.parties import FORWARDED, PUBLIC_URL, client_of, guarded_face
from tests.face.http.parties import HttpClient, face_of
from tests.fakes import FakeUpstream, Json, Opener

CARD, CATALOG = "/mcp/server-card", "/.well-known/ai-catalog.json"
FOREIGN = "https://inspector.example.net"
ANY = "*/*"


async def document(cards: ServerCards, path: str) -> Json:
    """Return the document at a path; None if there is none."""
    page = cards.find_page("GET", path.encode())
    if page is None:
        return None
    head = RequestHead(method="GET", target=path.encode(), headers={})
    return json.loads((await page(PageRequest(head, b""))).body)


async def test_a_catalog_leads_to_a_card_that_leads_to_the_endpoint(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json", FORWARDED) as face:
        client = HttpClient(face)
        catalog = await client.send("GET", CATALOG, accept=ANY).ends()
        card = await client.send("GET", CARD, accept="application/mcp-server-card+json").ends()
    assert (catalog.status, catalog.headers["content-type"]) == (200, "application/ai-catalog+json")
    assert catalog.json == {
        "specVersion": "1.0",
        "entries": [
            {
                "identifier": "urn:air:mcp.example.com:mcp:dynamic-mcp",
                "displayName": "dynamic-mcp",
                "type": "application/mcp-server-card+json",
                "url": f"{PUBLIC_URL}/server-card",
            }
        ],
    }
    assert (card.status, card.headers["content-type"]) == (200, "application/mcp-server-card+json")
    remote = {"type": "streamable-http", "url": PUBLIC_URL, "supportedProtocolVersions": list(SUPPORTED)}
    assert card.json == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "com.example.mcp/dynamic-mcp",
        "title": "dynamic-mcp",
        "description": card.json["description"],
        "version": __version__,
        "remotes": [remote],
    }
    assert 1 <= len(card.json["description"]) <= 100


async def test_everybody_may_read_and_keep_them(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        client = client_of(face)
        for path in (CARD, CATALOG):
            for origin in ("", FOREIGN, "null"):
                reply = await client.send("GET", path, authorization="", origin=origin, accept=ANY).ends()
                assert reply.status == 200
                assert reply.headers["access-control-allow-origin"] == "*"
                assert reply.headers["cache-control"] == "public, max-age=3600"
            preflight = await client.send("OPTIONS", path, authorization="", origin=FOREIGN, accept=ANY).ends()
            assert preflight.status == 204
            assert "if-none-match" in preflight.headers["access-control-allow-headers"]
            tag = reply.headers["etag"]
            for known in (tag, f'"other", W/{tag}', "*"):
                again = await client.send("GET", path, accept=ANY, if_none_match=known).ends()
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
            assert (await client.send("GET", path, accept=ANY, if_none_match='"other"').ends()).status == 200


async def test_a_foreign_host_gets_none(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        client = client_of(face)
        assert (await client.send("GET", CATALOG, host="mcp.example.com").ends()).status == 200
        assert (await client.send("GET", CATALOG, host="evil.example.net").ends()).status == 403


async def test_there_is_none_without_a_public_url(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json", public_url=None) as face:
        for path in (CARD, CATALOG):
            assert (await client_of(face).send("GET", path, accept=ANY).ends()).status == 404


@pytest.mark.parametrize(
    "path",
    [
        *("/.well-known/mcp.json", "/.well-known/mcp/server-card.json", "/.well-known/mcp/catalog.json"),
        *("/.well-known/mcp/server-card", "/mcp/server-card.json", "/server-card", "/mcp/up/server-card"),
        *("/mcp/profile/team/server-card", "/mcp/server-card/", "/sse/server-card/x"),
    ],
)
async def test_paths_of_drafts_groups_and_profiles_have_none(tmp_path: Path, path: str) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        assert (await client_of(face).send("GET", path, accept=ANY).ends()).status in (404, 406)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_they_are_only_read(tmp_path: Path, method: str) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        assert (await client_of(face).send(method, CATALOG).ends()).status == 404
        assert (await client_of(face).send(method, CARD, b"{}").ends()).status == 404


async def test_a_group_named_like_the_card_is_still_served() -> None:
    upstream = FakeUpstream()
    async with face_of(Opener(**{"server-card": [upstream]}), public_url=PUBLIC_URL) as face:
        client = HttpClient(face, CARD)
        assert (await client.send("GET", accept="application/json").ends()).json["title"] == "dynamic-mcp"
        await client.initialize()
        listed = await client.request("tools/list").ends()
        assert [each["name"] for each in listed.json["result"]["tools"]] == ["echo"]
        assert await client.listen().hears_status() == 200


async def test_a_card_says_that_a_token_is_needed_where_no_login_gives_one(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        card = (await client_of(face).send("GET", CARD, accept=ANY).ends()).json
    (header,) = card["remotes"][0]["headers"]
    assert (header["name"], header["value"]) == ("Authorization", "Bearer {token}")
    assert header["variables"]["token"]["isSecret"] is True


@pytest.mark.parametrize("path", [CARD, f"/tools{CARD}", CATALOG, f"/tools{CATALOG}"])
async def test_a_path_of_a_reverse_proxy_is_found_with_and_without_it(path: str) -> None:
    cards = ServerCards("https://www.example.com/tools/mcp/", path="/mcp", root_path="/tools")
    found = await document(cards, path)
    if "entries" in found:
        assert found["entries"][0]["url"] == "https://www.example.com/tools/mcp/server-card"
        assert found["entries"][0]["identifier"] == "urn:air:www.example.com:mcp:tools.dynamic-mcp"
    else:
        assert found["remotes"][0]["url"] == "https://www.example.com/tools/mcp"
        assert found["name"] == "com.example.www/tools.dynamic-mcp"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost:8808/mcp", "localhost/dynamic-mcp"),
        ("http://127.0.0.1:8808/mcp", "127.0.0.1/dynamic-mcp"),
        ("http://[::1]:8808/mcp", "--1/dynamic-mcp"),
        ("https://mcp.example.com/a/b_c%20d/mcp", "com.example.mcp/a-b-c-20d.dynamic-mcp"),
        (f"https://{'long.' * 50}example/mcp", None),
    ],
)
async def test_each_public_url_makes_a_valid_name(url: str, name: str | None) -> None:
    card = await document(ServerCards(url, path="/mcp"), CARD)
    assert name is None or card["name"] == name
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert len(card["name"]) <= 200
