"""Access rules over HTTP: what each credential is shown, and what it lacks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dynamic_mcp.config.access import Profile
from dynamic_mcp.face.http.authenticator import LocalAuthenticator, Outcome
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.proxy.proxy import Proxy
from tests.face.http.modern_parties import ModernHttpClient, call_of, modern
from tests.face.http.parties import HELLO, HttpClient
from tests.fakes import FakeUpstream, Opener, config_of, group_config
from tests.policy.rules import access_of, person

Json = Any  # whatever JSON a test writes down
DONE = {"content": [{"type": "text", "text": "done"}]}


class ByHeader(LocalAuthenticator):
    """Believes the headers `X-User`, `X-Role` and `X-Scope`."""

    is_open = False

    def authenticate(self, head: RequestHead) -> Outcome:
        """Return who the headers name."""
        user, role, scope = (head.headers.get(name, b"").decode() for name in (b"x-user", b"x-role", b"x-scope"))
        return person(user, role, scopes=frozenset({scope}) if scope else None)

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Name the scopes."""
        return Response(403, ((b"www-authenticate", b'Bearer scope="%s"' % " ".join(scopes).encode()),))


@contextlib.asynccontextmanager
async def face_with(
    *, profiles: tuple[Profile, ...] = (), options: HttpOptions | None = None, **roles: list[Json]
) -> AsyncIterator[HttpFace]:
    """Run a face whose clients have roles."""
    opener = Opener(up=[FakeUpstream({"tools/call": DONE}, tools=("get", "delete")) for _ in range(4)])
    by_name = {each.name: each for each in profiles}
    config = config_of(group_config("up"), access=access_of(roles=roles), profiles=by_name)
    proxy = Proxy(config, opener=opener)
    face = HttpFace(proxy, options or HttpOptions(), authenticator=ByHeader())
    try:
        yield face
    finally:
        face.close()
        await proxy.close()


async def test_each_request_is_decided_by_the_credential_that_it_came_with() -> None:
    async with face_with(reader=[{"tools": ["get"]}], writer=[{"tools": ["delete"]}]) as face:
        client = HttpClient(face)
        client.headers = {"x-user": "ann", "x-role": "reader"}
        await client.initialize()

        found: list[list[bool]] = []
        for role in ("reader", "writer", "reader"):
            client.headers["x-role"] = role
            answers = [(await client.call(tool).ends()).json for tool in ("get", "delete")]
            found.append([answer["result"].get("isError", False) for answer in answers])

        assert found == [[False, True], [True, False], [False, True]]


@pytest.mark.parametrize("path", ["/mcp/profile/ops", "/mcp/profile/ops?x=1"])
async def test_a_profile_in_which_somebody_has_nothing_cannot_be_told_from_none(path: str) -> None:
    async with face_with(profiles=(Profile("ops"),), ops=[{"tools": ["get"]}]) as face:
        answers: dict[str, list[tuple[int, bytes]]] = {}
        for role in ("ops", ""):
            replies = []
            for place in (path, "/mcp/profile/none"):
                headers = {"x-user": "ann", "x-role": role}
                replies.append(ModernHttpClient(face, place).post(modern("tools/list"), headers))
                replies.append(HttpClient(face, place).request("initialize", HELLO, **headers))
                replies.append(HttpClient(face, place.replace("/mcp", "/sse")).listen(**headers))
            for reply in replies:
                await reply.hears_status()
            answers[role] = [(each.status, each.body) for each in replies]

        assert answers[""][:3] == answers[""][3:]
        assert [status for status, _ in answers["ops"]] == [200, 200, 200, 404, 404, 404]


async def test_the_profile_of_the_server_is_there_for_somebody_who_has_nothing_of_it() -> None:
    options = HttpOptions(profile="ops")
    async with face_with(profiles=(Profile("ops"),), options=options, ops=[{"tools": ["get"]}]) as face:
        reply = HttpClient(face).request("initialize", HELLO, x_user="ann")
        assert (await reply.ends()).status == 200


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_missing_scope_is_403_with_the_scope_that_is_needed(*, is_modern: bool) -> None:
    async with face_with(dev=[{"tools": ["get"]}, {"tools": ["delete"], "scope": "tools:delete"}]) as face:
        who = {"x-user": "ann", "x-role": "dev", "x-scope": "tools:read"}
        if is_modern:
            calls = [call_of("call_dynamic_tool", {"group": "up", "name": tool}) for tool in ("get", "delete")]
            replies = [await ModernHttpClient(face).post(call, who).ends() for call in calls]
        else:
            client = HttpClient(face)
            client.headers = who
            await client.initialize()
            replies = [await client.call(tool).ends() for tool in ("get", "delete")]

        assert [reply.status for reply in replies] == [200, 403]
        assert replies[1].headers["www-authenticate"] == 'Bearer scope="tools:delete"'
        assert replies[1].json["error"]["data"] == {"scopes": ["tools:delete"]}


async def test_a_group_that_is_hidden_has_no_path() -> None:
    async with face_with(dev=[{"servers": ["other"]}], admin=[{}]) as face:
        for path in ("/mcp/up", "/mcp/none"):
            client = HttpClient(face, path)
            hidden = client.request("initialize", {}, x_user="ann", x_role="dev")
            assert (hidden.status, hidden.body) == (404, HttpClient(face, "/mcp/other").request("ping").body)
            message = modern("tools/list")
            assert ModernHttpClient(face, path).post(message, {"x-user": "ann", "x-role": "dev"}).status == 404
        reached = ModernHttpClient(face, "/mcp/up").post(modern("tools/list"), {"x-user": "root", "x-role": "admin"})
        assert (await reached.ends()).status == 200
