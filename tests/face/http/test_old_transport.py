"""HTTP+SSE of 2024-11-05: one stream for every answer, and messages by POST."""

from __future__ import annotations

import json

from tests.face.http.parties import HELLO, HttpClient, Reply, face_of
from tests.fakes import FakeClock, FakeUpstream, FullUpstream, Json, Opener, settled

OLD_HELLO = {**HELLO, "protocolVersion": "2024-11-05"}


def _messages_path(stream: Reply) -> str:
    name, _, data = stream.body.decode().split("\n\n")[0].partition("\ndata: ")
    assert name == "event: endpoint"
    return data


def _said(stream: Reply) -> list[Json]:
    """Return what came on the stream, without changed lists, which are told of a moment after lists are known."""
    said = [json.loads(each.partition("\ndata: ")[2]) for each in stream.body.decode().split("\n\n")[1:] if each]
    return [each for each in said if not each.get("method", "").endswith("/list_changed")]


async def test_a_client_is_told_where_to_post_and_hears_every_answer_on_its_stream() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = HttpClient(face)
        stream = client.send("GET", "/sse", accept="text/event-stream")
        client.path = _messages_path(stream)

        posted = client.request("initialize", OLD_HELLO, id="a")
        client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        client.call("progress", {"steps": 2}, token=5, id="b")
        await stream.until(lambda: len(_said(stream)) == 4)

        assert (stream.headers["content-type"], posted.status, posted.body) == ("text/event-stream", 202, b"")
        first, *progress, last = _said(stream)
        assert (first["id"], last["id"], len(progress)) == ("a", "b", 2)
        assert stream.ids == []


async def test_the_session_ends_with_its_stream_and_what_it_asked_for_is_cancelled() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        stream = client.send("GET", "/sse")
        client.path = _messages_path(stream)
        client.request("initialize", OLD_HELLO)
        client.call("hold")
        await upstream.hears("tools/call")

        stream.cut()

        await upstream.hears("notifications/cancelled")
        assert client.request("ping").status == 404


async def test_a_stream_that_lasts_long_stays_open_whatever_the_revision() -> None:
    """Its client could not come back to it: a new stream is a new session."""
    clock = FakeClock()
    async with face_of(Opener(up=[FakeUpstream()]), now=clock.now) as face:
        client = HttpClient(face)
        stream = client.send("GET", "/sse")
        client.path = _messages_path(stream)
        client.request("initialize", HELLO, id=1)
        await settled()

        clock.time += 3600
        face.tick()

        assert not stream.has_ended
        client.request("ping", id=2)
        await settled()
        assert client.request("ping", id=3).status == 202


async def test_a_session_of_one_transport_is_none_of_the_other() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        old, new = HttpClient(face), HttpClient(face)
        await new.initialize()
        path = _messages_path(old.send("GET", "/sse"))

        assert new.send("POST", f"/messages?session_id={new.session}", b"{}").status == 404
        new.session = path.rpartition("=")[2]
        assert new.request("ping").status == 404
        assert new.listen().status == 404


async def test_a_message_to_no_session_or_of_the_wrong_kind_is_refused() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), max_body_bytes=1000) as face:
        client = HttpClient(face)
        client.path = _messages_path(client.send("GET", "/sse"))

        assert client.send("POST", "/messages", b"{}").status == 404
        assert client.send("POST", "/messages?session_id=guessed", b"{}").status == 404
        assert client.post({}, content_type="text/plain").status == 415
        assert client.post({}, content_length="1001").status == 413
        assert client.send("GET", "/sse", accept="application/json").status == 406


async def test_garbage_gets_its_error_on_the_stream_and_the_session_lives() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        stream = client.send("GET", "/sse")
        client.path = _messages_path(stream)

        client.post(b"garbage")
        client.request("ping", id=1)
        await settled()

        refused, pong = _said(stream)
        assert (refused["id"], pong) == (None, {"jsonrpc": "2.0", "id": 1, "result": {}})


async def test_behind_a_proxy_the_path_for_messages_begins_as_the_client_sees_it() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), root_path="/tools") as face:
        client = HttpClient(face)

        assert _messages_path(client.send("GET", "/tools/sse")).startswith("/tools/messages?")
        assert _messages_path(client.send("GET", "/sse")).startswith("/tools/messages?")
        assert (await HttpClient(face, "/tools/mcp").request("initialize", HELLO).ends()).status == 200
        assert HttpClient(face, "/toolsmcp").request("initialize", HELLO).status == 404
