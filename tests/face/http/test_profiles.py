"""`/mcp/profile/<name>` and `/sse/profile/<name>`: which paths there are, in both eras, and what they show."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.access import Profile
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.paths import Paths, Route, ServedEndpoint
from tests.face.http.modern_parties import ModernHttpClient, modern
from tests.face.http.parties import HELLO, HttpClient, face_of
from tests.fakes import FakeUpstream, Json, Opener

PROFILES = (
    Profile("review", servers=("docs",), instructions="You review."),
    Profile("direct", direct=DirectTools(is_all=True)),
    Profile("two words é", servers=("git",)),
)
# What is at no path: as it would be found by somebody who tries.
NOWHERE = [
    "/mcp/profile/none",
    "/mcp/profile/",
    "/mcp/profile//review",
    "/mcp//profile/review",
    "//mcp/profile/review",
    "/mcp/profile/review/",
    "/mcp/profile/review/docs",
    "/mcp/profile%2Freview",
    "/mcp%2Fprofile%2Freview",
    "/mcp/profile/review%2F",
    "/mcp/profile/%2Freview",
    "/mcp/profile/..",
    "/mcp/profile/../profile/review",
    "/mcp/profile/%2e%2e",
    "/mcp/profile/%2e%2e/profile/review",
    "/mcp/profile/.",
    "/mcp/./profile/review",
    "/mcp/prof%69le/review",
    "/mcp/PROFILE/review",
    "/mcp/profile/Review",
    "/mcp/profile/revie%77%00",
    "/mcp/profile/review;x",
    "/mcp/profile/review%20",
    "/mcp/profile/%72eview%ff",
    "/mcp/profile/%25review",
    "/mcp/profile/two+words+%C3%A9",
    "/mcp/profile",  # the group of this name, which there is not
]


def _opener() -> Opener:
    return Opener(docs=[FakeUpstream(tools=["read"])], git=[FakeUpstream(tools=["push"])])


async def names_at(face: HttpFace, path: str) -> list[str]:
    """Return the groups that a legacy client sees at a path, or the names of its tools where they are listed."""
    client = HttpClient(face, path)
    await client.initialize()
    return _names((await client.request("tools/list").ends()).json["result"]["tools"])


async def modern_names_at(face: HttpFace, path: str) -> list[str]:
    """Return the same of a modern client."""
    reply = await ModernHttpClient(face, path).post(modern("tools/list")).ends()
    return _names(reply.json["result"]["tools"])


def _names(tools: list[Json]) -> list[str]:
    own = [each for each in tools if each["name"] == "call_dynamic_tool"]
    if own:
        named: list[str] = own[0]["inputSchema"]["properties"]["group"]["enum"]
        return named
    return [each["name"] for each in tools]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/mcp", ["docs", "git"]),
        ("/mcp/profile/review", ["docs"]),
        ("/mcp/profile/%72eview", ["docs"]),
        ("/mcp/profile/direct", ["docs__read", "git__push"]),
        ("/mcp/profile/two%20words%20%C3%A9", ["git"]),
    ],
)
async def test_a_profile_is_at_its_path_in_both_eras(path: str, names: list[str]) -> None:
    async with face_of(_opener(), profiles=PROFILES) as face:
        assert await names_at(face, path) == names
        assert await modern_names_at(face, path) == names


@pytest.mark.parametrize("path", NOWHERE)
async def test_everything_else_is_answered_byte_for_byte_as_any_unknown_path(path: str) -> None:
    async with face_of(_opener(), profiles=PROFILES) as face:
        expected = HttpClient(face, "/nothing/here").request("initialize", HELLO)
        reply = HttpClient(face, path).request("initialize", HELLO)
        assert (reply.status, reply.headers, reply.body) == (404, expected.headers, expected.body)
        modern_reply = ModernHttpClient(face, path).post(modern("tools/list"))
        assert (modern_reply.status, modern_reply.body) == (404, expected.body)
        old = HttpClient(face, path.replace("/mcp", "/sse", 1)).listen()
        assert (old.status, old.body) == (404, expected.body)


async def test_the_older_transport_has_profiles_too() -> None:
    async with face_of(_opener(), profiles=PROFILES) as face:
        stream = HttpClient(face, "/sse/profile/review").listen()
        assert stream.status == 200
        path = stream.body.decode().split("data: ")[1].strip()
        assert path.startswith("/messages?session_id=")
        HttpClient(face, path).request("initialize", HELLO)
        await stream.until(lambda: b"You review." in stream.body)


async def test_a_session_of_a_profile_exists_at_its_path_only() -> None:
    async with face_of(_opener(), profiles=PROFILES) as face:
        client = HttpClient(face, "/mcp/profile/review")
        await client.initialize()
        for elsewhere in ("/mcp", "/mcp/profile/direct", "/mcp/docs"):
            client.path = elsewhere
            assert client.request("tools/list").status == 404
        client.path = "/mcp/profile/review"
        assert (await client.request("tools/list").ends()).status == 200


async def test_the_profile_of_the_server_is_for_clients_that_choose_none() -> None:
    async with face_of(_opener(), profiles=PROFILES, profile="review") as face:
        assert await names_at(face, "/mcp") == await modern_names_at(face, "/mcp/") == ["docs"]
        assert await modern_names_at(face, "/mcp/docs") == ["read"]
        assert HttpClient(face, "/mcp/git").request("initialize", HELLO).status == 404
        assert await names_at(face, "/mcp/profile/direct") == ["docs__read", "git__push"]


async def test_a_group_may_be_named_profile() -> None:
    async with face_of(Opener(profile=[FakeUpstream(tools=["x"])]), profiles=PROFILES) as face:
        assert await modern_names_at(face, "/mcp/profile") == ["x"]
        assert HttpClient(face, "/mcp/profile/x").request("initialize", HELLO).status == 404


async def test_a_modern_client_of_a_profile_cannot_tell_another_server_from_none() -> None:
    async with face_of(_opener(), profiles=PROFILES) as face:

        async def call(group: str) -> str:
            arguments = {"group": group, "name": "push"}
            message = modern("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
            return str((await ModernHttpClient(face, "/mcp/profile/review").post(message).ends()).json["result"])

        assert "no group is named `git`" in await call("git")
        assert (await call("git")).replace("git", "fax") == await call("fax")


def test_only_the_last_part_of_a_path_is_decoded() -> None:
    paths = Paths("/mcp", "/root")
    assert paths.find(b"/root/mcp/profile/a%20b") == Route(ServedEndpoint.MCP, profile="a b")
    assert paths.find(b"/sse/profile/x") == Route(ServedEndpoint.EVENTS, profile="x")
    assert paths.find(b"/mcp/profile") == Route(ServedEndpoint.MCP, "profile")
    assert paths.find(b"/mcp/profile/a%2Fb") is None
