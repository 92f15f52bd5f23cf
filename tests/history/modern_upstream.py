"""The nonce server as a modern one over HTTP: a question ends the answer, and the retry goes on with the call.

What it notes in the history is said in the legacy way, so that the same checker judges it. Each client that says
another name is an instance of its own there; a request that says the wrong name is seen as greeted by the wrong one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator

from tests.history.modern_client import LISTEN, PREFIX
from tests.history.nonce_server import CAPABILITIES, NonceServer
from tests.history.record import History, Json, parse
from tests.upstreams.odd_http import Connection, Request

_QUESTION = "question"


class _Instance:
    """The server for the clients of one name. Requests have ids of its own, since each connection has others."""

    def __init__(self, name: str, group: str, client: Json, history: History) -> None:
        self.name = name
        self._history = history
        self._ids = itertools.count(1)
        self._server = NonceServer(group, self._write)
        self._streams: dict[int, asyncio.Queue[Json]] = {}
        self._parked: dict[str, tuple[int, int]] = {}  # by state: the call, and its question
        self._listens: dict[asyncio.Queue[Json], tuple[str, Json]] = {}
        self._has_turn = False
        self._note_got({"id": 0, "method": "initialize", "params": {"clientInfo": client}})

    def begin(self, message: Json) -> tuple[int, asyncio.Queue[Json]]:
        """Take a request; returns its id here, and the stream on which it is answered. None ends the stream."""
        params = dict(message["params"])
        meta = params.pop("_meta")
        params["_meta"] = {name: value for name, value in meta.items() if not name.startswith(PREFIX)}
        stream: asyncio.Queue[Json] = asyncio.Queue()
        state, responses = params.pop("requestState", None), params.pop("inputResponses", {})
        if state is not None:
            id, question = self._parked.pop(state)
            self._streams[id] = stream
            self._give({"id": question, "result": responses[_QUESTION]})
            return id, stream
        id = next(self._ids)
        self._streams[id] = stream
        self._give({"id": id, "method": message["method"], "params": params})
        return id, stream

    def give_up(self, id: int) -> None:
        """Take it that the client has closed the stream."""
        if self._streams.pop(id, None) is not None:
            self._give({"method": "notifications/cancelled", "params": {"requestId": id}})

    def listen(self, uri: str, id: Json) -> asyncio.Queue[Json]:
        """Return the stream on which the updates of a resource come."""
        stream: asyncio.Queue[Json] = asyncio.Queue()
        self._listens[stream] = (uri, id)
        self._give({"id": next(self._ids), "method": "resources/subscribe", "params": {"uri": uri}})
        return stream

    def stop_listening(self, stream: asyncio.Queue[Json]) -> None:
        """Take it that the client has closed such a stream."""
        uri, _ = self._listens.pop(stream)
        if uri not in [other for other, _ in self._listens.values()]:
            self._give({"id": next(self._ids), "method": "resources/unsubscribe", "params": {"uri": uri}})

    def close(self) -> None:
        """Note the end."""
        self._history.close(self.name)

    def _note_got(self, message: Json) -> None:
        self._history.get(self.name, json.dumps({"jsonrpc": "2.0", **message}).encode())

    def _give(self, message: Json) -> None:
        self._note_got(message)
        self._server.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._has_turn = self._server.is_busy
        if self._has_turn:
            self._server.turn()
            asyncio.get_running_loop().call_soon(self._turn)

    def _write(self, line: bytes, about: int | None) -> None:
        self._history.send(self.name, line)
        message = parse(line)
        match message:
            case {"method": str(), "id": question} if about is not None:
                self._park(about, question, message)
            case {"method": "notifications/resources/updated", "params": {"uri": uri}}:
                for stream, (wanted, id) in self._listens.items():
                    if wanted == uri:
                        stream.put_nowait({**message, "params": {"uri": uri, "_meta": _mark(id)}})
            case {"method": "notifications/cancelled"}:
                pass  # of a question, which nobody has in flight
            case {"method": str()} if about in self._streams:
                self._streams[about].put_nowait(message)
            case {"id": id} if id in self._streams:
                self._answer(id, message)

    def _park(self, call: int, question: int, message: Json) -> None:
        state = f"{self.name} {call} {question}"
        self._parked[state] = (call, question)
        asked = {"method": message["method"], "params": message["params"]}
        result = {"resultType": "input_required", "inputRequests": {_QUESTION: asked}, "requestState": state}
        self._history.send(self.name, json.dumps({"jsonrpc": "2.0", "id": call, "result": result}).encode())
        self._answer(call, {"jsonrpc": "2.0", "id": call, "result": result})

    def _answer(self, id: int, message: Json) -> None:
        if "result" in message:
            message = {**message, "result": {"resultType": "complete", **message["result"]}}
        stream = self._streams.pop(id)
        stream.put_nowait(message)
        stream.put_nowait(None)


class ModernNonceHttp:
    """The listener: an instance for each name that clients say."""

    def __init__(self, group: str, history: History) -> None:
        self._group = group
        self._history = history
        self._instances: dict[str, _Instance] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen and hand out the URL."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()
            for task in [*self._tasks]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for instance in self._instances.values():
                instance.close()

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        try:
            while True:
                await self._answer(await connection.request(), connection, reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _answer(self, request: Request, to: Connection, reader: asyncio.StreamReader) -> None:
        message = request.message if request.method == "POST" else {}
        meta = (message.get("params") or {}).get("_meta", {})
        if f"{PREFIX}clientCapabilities" not in meta:
            error = {"code": -32602, "message": "only 2026-07-28 is served"}
            await to.respond(400, json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error}).encode())
        elif message["method"] == "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": _without_tasks(), "resultType": "complete"}
            body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            await to.respond(200, json.dumps(body).encode(), content_type="application/json")
        else:
            await self._stream(message, meta, to, reader)

    async def _stream(self, message: Json, meta: Json, to: Connection, reader: asyncio.StreamReader) -> None:
        client = meta[f"{PREFIX}clientInfo"]
        name = f"{self._group}#{client['name']}"
        if name not in self._instances:
            self._instances[name] = _Instance(name, self._group, client, self._history)
        instance = self._instances[name]
        if message["method"] == LISTEN:
            filters = message["params"]["notifications"]
            stream: asyncio.Queue[Json] = asyncio.Queue()
            streams = [instance.listen(uri, message["id"]) for uri in filters.get("resourceSubscriptions", [])]
            said = {"notifications": filters, "_meta": _mark(message["id"])}
            await to.events()
            await _write(to, {"method": "notifications/subscriptions/acknowledged", "params": said})
            sources = [*streams, stream]

            def end() -> None:
                for each in streams:
                    instance.stop_listening(each)
        else:
            id, stream = instance.begin(message)
            await to.events()
            sources = [stream]

            def end() -> None:
                instance.give_up(id)

        pouring = asyncio.ensure_future(_pour_all(sources, to, message["id"]))
        closing = asyncio.ensure_future(_wait_for_end(reader))
        try:
            await asyncio.wait({pouring, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end()
            pouring.cancel()
            await asyncio.gather(pouring, return_exceptions=True)
        if closing.done():
            raise ConnectionError
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await to.end_events()


def _mark(id: Json) -> Json:
    return {f"{PREFIX}subscriptionId": id}


def _without_tasks() -> Json:
    return {name: value for name, value in CAPABILITIES.items() if name != "tasks"}


async def _write(to: Connection, message: Json) -> None:
    await to.event(b"event: message\ndata: %b\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode())


async def _wait_for_end(reader: asyncio.StreamReader) -> None:
    """Wait until the client closes, which sends nothing while it waits for an answer."""
    assert not await reader.read(1)


async def _pour_all(streams: list[asyncio.Queue[Json]], to: Connection, id: Json) -> None:
    await asyncio.gather(*(_pour(stream, to, id) for stream in streams))


async def _pour(stream: asyncio.Queue[Json], to: Connection, id: Json) -> None:
    while (message := await stream.get()) is not None:
        await _write(to, message if "method" in message else {**message, "id": id})
