"""What hostile clients over HTTP cannot do to the program or to its other clients. The whole program."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.attacks.target import Target, serving
from tests.http_client import HttpClient, HttpConnection
from tests.http_program import HttpProgram, serving_http
from tests.mcp_client import BOTH, McpClient, McpStream, Refused, open_sessions
from tests.process.http_client import write_config
from tests.program import BOUND_S, Json, full, odd, text_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors as Linux tells them")

_SECRETS = ("secret-in-the-query", "secret-in-a-header", "secret-in-a-cookie")
_MAX_GROWTH_MIB = 250


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[HttpProgram]:
    async with _serving(tmp_path, {"odd": odd(), "full": full()}) as program:
        yield program


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A program for attacks that leave it as it was."""
    with serving(tmp_path_factory.mktemp("shared"), {"odd": odd(), "full": full()}) as target:
        yield target


@contextlib.asynccontextmanager
async def session(program: HttpProgram | Target, path: str = "/mcp", **options: Json) -> AsyncIterator[McpClient]:
    """Begin a session over connections of its own."""
    async with HttpClient(program.origin) as http:
        client = McpClient(http, path, **options)
        await client.initialize({"elicitation": {}})
        yield client


async def echo(client: McpClient, text: str = "a") -> str:
    return text_of((await client.call("odd", "echo", {"text": text}))["result"])


# --- secrets -------------------------------------------------------------------------------------------


async def test_what_a_client_shows_of_itself_reaches_no_server_and_no_log(program: HttpProgram) -> None:
    query, header, cookie = _SECRETS
    headers = {"Authorization": f"Bearer {header}", "Cookie": f"session={cookie}"}
    async with session(program, f"/mcp?access_token={query}", headers=headers) as client:
        told = [await client.call("odd", tool) for tool in ("env", "process", "record")]
        with pytest.raises(Refused) as refused:
            await McpClient(client.http, f"/nothing?access_token={query}", headers=headers).initialize()
    for place in (json.dumps(told), refused.value.body.decode(), program.log()):
        assert not [each for each in _SECRETS if each in place]


async def test_a_session_id_in_the_query_is_none(shared: Target) -> None:
    async with session(shared) as client:
        stranger = McpClient(client.http, f"/mcp?session_id={client.id}&mcp-session-id={client.id}")
        with pytest.raises(Refused) as refused:
            await stranger.request("ping")
        assert refused.value.status == 400


# --- what is not theirs --------------------------------------------------------------------------------


async def test_sixty_clients_with_equal_ids_get_their_own_answers(shared: Target) -> None:
    async with HttpClient(shared.origin) as http:
        clients = await open_sessions(http, 60)
        texts = [str(number) for number in range(60)]
        assert await asyncio.gather(*(echo(*each) for each in zip(clients, texts, strict=True))) == texts


async def test_nobody_else_answers_a_question_or_takes_the_stream_on_which_it_came(program: HttpProgram) -> None:
    async with session(program) as asked, session(program) as other:
        id, stream = await asked.begin("tools/call", _call("full", "elicit"))
        question = await stream.hear("elicitation/create")
        for guess in range(10):
            await other.reply({"id": guess}, {"action": "accept", "content": {"answer": "foreign"}})
        stream.cut()
        taken = await other.get(stream.last_id or "")
        assert (taken.status, b"elicitation" in await taken.read()) == (400, False)

        await asked.reply(question, {"action": "decline"})
        await asked.resume(stream)
        answer = json.dumps(await stream.until(id))
        assert "decline" in answer
        assert "foreign" not in answer


async def test_a_session_that_ends_while_it_is_asked_ends_the_call(program: HttpProgram) -> None:
    async with session(program) as client:
        _, stream = await client.begin("tools/call", _call("full", "elicit"))
        question = await stream.hear("elicitation/create")
        assert await client.delete() == 204
        assert await stream.next() is None
        with pytest.raises(Refused) as refused:
            await client.reply(question, {"action": "decline"})
        assert refused.value.status == 404
    assert await program.count_sessions() == 0


async def test_a_session_is_deleted_once_though_calls_are_in_flight(program: HttpProgram) -> None:
    async with session(program) as client, session(program) as other:
        calls = [client.post(client.message("tools/call", _call("odd", "hold"))) for _ in range(10)]
        held = [asyncio.create_task(each) for each in calls]
        while json.dumps(await other.call("odd", "record")).count("hold") < 10:
            pass
        assert sorted(await asyncio.gather(client.delete(), client.delete())) == [204, 404]
        assert {(await each).status for each in held} == {404}
        assert await echo(other) == "a"


# --- what is too much ----------------------------------------------------------------------------------

_PARAMS = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":'
TOO_MUCH = [
    pytest.param(b"[" * 1_000_000 + b"]" * 1_000_000, 400, id="deep arrays"),
    pytest.param(_PARAMS + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_001, 400, id="deep params"),
    pytest.param(b"[" + b"1," * 8_000_000 + b"1]", 400, id="a batch of millions of numbers"),
    pytest.param(b'{"x":"\\ud800"' + b',"a":1' * 2_000_000 + b"}", 400, id="millions of members"),
    pytest.param(b" " * 100_000_000, 413, id="100 MB"),
]


@pytest.mark.parametrize(("body", "status"), TOO_MUCH)
@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_a_message_that_is_too_much_is_refused_in_bounded_memory(
    shared: Target, body: bytes, status: int, version: str
) -> None:
    async with session(shared, version=version) as client:
        before = shared.peak_mib()
        refused = await client.post(body)
        assert refused.status == status
        assert len(await refused.read()) < 1000
        assert shared.peak_mib() - before < _MAX_GROWTH_MIB
        assert await echo(client) == "a"


async def test_ten_thousand_headers_are_refused(shared: Target) -> None:
    async with HttpClient(shared.origin) as http:
        refused = await http.request("POST", "/mcp", {f"X-{number}": "1" for number in range(10_000)}, b"{}")
        assert refused.status == 431


async def test_a_method_in_the_headers_that_is_not_that_of_the_body_is_refused(shared: Target) -> None:
    async with session(shared) as client:
        assert (await client.post(client.message("ping"), mcp_method="tools/list")).status == 400


async def test_clients_that_say_half_of_it_cost_the_others_nothing(program: HttpProgram) -> None:
    """Heads and bodies that do not end, connections without a word, and streams that nobody reads."""
    half = (b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Le", b"", _half_body())
    async with session(program) as client, HttpClient(program.origin) as attacker:
        assert await echo(client) == "a"
        await client.call("full", "record")  # or it is connected later, for its catalog, and closed after a minute
        before = program.count_sockets()
        connections = [await attacker.connect() for _ in range(500)]
        for number, each in enumerate(connections):
            each.writer.write(half[number % len(half)])
        assert [await echo(client, str(number)) for number in range(20)] == [str(number) for number in range(20)]
        for each in connections:
            each.abort()
        while program.count_sockets() > before:
            await echo(client)
    assert await program.count_sessions() == 1, "the one that was not deleted"


async def test_many_streams_of_a_session_leave_one(program: HttpProgram) -> None:
    async with session(program) as client:
        streams = [await client.listen() for _ in range(50)]
        for each in streams[:-1]:
            await _read_to_end(each)
        assert await streams[-1].next_event() is not None
        for _ in range(50):  # each takes it from the one before
            await client.resume(streams[-1])
        assert await echo(client) == "a"
        assert await client.delete() == 204
        await _read_to_end(streams[-1])


async def test_sessions_that_fail_to_begin_take_no_place(tmp_path: Path) -> None:
    servers = {"odd": odd(), "bad": odd("init_error", "no")}
    async with _serving(tmp_path, servers, max_sessions=3) as program, HttpClient(program.origin) as http:
        for _ in range(5):
            client = McpClient(http, "/mcp/bad")
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
            answer = await client.request("initialize", hello)
            assert "error" in answer
        assert await program.count_sessions() == 0
        await open_sessions(http, 3)
        with pytest.raises(Refused) as refused:
            await McpClient(http).initialize()
        assert (refused.value.status, "retry-after" in refused.value.headers) == (503, True)


async def test_clients_that_vanish_while_a_group_begins_leave_nothing(tmp_path: Path) -> None:
    servers = {"slow": odd("slow_init", "2")}
    async with _serving(tmp_path, servers) as program, HttpClient(program.origin) as http:
        client = McpClient(http, "/mcp/slow")
        hello = client.message("initialize", {"protocolVersion": "2025-03-26", "capabilities": {}})
        begun = [await http.connect() for _ in range(5)]
        for each in begun:
            each.write_request("POST", client.path, _json_fields(), json.dumps(hello).encode())
        while await program.count_sessions() < 5:
            pass
        for each in begun:
            _reset(each)
        await client.initialize()
        while await program.count_sessions() > 1:
            pass


# --- while the config changes, and at the end ------------------------------------------------------------


async def test_a_session_of_a_group_that_leaves_the_config_can_still_end_and_go_on(tmp_path: Path) -> None:
    servers = {"odd": odd(), "gone": odd()}
    async with _serving(tmp_path, servers) as program, HttpClient(program.origin) as http:
        stays, ends = McpClient(http, "/mcp/gone"), McpClient(http, "/mcp/gone")
        await stays.initialize()
        await ends.initialize()
        listening = await stays.listen()

        write_config(tmp_path, {"odd": odd()}, http={})
        await listening.hear("notifications/tools/list_changed")

        answer = await stays.request("tools/call", {"name": "echo", "arguments": {"text": "a"}})
        assert "no group is named `gone`" in text_of(answer["result"])
        assert await ends.delete() == 204
        with pytest.raises(Refused) as refused:
            await McpClient(http, "/mcp/gone").initialize()
        assert refused.value.status == 404
        write_config(tmp_path, servers, http={})
        await listening.hear("notifications/tools/list_changed")
        answer = await stays.request("tools/call", {"name": "echo", "arguments": {"text": "back"}})
        assert text_of(answer["result"]) == "back"


async def test_a_signal_ends_it_whatever_is_open(tmp_path: Path) -> None:
    servers = {"odd": odd(), "hung": odd("hang_init")}
    async with _serving(tmp_path, servers, shutdown_timeout="100ms") as program, HttpClient(program.origin) as http:
        clients = await open_sessions(http, 50)
        streams = [await each.listen() for each in clients]
        calls = [asyncio.create_task(_outcome(each, _call("odd", "hold"))) for each in clients[:10]]
        hung = McpClient(http, "/mcp/hung")
        begins = asyncio.create_task(hung.request("initialize", {"protocolVersion": "2025-11-25"}))
        half = [await _open_half(http) for _ in range(10)]
        while json.dumps(await clients[-1].call("odd", "record")).count("hold") < 10:
            pass

        program.end()

        for stream in streams:
            await _read_to_end(stream)
        assert {await each for each in calls} == {"may have run"}
        assert "error" in await begins
        assert await program.process.wait() == 0
        for each in half:
            assert await each.reader.read() == b""


@contextlib.asynccontextmanager
async def _serving(folder: Path, servers: Json, **http: Json) -> AsyncIterator[HttpProgram]:
    """Run the program, which meets no bug of its own meanwhile."""
    async with asyncio.timeout(BOUND_S), serving_http(folder, servers, settings={"http": http}) as program:
        yield program
        assert "Traceback" not in program.log()


def _call(group: str, tool: str) -> Json:
    return {"name": "call_dynamic_tool", "arguments": {"group": group, "name": tool, "args": {}}}


async def _outcome(client: McpClient, params: Json) -> str:
    answer = await client.request("tools/call", params)
    return "may have run" if "may have run" in json.dumps(answer) else json.dumps(answer)


def _json_fields() -> dict[str, str]:
    return {"Accept": BOTH, "Content-Type": "application/json"}


def _half_body() -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in _json_fields().items())
    return f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 100000\r\n\r\n{{".encode()


async def _read_to_end(stream: McpStream) -> None:
    while await stream.next() is not None:
        pass


def _reset(connection: HttpConnection) -> None:
    """Cut a connection so that the peer knows at once that nobody reads its answer."""
    socket_ = connection.writer.get_extra_info("socket")
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()


async def _open_half(http: HttpClient) -> HttpConnection:
    connection = await http.connect()
    connection.writer.write(_half_body())
    return connection
