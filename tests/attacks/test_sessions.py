"""Nobody uses, ends, reads or answers for the session of somebody else, however they came by its id."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.attacks.target import McpClient, Target, bearer, office, serving
from tests.attacks.wire import Answer, Json, Wire, head
from tests.program import full

TOKENS = {name: f"token-of-{name}-0123456789abcdef" for name in ("ann", "eve")}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("sessions")
    tokens = [{"token": token, "subject": name} for name, token in TOKENS.items()]
    http = {"auth": [{"kind": "bearer", "tokens": tokens}]}
    servers = {"office": office(folder), "full": full()}
    with serving(folder, servers, http=http, access={"default": "allow"}) as target:
        yield target


def client_of(target: Target, name: str, path: str = "/mcp") -> McpClient:
    return McpClient(target, bearer(TOKENS[name]), path=path).begin()


@pytest.fixture
def ann(target: Target) -> Iterator[McpClient]:
    """A session, which is still of use when an attack is over."""
    client = client_of(target, "ann")
    yield client
    assert client.request("ping")["result"] == {}
    assert client.delete() == 204


def as_eve(client: McpClient, *lines: str) -> McpClient:
    """Return the same session in the hands of another person, or of nobody with other lines."""
    thief = McpClient(client.target, *(lines or (bearer(TOKENS["eve"]),)), path=client.path)
    thief.id = client.id
    return thief


def test_a_session_in_other_hands_is_answered_like_none(ann: McpClient) -> None:
    thief = as_eve(ann)
    unknown = as_eve(ann)
    unknown.id = "A" * len(ann.id)
    for send in (_post, _call, _get, _delete, _answer):
        theirs, nobodys = send(thief), send(unknown)
        assert (theirs.status, theirs.body) == (404, nobodys.body), send
        assert nobodys.status == 404, send


@pytest.mark.parametrize("path", ["/mcp/office", "/mcp/full", "/sse", "/messages"])
def test_a_session_is_none_at_another_path(ann: McpClient, path: str) -> None:
    moved = McpClient(ann.target, bearer(TOKENS["ann"]), path=path)
    moved.id = ann.id
    assert moved.post(moved.message("tools/list")).status in (400, 404, 405)


def test_a_session_without_a_credential_is_none(ann: McpClient) -> None:
    for lines in (("X-Nothing: 1",), (bearer("wrong-token-0123456789abcdef"),), (f"Cookie: session={ann.id}",)):
        assert _post(as_eve(ann, *lines)).status == 401


GUESSES = [
    "",
    "0",
    "1",
    "null",
    "undefined",
    "*",
    "%",
    "../",
    "' OR 1=1 --",
    "A" * 10_000,
    "\x7f",
    "é",
    "a b",
    "session",
]


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guessed_id_is_no_session(ann: McpClient, guess: str) -> None:
    thief = as_eve(ann)
    thief.id = guess or " "
    assert _post(thief).status in (400, 404)


def test_parts_and_neighbours_of_an_id_are_no_session(ann: McpClient) -> None:
    others = {ann.id[:-1], ann.id + "A", ann.id.swapcase(), ann.id[::-1], f"{ann.id}, {ann.id}", f'"{ann.id}"'}
    for guess in others - {ann.id}:
        mine = McpClient(ann.target, bearer(TOKENS["ann"]))
        mine.id = guess
        assert _post(mine).status in (400, 404), guess


def test_two_ids_in_one_request_are_refused(target: Target, ann: McpClient) -> None:
    eve = client_of(target, "eve")
    assert eve.post(eve.message("ping"), f"Mcp-Session-Id: {ann.id}").status in (400, 404)


def test_an_id_that_a_client_chooses_does_not_become_its_session(target: Target) -> None:
    chosen = McpClient(target, bearer(TOKENS["eve"]), "Mcp-Session-Id: chosen-by-eve")
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "e", "version": "1"}}
    answer = chosen.post(chosen.message("initialize", hello))
    assert answer.headers.get("mcp-session-id") != "chosen-by-eve"
    mine = McpClient(target, bearer(TOKENS["eve"]))
    mine.id = "chosen-by-eve"
    assert _post(mine).status in (400, 404)


def test_ids_of_sessions_are_long_and_have_nothing_in_common(target: Target) -> None:
    ids = [client_of(target, "eve").id for _ in range(20)]
    assert len({each[:8] for each in ids}) == len({each[-8:] for each in ids}) == 20
    assert min(map(len, ids)) >= 22


# --- streams and questions -----------------------------------------------------------------------------


def ask(client: McpClient) -> tuple[Wire, str, Json]:
    """Begin a call that asks its client; return its connection, the id of the event, and the question."""
    wire = client.send_call("full", "elicit")
    event = ""
    while line := wire.read_line():
        if line.startswith(b"id:"):
            event = line[3:].strip().decode()
        if b"elicitation/create" in line:
            return wire, event, json.loads(line[5:])
    raise AssertionError("no question came")


@pytest.fixture
def asked(target: Target) -> Iterator[tuple[McpClient, str, Json, Wire]]:
    """A session whose client is being asked something."""
    client = McpClient(target, bearer(TOKENS["ann"]))
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "a", "version": "1"},
    }
    client.id = client.post(client.message("initialize", hello)).headers["mcp-session-id"]
    client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    wire, event, question = ask(client)
    with wire:
        yield client, event, question, wire
        client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        rest = b""
        while b'"result"' not in rest and (line := wire.read_line()):
            rest += line
    assert b"decline" in rest
    assert b"foreign" not in rest


def test_nobody_else_answers_a_question(target: Target, asked: tuple[McpClient, str, Json, Wire]) -> None:
    client, _, question, _ = asked
    for thief in (client_of(target, "eve"), client_of(target, "ann"), as_eve(client)):
        for id in (question["id"], str(question["id"]), *range(5)):
            thief.post({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"answer": "foreign"}}})


@pytest.mark.parametrize("thief", ["eve", "ann"])
def test_nobody_else_takes_up_a_stream_where_it_ended(
    target: Target, asked: tuple[McpClient, str, Json, Wire], thief: str
) -> None:
    client, event, _, _ = asked
    other = client_of(target, thief)
    for session in (other.id, client.id if thief == "eve" else other.id):
        other.id = session
        answer = _get(other, f"Last-Event-ID: {event}")
        assert answer.status in (400, 404)
        assert "elicitation" not in answer.text


EVENTS = ["0", "-1", "1", "{event}x", "../{event}", "{event}, {event}", "\x7f", "A" * 5000]


@pytest.mark.parametrize("guess", EVENTS)
def test_an_event_that_was_never_sent_resumes_nothing(asked: tuple[McpClient, str, Json, Wire], guess: str) -> None:
    client, event, _, _ = asked
    answer = _get(client, f"Last-Event-ID: {guess.format(event=event)}")
    assert answer.status == 400
    assert "elicitation" not in answer.text


def test_nobody_else_cancels_a_call(target: Target, asked: tuple[McpClient, str, Json, Wire]) -> None:
    eve = client_of(target, "eve")
    for id in range(10):
        eve.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    assert asked[0].request("ping")["result"] == {}


def test_progress_of_others_is_not_heard(target: Target, ann: McpClient) -> None:
    eve = client_of(target, "eve")
    with eve.listen() as stream:
        opened = stream.read_head()
        assert opened is not None
        call = {"group": "full", "name": "progress", "args": {}}
        ann.request("tools/call", {"name": "call_dynamic_tool", "arguments": call, "_meta": {"progressToken": 1}})
        assert eve.delete() == 204
        assert b"progress" not in stream.read_body(opened)


def test_a_session_that_was_deleted_is_none_for_its_owner_too(target: Target) -> None:
    client = client_of(target, "ann")
    assert client.delete() == 204
    assert [_post(client).status, _get(client).status, _delete(client).status] == [404, 404, 404]


def _post(client: McpClient) -> Answer:
    return client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


def _call(client: McpClient) -> Answer:
    arguments = {"group": "office", "name": "query", "args": {}}
    params = {"name": "call_dynamic_tool", "arguments": arguments}
    return client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def _answer(client: McpClient) -> Answer:
    return client.post({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}})


def _delete(client: McpClient) -> Answer:
    return client.target.request("DELETE", client.path, *client.fields())


def _get(client: McpClient, *lines: str) -> Answer:
    """Ask for a stream; of one that opens, only the head is read."""
    with Wire(client.target.port) as wire:
        wire.send(head("GET", client.path, *client.fields("Accept: text/event-stream", *lines, "Connection: close")))
        answer = wire.read_head()
        assert answer is not None
        return answer if answer.status == 200 else Answer(answer.status, {}, wire.read_body(answer))
