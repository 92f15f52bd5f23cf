"""When a token is revoked or expires, what its client listens to ends; what was asked before is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.make import ProviderPool
from dynamic_mcp.face.auth.token_store import TokenStore, token_store
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.options import HttpOptions
from tests.face.auth.parties import BEARER, client_of, guarded_face
from tests.face.http.modern_parties import LISTEN, FakeDispatcher, ModernHttpClient, call_of, modern
from tests.face.http.parties import HttpClient, Reply, face_of
from tests.fakes import FakeUpstream, Opener

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tokens in a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def is_open(reply: Reply) -> bool:
    """Tell whether more may come of an answer."""
    return not reply.has_ended


@pytest.fixture
def store(tmp_path: Path, own_state: None) -> TokenStore:
    """The tokens of the config."""
    return token_store(tmp_path / "c.json")


@pytest.fixture
async def face(tmp_path: Path, own_state: None) -> AsyncIterator[HttpFace]:
    async with guarded_face(tmp_path / "c.json", BEARER) as face:
        yield face


async def test_the_stream_of_a_revoked_token_ends_and_its_session_takes_nothing_more(
    face: HttpFace, store: TokenStore
) -> None:
    token, made = store.create("ci", (), lifetime_s=None, now=0)
    client, other = client_of(face, token), client_of(face)
    await client.initialize()
    await other.initialize()
    stream, others = client.listen(), other.listen()
    face.tick()
    assert is_open(stream)

    store.revoke(made.id)
    face.tick()

    assert not is_open(stream)
    assert is_open(others)
    assert client.listen().status == 401
    assert client.request("tools/list").status == 401


async def test_whoever_comes_back_with_a_new_token_gets_what_it_missed(face: HttpFace, store: TokenStore) -> None:
    (first, made), (second, _) = (store.create("ci", (), lifetime_s=None, now=0) for _ in range(2))
    client = client_of(face, first)
    await client.initialize()
    stream = client.listen()
    store.revoke(made.id)
    face.tick()
    assert stream.body.endswith(b"retry: 1000\n\n")

    client.token = second
    resumed = client.listen(stream.ids[-1])
    face.tick()
    assert (resumed.status, resumed.has_ended) == (200, False)


async def test_a_session_of_the_old_transport_ends_with_its_token(face: HttpFace, store: TokenStore) -> None:
    token, made = store.create("ci", (), lifetime_s=None, now=0)
    stream = client_of(face, token, "/sse").send("GET")
    assert stream.status == 200

    store.revoke(made.id)
    face.tick()
    assert not is_open(stream)
    assert repr(face) == "<HttpFace 0 sessions, 0 modern requests>"


async def test_a_modern_client_hears_nothing_more_but_its_call_is_answered(tmp_path: Path, store: TokenStore) -> None:
    token, made = store.create("ci", (), lifetime_s=None, now=0)
    headers: dict[str, str | None] = {"authorization": f"Bearer {token}"}
    dispatcher = FakeDispatcher()
    async with guarded_face(tmp_path / "c.json", BearerAuth(), dispatcher=dispatcher) as face:
        client = ModernHttpClient(face)
        listening = client.post(modern(LISTEN), headers)
        listener = dispatcher.call
        called = client.post(call_of("echo"), headers)
        dispatcher.call.say("notifications/progress")
        face.tick()
        assert is_open(listening)

        store.revoke(made.id)
        face.tick()

        assert not is_open(listening)
        assert listener.reasons == ["the client's credential is no longer valid"]
        assert is_open(called)
        dispatcher.call.answer()
        assert not is_open(called)
        assert client.post(call_of("echo"), headers).status == 401


async def test_turning_authentication_on_ends_what_was_open_to_everybody(tmp_path: Path) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        anybody = HttpClient(face)
        await anybody.initialize()
        stream = anybody.listen()
        face.tick()
        assert is_open(stream)

        face.configure(HttpOptions(), ProviderPool().make_authenticator(Http(auth=(BEARER,)), tmp_path / "c.json"))
        face.tick()

        assert not is_open(stream)
        assert anybody.request("tools/list").status == 401
        known = client_of(face)
        known.session = anybody.session
        assert known.request("tools/list").status == 404
