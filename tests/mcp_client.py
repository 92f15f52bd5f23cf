"""A client of MCP over streamable HTTP for tests: it shows which message came on which stream, and with which id.

It does nothing by itself: it opens no stream, resumes none and answers no question unless it is told to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.http_client import HttpClient, Response, ServerEvent

Json = Any  # whatever JSON a test writes down
BOTH = "application/json, text/event-stream"


class Refused(Exception):
    """A request was answered with a status that is not the expected one."""

    def __init__(self, response: Response, body: bytes) -> None:
        super().__init__(f"{response}: {body!r}")
        self.status = response.status
        self.headers = response.headers
        self.body = body


@dataclass
class McpStream:
    """One stream of a session, over all the connections on which it came. `last_id` is where it can be resumed."""

    response: Response
    last_id: str | None = None
    retry_ms: int | None = None
    messages: list[dict[str, Json]] = field(default_factory=list)

    async def next_event(self) -> ServerEvent | None:
        """Wait for the next event, also one without a message; None says that the stream has ended."""
        event = await self.response.next_event()
        if event is not None:
            self.last_id = event.id or self.last_id
            self.retry_ms = event.retry_ms or self.retry_ms
        return event

    async def next(self) -> dict[str, Json] | None:
        """Wait for the next message; None says that the stream has ended. Raises Disconnected."""
        while (event := await self.next_event()) is not None:
            if event.data:
                message: dict[str, Json] = json.loads(event.data)
                self.messages.append(message)
                return message
        return None

    async def until(self, id: Json) -> dict[str, Json]:
        """Read until the answer to a request has come, and return it."""
        while (message := await self.next()) is not None:
            if message.get("id") == id and "method" not in message:
                return message
        raise EOFError(f"the stream ended without an answer to {id!r}, after {self.messages}")

    async def hear(self, method: str) -> dict[str, Json]:
        """Read until a message with this method has come, and return it."""
        while (message := await self.next()) is not None:
            if message.get("method") == method:
                return message
        raise EOFError(f"the stream ended without `{method}`, after {self.messages}")

    def cut(self) -> None:
        """Cut its connection."""
        self.response.abort()


class McpClient:
    """One session. `id` is empty before it has begun."""

    def __init__(
        self,
        http: HttpClient,
        path: str = "/mcp",
        *,
        version: str = "2025-11-25",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.http = http
        self.path = path
        self.version = version
        self.headers = dict(headers or {})
        self.id = ""
        self.hello: dict[str, Json] = {}
        self._next = 0

    # --- as it is said over HTTP -----------------------------------------------------------------------

    def fields(self, **more: str) -> dict[str, str]:
        """Return the headers of the session; underscores in names are hyphens, and an empty value leaves one out."""
        fields = dict(self.headers)
        if self.id:
            fields |= {"Mcp-Session-Id": self.id, "Mcp-Protocol-Version": self.version}
        fields |= {name.replace("_", "-").title(): value for name, value in more.items()}
        return {name: value for name, value in fields.items() if value}

    async def post(self, body: Json, **headers: str) -> Response:
        """Send a message, a batch, or bytes as they are; the answer's head has come."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = self.fields(**{"accept": BOTH, "content_type": "application/json", **headers})
        return await self.http.request("POST", self.path, fields, data)

    async def get(self, last_id: str = "", **headers: str) -> Response:
        """Open a stream, or resume one after the event with this id."""
        fields = self.fields(**{"accept": "text/event-stream", "last_event_id": last_id, **headers})
        return await self.http.request("GET", self.path, fields)

    # --- as it is said in MCP --------------------------------------------------------------------------

    async def initialize(self, capabilities: Json = None, name: str = "test") -> dict[str, Json]:
        """Begin the session, and return the answer to `initialize`."""
        client = {"name": name, "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": capabilities or {}, "clientInfo": client}
        response = await self.post(self.message("initialize", params))
        answer = await _read_answer(response, self._next)
        self.id = response.headers.get("mcp-session-id", "")
        self.version = answer["result"]["protocolVersion"]
        self.hello = answer["result"]
        await self.notify("notifications/initialized")
        return answer

    async def request(self, method: str, params: Json = None) -> dict[str, Json]:
        """Send a request and return its answer; what else comes on its stream is passed over."""
        message = self.message(method, params)
        return await _read_answer(await self.post(message), message["id"])

    async def begin(self, method: str, params: Json = None) -> tuple[int, McpStream]:
        """Send a request that is answered with a stream; return its id, and the stream."""
        message = self.message(method, params)
        return message["id"], await _as_stream(await self.post(message))

    async def call(self, group: str, tool: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool through `call_dynamic_tool`, and return the answer."""
        arguments = {"group": group, "name": tool, "args": args or {}}
        return await self.request("tools/call", {"name": "call_dynamic_tool", "arguments": arguments, **params})

    async def notify(self, method: str, params: Json = None) -> None:
        """Send a notification."""
        await self._send_only({"method": method, **({"params": params} if params is not None else {})})

    async def reply(self, question: Mapping[str, Json], result: Json) -> None:
        """Answer a request of the server."""
        await self._send_only({"id": question["id"], "result": result})

    async def listen(self) -> McpStream:
        """Open the stream for what the server says by itself."""
        return await _as_stream(await self.get())

    async def resume(self, stream: McpStream) -> None:
        """Go on with a stream that was cut, behind its last event."""
        assert stream.last_id, "the stream has no event with an id"
        resumed = await _as_stream(await self.get(stream.last_id))
        stream.response = resumed.response

    async def delete(self) -> int:
        """End the session, and return the status that says so."""
        response = await self.http.request("DELETE", self.path, self.fields())
        await response.read()
        return response.status

    def message(self, method: str, params: Json = None) -> dict[str, Json]:
        """Return a request with the next id."""
        self._next += 1
        message: dict[str, Json] = {"jsonrpc": "2.0", "id": self._next, "method": method}
        return message if params is None else {**message, "params": params}

    async def _send_only(self, message: Json) -> None:
        response = await self.post({"jsonrpc": "2.0", **message})
        body = await response.read()
        if response.status != 202 or body:
            raise Refused(response, body)


async def open_sessions(client: HttpClient, count: int, path: str = "/mcp") -> list[McpClient]:
    """Begin so many sessions at once."""
    sessions = [McpClient(client, path) for _ in range(count)]
    await asyncio.gather(*(session.initialize() for session in sessions))
    return sessions


async def _as_stream(response: Response) -> McpStream:
    if response.status != 200 or not response.is_stream:
        raise Refused(response, await response.read())
    return McpStream(response)


async def _read_answer(response: Response, id: int) -> dict[str, Json]:
    """Return the answer to a request, in whichever of the two forms it comes. Raises Refused."""
    if response.status == 200 and response.is_stream:
        answer = await McpStream(response).until(id)
        await response.read()
        return answer
    body = await response.read()
    if response.status != 200:
        raise Refused(response, body)
    message: dict[str, Json] = json.loads(body)
    assert message["id"] == id, f"the answer to {id} is {body!r}"
    return message
