"""An MCP server over stdio for the tests that offers all of protocol 2025-11-25, and offers it correctly.

    python full.py [--name NAME] [--scheme SCHEME] [--task-ids PREFIX] [--page N] [--many N]
                   [--without CAPABILITY]… [--hang METHOD]… [--refuse METHOD]…

It does nothing by itself: an update, a log message, progress and the end of a task come when a tool is called
(full_tools.py), so that tests interleave by events. What it says is literal bytes (full_offers.py). Two instances
have equal URIs and equal ids of requests; with the same PREFIX also equal ids of tasks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or __package__:
    from . import full_offers as offers
    from .full_tasks import Task, Tasks
    from .full_tools import TOOLS
else:  # started by its path, as an upstream is
    import full_offers as offers
    from full_tasks import Task, Tasks
    from full_tools import TOOLS

__all__ = ["Options", "Request", "Server", "Task"]

Json = Any  # what a peer sent, of any shape


class Options(NamedTuple):
    """The command line: `page` is how many entries a page has, `many` how many entries more every list has."""

    name: str = "full"
    scheme: str = "full"
    task_ids: str = ""
    page: int = 0
    many: int = 0
    without: tuple[str, ...] = ()
    hang: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()


class Request(NamedTuple):
    """One request of the client; `id` is as JSON, `line` as it came."""

    id: bytes
    method: str
    params: dict[str, Json]
    line: bytes

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments of a tool call."""
        return self.params.get("arguments") or {}

    @property
    def raw_params(self) -> bytes:
        """The params as they came."""
        text = self.line.decode()
        start = text.index('"params":') + len('"params":')
        return text[start : json.JSONDecoder().raw_decode(text, start)[1]].encode()

    @property
    def token(self) -> Json:
        """The progress token, or None."""
        return self.params.get("_meta", {}).get("progressToken")


class Server:
    """The server behind any transport: takes lines with `receive`, writes lines with `write`."""

    def __init__(self, options: Options, write: Callable[[bytes], None]) -> None:
        self.options = options
        self.write = write
        self.crash: Callable[[], object] = lambda: os._exit(7)
        self.received: list[bytes] = []
        self.in_flight: dict[bytes, Request] = {}
        self.held: dict[str, Request] = {}
        self.asked: dict[int, Callable[[bytes], None]] = {}
        self.level = "info"
        self.subscribed: list[str] = []
        self.added: dict[str, list[bytes]] = {"tools": [], "resources": [], "resourceTemplates": [], "prompts": []}
        self.tasks = Tasks(self)
        self._next_question = 1
        self.handlers: dict[str, Callable[[Request], None]] = {
            "initialize": self._initialize,
            "ping": lambda request: self.answer(request, b"{}"),
            "tools/list": lambda request: self._list(request, "tools", self._tools()),
            "tools/call": self._call_tool,
            "resources/list": lambda request: self._list(request, "resources", offers.RESOURCES),
            "resources/templates/list": lambda request: self._list(request, "resourceTemplates", offers.TEMPLATES),
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": lambda request: self._list(request, "prompts", offers.PROMPTS),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            "tasks/get": self.tasks.get,
            "tasks/result": self.tasks.result,
            "tasks/list": self.tasks.list_all,
            "tasks/cancel": self.tasks.cancel,
            "vendor/echo": lambda request: self.answer(request, request.raw_params),
        }

    # --- writing ---------------------------------------------------------------------------------------

    def filled(self, data: bytes, **values: bytes) -> bytes:
        """Fill in the server's name and scheme, the long number, and these values."""
        own = {"name": self.options.name.encode(), "scheme": self.options.scheme.encode(), "long": offers.LONG}
        for name, value in (own | values).items():
            data = data.replace(b"@%s@" % name.encode(), value)
        return data

    def answer(self, request: Request, result: bytes, **values: bytes) -> None:
        """Answer once, and not at all after a cancellation."""
        if self.in_flight.pop(request.id, None):
            self.write(b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (request.id, self.filled(result, **values)))

    def answer_text(self, request: Request, text: str) -> None:
        """Answer a tool call with one text."""
        self.answer(request, to_json({"content": [{"type": "text", "text": text}]}))

    def refuse(self, request: Request, code: int, message: str) -> None:
        """Answer with an error."""
        self.refuse_with(request, b'{"x-first":1,"code":%d,"message":%s}' % (code, to_json(message)))

    def refuse_with(self, request: Request, error: bytes, **values: bytes) -> None:
        """Answer with this error."""
        if self.in_flight.pop(request.id, None):
            self.write(b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (request.id, self.filled(error, **values)))

    def notify(self, method: str, params: bytes, **values: bytes) -> None:
        """Send a notification."""
        line = b'{"jsonrpc":"2.0","method":%s,"params":%s}\n'
        self.write(line % (to_json(method), self.filled(params, **values)))

    def report(self, token: Json, step: int) -> None:
        """Send progress, if the request has a token."""
        if token is not None:
            self.notify("notifications/progress", offers.PROGRESS, step=to_json(step), token=to_json(token))

    def ask(self, method: str, params: bytes, then: Callable[[bytes], None], **values: bytes) -> None:
        """Send a request to the client; `then` takes the line that answers it."""
        number = self._next_question
        self._next_question += 1
        self.asked[number] = then
        line = b'{"jsonrpc":"2.0","id":%d,"method":%s,"params":%s}\n'
        self.write(line % (number, to_json(method), self.filled(params, **values)))

    # --- reading ---------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        """Handle one line."""
        self.received.append(line)
        message = json.loads(line)
        match message:
            case {"method": str(method), "id": number}:
                params = message.get("params")
                self._handle(Request(to_json(number), method, params if isinstance(params, dict) else {}, line))
            case {"method": "notifications/cancelled", "params": {"requestId": number}}:
                self.in_flight.pop(to_json(number), None)
            case {"id": int(number)} if number in self.asked:
                self.asked.pop(number)(line)

    def _handle(self, request: Request) -> None:
        self.in_flight[request.id] = request
        handler = self.handlers.get(request.method)
        if request.method in self.options.refuse:
            self.refuse(request, -32603, f"{request.method} is out of order")
        elif request.method in self.options.hang:
            pass
        elif handler is None or self._is_left_out(request.method):
            self.refuse(request, -32601, "method not found")
        else:
            handler(request)

    def _is_left_out(self, method: str) -> bool:
        return any(each.startswith(method.partition("/")[0]) for each in self.options.without)

    def _initialize(self, request: Request) -> None:
        known = {name: value for name, value in offers.CAPABILITIES.items() if name not in self.options.without}
        self.answer(
            request,
            offers.HELLO,
            version=to_json(request.params["protocolVersion"]),
            known=b",".join(b'"%s":%s' % (name.encode(), value) for name, value in known.items()),
            instructions=self.filled(offers.INSTRUCTIONS),
        )

    # --- lists -----------------------------------------------------------------------------------------

    def _tools(self) -> Iterable[bytes]:
        return (tool.listed for tool in TOOLS.values())

    def _list(self, request: Request, member: str, entries: Iterable[bytes]) -> None:
        key = {"resources": "uri", "resourceTemplates": "uriTemplate"}.get(member, "name")
        tail = b"/{id}" if member == "resourceTemplates" else b""
        many = (b'{"%s":"@scheme@://@name@/%d%s"}' % (key.encode(), n, tail) for n in range(self.options.many))
        self.answer_list(request, member, [*entries, *self.added[member], *(() if member == "tools" else many)])

    def answer_list(self, request: Request, member: str, entries: list[bytes]) -> None:
        """Answer with the page that the request asks for."""
        start = int(request.params.get("cursor", "ä:0").partition(":")[2])
        size = self.options.page or len(entries)
        more = b',"nextCursor":"\\u00e4:%d"' % (start + size) if start + size < len(entries) else b""
        page = b" ,".join(entries[start : start + size])
        self.answer(request, b'{%s,"%s":[ %s ]%s}' % (offers.LIST_REST, member.encode(), page, more))

    # --- the other requests ----------------------------------------------------------------------------

    def _call_tool(self, request: Request) -> None:
        tool = TOOLS.get(str(request.params.get("name")))
        if tool is None:
            self.refuse(request, -32602, "unknown tool")
        elif "task" in request.params:
            self.tasks.begin(request)
        else:
            tool.run(self, request)

    def _read(self, request: Request) -> None:
        uri = str(request.params["uri"])
        readable = {self.filled(key.encode()).decode(): value for key, value in offers.READABLE.items()}
        templates = (self.filled(b"@scheme@://item/").decode(), self.filled(b"@scheme@://@name@/files").decode())
        if uri in readable:
            self.answer(request, readable[uri])
        elif uri.startswith(templates):
            self.answer(request, offers.ITEM, uri=to_json(uri))
        else:
            self.refuse_with(request, offers.NOT_READABLE, uri=to_json(uri))

    def _subscribe(self, request: Request) -> None:
        self.subscribed.append(str(request.params["uri"]))
        self.answer(request, b'{"_meta":{"x-subscribed":1.0}}')

    def _unsubscribe(self, request: Request) -> None:
        self.subscribed.remove(str(request.params["uri"]))
        self.answer(request, b'{"_meta":{"x-unsubscribed":1.0}}')

    def _get_prompt(self, request: Request) -> None:
        names = [json.loads(self.filled(prompt))["name"] for prompt in offers.PROMPTS]
        if request.params.get("name") not in names:
            self.refuse(request, -32602, "unknown prompt")
            return
        city = request.arguments.get("city", "nobody")
        more = offers.ODD_MESSAGE if request.arguments.get("style") == "odd" else b""
        self.answer(request, offers.PROMPT, greeting=to_json(f"Hello {city}"), more=more)

    def _complete(self, request: Request) -> None:
        ref = request.params["ref"]
        asked = f"{ref.get('name') or ref.get('uri')} {request.params['argument']['value']}"
        self.answer(request, offers.COMPLETION, value=to_json(asked))

    def _set_level(self, request: Request) -> None:
        level = request.params.get("level")
        if level in offers.LEVELS:
            self.level = str(level)
            self.answer(request, b"{}")
        else:
            self.refuse(request, -32602, "unknown level")


def to_json(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def options_from(arguments: list[str]) -> Options:
    """Read the command line."""
    found: dict[str, Json] = {}
    for option, value in zip(arguments[::2], arguments[1::2], strict=True):
        field = option.removeprefix("--").replace("-", "_")
        default = getattr(Options(), field)
        if isinstance(default, tuple):
            found[field] = (*found.get(field, ()), value)
        else:
            found[field] = type(default)(value)
    return Options(**found)


def main() -> None:
    """Serve what comes in on stdin, until it ends."""

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    server = Server(options_from(sys.argv[1:]), write)
    for line in sys.stdin.buffer:
        server.receive(line.rstrip(b"\n"))


if __name__ == "__main__":
    main()
