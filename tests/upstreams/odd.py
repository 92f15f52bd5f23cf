"""An MCP server over stdio for the tests: correct but for the fault that it is asked to show.

    python odd.py [MODE [ARGUMENT]]
    python odd.py --list

A mode (odd_modes.py) is a fault of the start, or of the whole life. The tools, `fault` above all, show the
faults of a call (odd_faults.py). One thread handles the messages in order; a tool that will answer later
returns None.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or __package__:
    from .odd_faults import FAULTS, RICH, answer, error_frame, result_frame, text_result, to_json
    from .odd_modes import MODES, made_up_tool
else:  # started by its path, as an upstream is
    from odd_faults import FAULTS, RICH, answer, error_frame, result_frame, text_result, to_json
    from odd_modes import MODES, made_up_tool

__all__ = ["FAULTS", "MODES", "RICH", "TOOLS"]

Json = Any  # what a peer sent, of any shape


class Request(NamedTuple):
    """One request of the client; `id` is as JSON."""

    id: str
    method: str
    params: dict[str, Json]

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments of a tool call."""
        return self.params.get("arguments") or {}


Run = Callable[["Server", Request], str | None]


class Tool(NamedTuple):
    """A tool: what `tools/list` says of it, and what a call does."""

    listed: dict[str, Json]
    run: Run


TOOLS: dict[str, Tool] = {}


class Server:
    """A correct server; a mode changes its `hello`, its `listed` tools, its `handlers` or its `at_end`."""

    def __init__(self) -> None:
        self.hello: dict[str, Json] = {
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "odd", "version": "1.0.0"},
        }
        self.listed: list[Json] = [tool.listed for tool in TOOLS.values()]
        self.handlers: dict[str, Callable[[Request], None]] = {
            "initialize": self.initialize,
            "ping": lambda request: self.answer(request, b"{}"),
            "tools/list": lambda request: self.answer_list(request, self.listed),
            "tools/call": self.call_tool,
        }
        self.at_end: Callable[[], None] = lambda: None
        self.received: list[bytes] = []
        self.in_flight: dict[str, Request] = {}
        self.held: list[tuple[str, Request]] = []
        self.late: set[str] = set()
        self.asked: list[Request] = []
        self.grandchild: int | None = None
        self._writing = threading.Lock()

    def serve(self) -> None:
        """Handle what comes in on stdin, until it ends."""
        for line in sys.stdin.buffer:
            self.received.append(line.rstrip(b"\r\n"))
            self.receive(line)
        self.at_end()

    def write(self, *pieces: bytes) -> None:
        """Write one message, or one fault, with nothing of another in between."""
        self.write_each(pieces)

    def write_each(self, pieces: Iterable[bytes]) -> None:
        """Like `write`, for pieces that are still to be made; each is a write of its own."""
        with self._writing, suppress(OSError):  # the reader is gone, or stdout was closed on purpose
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(1, rest) :]

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.write(to_json({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def answer(self, request: Request, result: bytes) -> None:
        """Answer once, and not at all after a cancellation."""
        if self.in_flight.pop(request.id, None):
            self.write(result_frame(request.id, result))

    def answer_list(self, request: Request, tools: list[Json], next_cursor: str | None = None) -> None:
        """Answer `tools/list` with a page."""
        cursor = {"nextCursor": next_cursor} if next_cursor else {}
        self.answer(request, to_json({"tools": tools, **cursor}).encode())

    def refuse(self, request: Request, code: int, message: str) -> None:
        """Answer with an error."""
        if self.in_flight.pop(request.id, None):
            self.write(error_frame(request.id, code, message))

    def receive(self, line: bytes) -> None:
        """Handle one line."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self.write(error_frame("null", -32700, "parse error"))
            return
        match message:
            case {"method": str(method), "id": number}:
                params = message.get("params")
                self.handle(Request(to_json(number), method, params if isinstance(params, dict) else {}))
            case {"method": "notifications/cancelled", "params": {"requestId": number}}:
                self.cancel(to_json(number))
            case {"method": str()}:
                pass
            case {"id": int(number)} if 0 < number <= len(self.asked):
                self.answer(self.asked[number - 1], text_result(line.decode().rstrip("\r\n")))
            case _:
                self.write(error_frame("null", -32600, "neither a request nor an answer to one"))

    def handle(self, request: Request) -> None:
        """Handle one request."""
        self.in_flight[request.id] = request
        handler = self.handlers.get(request.method)
        if handler is None:
            self.refuse(request, -32601, f"method not found: {request.method}")
        else:
            handler(request)

    def cancel(self, request_id: str) -> None:
        """Forget a request; a call of the fault `late` is answered now of all times."""
        if self.in_flight.pop(request_id, None) and request_id in self.late:
            self.write(answer(request_id, "late"))

    def initialize(self, request: Request) -> None:
        """Agree to the version that the client asks for."""
        version = request.params.get("protocolVersion", "2025-11-25")
        self.answer(request, to_json({"protocolVersion": version, **self.hello}).encode())

    def call_tool(self, request: Request) -> None:
        """Run a tool; arguments that it cannot use make an error result."""
        name = str(request.params.get("name"))
        if name not in TOOLS:
            if any(isinstance(entry, dict) and entry.get("name") == name for entry in self.listed):
                self.answer(request, text_result(name))
            else:
                self.refuse(request, -32602, f"unknown tool: {name}")
            return
        try:
            text = TOOLS[name].run(self, request)
        except (AttributeError, KeyError, TypeError, ValueError) as wrong:
            self.answer(request, text_result(f"{name}: {wrong!r}", is_error=True))
        else:
            if text is not None:
                self.answer(request, text_result(text))

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Act after so many seconds, unless the process has ended by then."""
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()

    def report(self, request: Request, step: int, total: int) -> None:
        """Send a progress notification for a request that carries a token."""
        token = request.params.get("_meta", {}).get("progressToken")
        if token is not None:
            params = {"progressToken": token, "progress": step, "total": total, "message": f"step {step}"}
            self.notify("notifications/progress", params)


def tool(description: str, *, optional: tuple[str, ...] = (), **types: str | dict[str, Json]) -> Callable[[Run], Run]:
    """Register a tool under its function's name; `types` are the JSON types, or schemas, of its arguments."""
    properties = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in types.items()}
    required = [name for name in types if name not in optional]
    schema = {"type": "object", "properties": properties, "required": required}

    def register(run: Run) -> Run:
        name = run.__name__
        TOOLS[name] = Tool({"name": name, "description": description, "inputSchema": schema}, run)
        return run

    return register


# The tools.


@tool("Answers the text.", text="string")
def echo(server: Server, request: Request) -> str:
    return str(request.arguments["text"])


@tool("Answers the number, to tell many answers apart.", n="integer")
def nonce(server: Server, request: Request) -> str:
    return to_json(request.arguments["n"])


@tool("Answers after so many seconds; other calls go on.", seconds="number")
def sleep(server: Server, request: Request) -> None:
    seconds = float(request.arguments["seconds"])
    server.later(seconds, lambda: server.answer(request, text_result(f"slept {seconds:g} s")))


@tool("Answers a text of so many bytes.", bytes="integer")
def big(server: Server, request: Request) -> str:
    return "B" * int(request.arguments["bytes"])


@tool("Makes an empty file.", path="string")
def touch(server: Server, request: Request) -> str:
    os.close(os.open(request.arguments["path"], os.O_CREAT | os.O_WRONLY))
    return "made"


@tool("Answers its environment, as JSON.")
def env(server: Server, request: Request) -> str:
    return to_json(dict(os.environ))


@tool("Answers its process id.")
def pid(server: Server, request: Request) -> str:
    return str(os.getpid())


@tool("Answers its pid, parent, working directory, arguments and grandchild's pid, as JSON.")
def process(server: Server, request: Request) -> str:
    cwd = os.getcwd()  # noqa: PTH109 - pathlib is slow to import
    facts = {"pid": os.getpid(), "parent": os.getppid(), "cwd": cwd, "argv": sys.argv}
    return to_json(facts | {"grandchild": server.grandchild})


@tool(
    "Answers when `release` is called with the same key; reports progress once it is held.",
    optional=("key",),
    key="string",
)
def hold(server: Server, request: Request) -> None:
    server.held.append((request.arguments.get("key", ""), request))
    server.report(request, 0, 1)


@tool("Lets the calls of `hold` with the same key answer; says how many.", optional=("key",), key="string")
def release(server: Server, request: Request) -> str:
    key = request.arguments.get("key", "")
    held = [call for its_key, call in server.held if its_key == key and call.id in server.in_flight]
    server.held = [(its_key, call) for its_key, call in server.held if its_key != key]
    for call in held:
        server.answer(call, text_result("released"))
    return str(len(held))


@tool("Answers the lines that it has received, as a JSON array of strings; this call's is the last.")
def record(server: Server, request: Request) -> str:
    return to_json([line.decode(errors="backslashreplace") for line in server.received])


@tool("Reports progress so many times, then answers.", steps="integer")
def progress(server: Server, request: Request) -> str:
    steps = int(request.arguments["steps"])
    for step in range(1, steps + 1):
        server.report(request, step, steps)
    return f"{steps} steps"


@tool(
    "Sends a request to the client; answers the line that came back.",
    optional=("params",),
    method="string",
    params="object",
)
def ask(server: Server, request: Request) -> None:
    arguments = request.arguments
    server.asked.append(request)
    question = {"jsonrpc": "2.0", "id": len(server.asked), "method": str(arguments["method"])}
    params = {"params": arguments["params"]} if "params" in arguments else {}
    server.write(to_json(question | params).encode() + b"\n")


@tool("Sends a notification, then answers.", optional=("params",), method="string", params="object")
def notify(server: Server, request: Request) -> str:
    server.notify(str(request.arguments["method"]), request.arguments.get("params", {}))
    return "sent"


@tool("Lists one more tool, which answers its own name, and sends `list_changed`.", name="string")
def add_tool(server: Server, request: Request) -> str:
    server.listed.append(made_up_tool(str(request.arguments["name"])))
    server.notify("notifications/tools/list_changed", {})
    return "added"


@tool(
    "Answers this call in a wrong way. `size` is how many bytes, messages or levels.",
    optional=("size",),
    kind={"type": "string", "enum": [*FAULTS, "late"]},
    size="integer",
)
def fault(server: Server, request: Request) -> None:
    kind = request.arguments["kind"]
    if kind == "late":
        server.late.add(request.id)
        return
    pieces = FAULTS[kind](request.id, int(request.arguments.get("size", 0)))
    del server.in_flight[request.id]
    server.write_each(pieces)


def describe() -> str:
    """The modes, the tools and the kinds of `fault`, each with its line."""
    modes = [f"  {name:34}{function.__doc__}" for name, function in MODES.items()]
    tools = [f"  {name:34}{known.listed['description']}" for name, known in TOOLS.items()]
    faults = [f"  {name:34}{function.__doc__}" for name, function in FAULTS.items()]
    late = f"  {'late':34}Answers when the call is cancelled."
    return "\n".join(["modes:", *modes, "tools:", *tools, "kinds of the tool `fault`:", *faults, late])


def main() -> None:
    """Serve, or say what there is to serve."""
    name = sys.argv[1] if len(sys.argv) > 1 else "ok"
    argument = sys.argv[2] if len(sys.argv) > 2 else ""
    if name == "--list":
        print(describe())
    elif name not in MODES:
        sys.exit(f"odd: no mode `{name}`; see --list")
    else:
        server = Server()
        MODES[name](server, argument)
        server.serve()


if __name__ == "__main__":
    main()
