"""The documents that tell clients where to log in: where they are, what they say, and who may read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.face.auth.metadata import ResourceMetadata
from dynamic_mcp.face.http.authenticator import PageRequest
from dynamic_mcp.face.http.exchange import RequestHead
from tests.face.auth.parties import METADATA, PUBLIC_URL, client_of, guarded_face, head_of
from tests.fakes import Json

FOREIGN = "https://inspector.example.net"


async def document(metadata: ResourceMetadata, path: str) -> Json:
    """Return the document at a path; None if there is none."""
    page = metadata.find_page("GET", path.encode())
    if page is None:
        return None
    head = RequestHead(method="GET", target=path.encode(), headers={})
    return json.loads((await page(PageRequest(head, b""))).body)


@pytest.mark.parametrize(
    ("asked", "resource"),
    [
        ("", "https://www.example.com/tools/mcp"),
        ("/", "https://www.example.com/tools/mcp"),
        ("/tools/mcp", "https://www.example.com/tools/mcp"),
        ("/tools/mcp/", "https://www.example.com/tools/mcp/"),
        ("/tools/mcp/time", "https://www.example.com/tools/mcp/time"),
        ("/tools/mcp/profile/ops", "https://www.example.com/tools/mcp/profile/ops"),
        ("/tools/mcp/no%20such", "https://www.example.com/tools/mcp/no%20such"),
        ("/tools", None),
        ("/tools/mcpx", None),
        ("/mcp", None),
        ("/tools/mcp/a/b/c", None),
        ("/tools/mcp/../x", None),
        ("/tools/mcp//", None),
        ('/tools/mcp/"', None),
        ("x", None),
    ],
)
async def test_the_resource_is_the_url_whose_metadata_is_asked_for(asked: str, resource: str | None) -> None:
    metadata = ResourceMetadata("https://www.example.com/tools/mcp", path="/mcp", root_path="/tools")
    found = await document(metadata, f"{METADATA}{asked}")

    assert (found and found["resource"]) == resource


async def test_a_url_that_ends_with_a_slash_stays_as_it_is_written() -> None:
    metadata = ResourceMetadata("https://mcp.example.com/mcp/", path="/mcp")

    assert (await document(metadata, METADATA))["resource"] == "https://mcp.example.com/mcp/"
    assert (await document(metadata, f"{METADATA}/mcp"))["resource"] == "https://mcp.example.com/mcp"


async def test_authorization_servers_and_scopes_are_told_if_there_are_any() -> None:
    told = ResourceMetadata(PUBLIC_URL, path="/mcp", authorization_servers=["https://idp"], scopes=["tools"])

    assert await document(told, METADATA) == {
        "resource": PUBLIC_URL,
        "bearer_methods_supported": ["header"],
        "authorization_servers": ["https://idp"],
        "scopes_supported": ["tools"],
    }
    assert set(await document(ResourceMetadata(PUBLIC_URL, path="/mcp"), METADATA)) == {
        "resource",
        "bearer_methods_supported",
    }


@pytest.mark.parametrize("target", ["/tools/mcp/time", "/mcp/time"])
def test_a_refused_request_is_told_of_the_public_path_with_and_without_the_path_of_the_reverse_proxy(
    target: str,
) -> None:
    metadata = ResourceMetadata("https://www.example.com/tools/mcp", path="/mcp", root_path="/tools")

    assert metadata.url_for(head_of(target=target)) == f"https://www.example.com{METADATA}/tools/mcp/time"


async def test_anybody_may_read_it_also_a_page_of_another_origin(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        client = client_of(face)
        for origin in ("", FOREIGN, "null"):
            reply = await client.send("GET", f"{METADATA}/mcp", authorization="", origin=origin).ends()
            assert (reply.status, reply.json["resource"]) == (200, PUBLIC_URL)
            assert reply.headers["access-control-allow-origin"] == "*"
        preflight = await client.send("OPTIONS", f"{METADATA}/mcp", authorization="", origin=FOREIGN).ends()
        assert (preflight.status, preflight.body) == (204, b"")
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "mcp-protocol-version" in preflight.headers["access-control-allow-headers"]


async def test_it_is_made_of_the_public_url_whatever_the_host_says(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        client = client_of(face)
        for host in ("127.0.0.1:8808", "mcp.example.com", "MCP.example.com:443"):
            assert (await client.send("GET", METADATA, host=host).ends()).json["resource"] == PUBLIC_URL
        assert (await client.send("GET", METADATA, host="evil.example.net").ends()).status == 403


async def test_there_is_none_without_a_public_url(tmp_path: Path) -> None:
    async with guarded_face(tmp_path / "c.json", public_url=None) as face:
        assert (await client_of(face).send("GET", METADATA).ends()).status == 404


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_it_is_only_read(tmp_path: Path, method: str) -> None:
    async with guarded_face(tmp_path / "c.json") as face:
        assert (await client_of(face).send(method, METADATA).ends()).status == 404
