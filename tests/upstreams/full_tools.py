"""The tools of the server of full.py: they make it do what servers do by themselves, when a test wants it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or __package__:
    from . import full_offers as offers
else:  # started by its path, as an upstream is
    import full_offers as offers

if TYPE_CHECKING:
    from .full import Request, Server

Json = Any  # what a peer sent, of any shape
Run = Callable[["Server", "Request"], None]


class Tool(NamedTuple):
    """A tool: what `tools/list` says of it, and what a call does."""

    listed: bytes
    run: Run


TOOLS: dict[str, Tool] = {}


def tool(description: str, *, listed: bytes = b"") -> Callable[[Run], Run]:
    """Register a tool under its function's name."""

    def register(run: Run) -> Run:
        name = run.__name__
        entry = {"name": name, "description": description, "inputSchema": {"type": "object"}}
        # each may be called as a task
        TOOLS[name] = Tool(listed or json.dumps({**entry, "execution": {"taskSupport": "optional"}}).encode(), run)
        return run

    return register


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# --- what comes back ---------------------------------------------------------------------------------------


@tool("", listed=offers.RICH_TOOL)
def rich(server: Server, request: Request) -> None:
    server.answer(request, offers.RICH)


@tool("Answers with every type of content that clients know.")
def plain(server: Server, request: Request) -> None:
    server.answer(request, offers.PLAIN)


@tool("Answers with a result that is an error.")
def fail(server: Server, request: Request) -> None:
    server.answer(request, offers.FAILED)


@tool("Answers with the error that sends a person to a page.")
def need_url(server: Server, request: Request) -> None:
    server.refuse_with(request, offers.URL_REQUIRED)


@tool("Answers the text.")
def echo(server: Server, request: Request) -> None:
    server.answer_text(request, str(request.arguments["text"]))


@tool("Answers the lines that it has received, as a JSON array of strings; this call's is the last.")
def record(server: Server, request: Request) -> None:
    server.answer_text(request, json.dumps([line.decode() for line in server.received]))


@tool("Ends the process at once.")
def crash(server: Server, request: Request) -> None:
    server.crash()


# --- gates ---------------------------------------------------------------------------------------------------


@tool("Sends `notifications/vendor.example/waiting`, and answers when `release` is called with the same key.")
def wait(server: Server, request: Request) -> None:
    key = request.arguments["key"]
    server.held[key] = request
    server.report(request.token, 0)
    server.notify("notifications/vendor.example/waiting", _json({"key": key}))


@tool("Reports progress on the call that waits with this key.")
def step(server: Server, request: Request) -> None:
    server.report(server.held[request.arguments["key"]].token, request.arguments["step"])
    server.answer_text(request, "reported")


@tool("Lets the call of `wait` with this key answer.")
def release(server: Server, request: Request) -> None:
    held = server.held.pop(request.arguments["key"])
    server.answer_text(request, "released" if held.id in server.in_flight else "it was cancelled")
    server.answer_text(held, "waited")


# --- requests to the client ------------------------------------------------------------------------------------


def _ask(server: Server, request: Request, method: str, params: bytes, **values: bytes) -> None:
    """Ask, and answer the call with the line that came back; until then `step` reports progress on it."""
    key = request.arguments.get("key", "1")
    server.held[key] = request
    server.ask(method, params, lambda line: server.answer_text(request, line.decode()), key=_json(key), **values)


@tool("Elicits a form; answers the line that came back.")
def elicit(server: Server, request: Request) -> None:
    _ask(server, request, "elicitation/create", offers.ELICIT)


@tool("Elicits a visit to a page; answers the line that came back.")
def elicit_url(server: Server, request: Request) -> None:
    _ask(server, request, "elicitation/create", offers.ELICIT_URL)


@tool("Says that an elicited visit is over.")
def elicited(server: Server, request: Request) -> None:
    params = {"elicitationId": request.arguments.get("key", "1")}
    server.notify("notifications/elicitation/complete", _json(params))
    server.answer_text(request, "said")


@tool("Samples; answers the line that came back.")
def sample(server: Server, request: Request) -> None:
    _ask(server, request, "sampling/createMessage", offers.SAMPLE)


@tool("Lists the client's roots; answers the line that came back.")
def roots(server: Server, request: Request) -> None:
    _ask(server, request, "roots/list", offers.ROOTS)


@tool("Sends a request of any method to the client; answers the line that came back.")
def ask(server: Server, request: Request) -> None:
    _ask(server, request, str(request.arguments["method"]), _json(request.arguments.get("params", {})))


@tool("Withdraws the request to the client that has waited longest, whose tool call answers so.")
def withdraw(server: Server, request: Request) -> None:
    number, then = next(iter(server.asked.items()))
    del server.asked[number]
    params = b'{"requestId":@number@,"reason":"@name@ has lost interest","x-why":1}'
    server.notify("notifications/cancelled", params, number=_json(number))
    then(b"withdrawn")
    server.answer_text(request, "done")


# --- notifications ---------------------------------------------------------------------------------------------


@tool("Reports progress on this call, so many times.")
def progress(server: Server, request: Request) -> None:
    for number in range(1, int(request.arguments["steps"]) + 1):
        server.report(request.token, number)
    server.answer_text(request, "done")


@tool("Logs at a level, unless a higher one was set; answers the level that is set.")
def log(server: Server, request: Request) -> None:
    level = request.arguments["level"]
    if offers.LEVELS.index(level) >= offers.LEVELS.index(server.level):
        logger = b'"logger":%s,' % _json(request.arguments["logger"]) if "logger" in request.arguments else b""
        server.notify("notifications/message", offers.LOG, level=_json(level), logger=logger)
    server.answer_text(request, server.level)


@tool("Says that a resource was updated, as servers do for what is subscribed; answers what that is.")
def update(server: Server, request: Request) -> None:
    uri = server.filled(str(request.arguments["uri"]).encode())
    if any(uri.decode().startswith(each) for each in server.subscribed):
        server.notify("notifications/resources/updated", offers.UPDATED, uri=_json(uri.decode()))
    server.answer_text(request, " ".join(server.subscribed))


@tool("Adds an entry to a list and says that the list has changed.")
def add(server: Server, request: Request) -> None:
    member = request.arguments["list"]
    server.added[member].append(_json(request.arguments["entry"]))
    feature = "resources" if member == "resourceTemplates" else member
    server.notify(f"notifications/{feature}/list_changed", b'{"_meta":{"x":1}}')
    server.answer_text(request, "added")


@tool("Sends a notification that no specification knows.")
def vendor(server: Server, request: Request) -> None:
    server.notify("notifications/vendor.example/odd", offers.VENDOR)
    server.answer_text(request, "sent")


# --- tasks -----------------------------------------------------------------------------------------------------


@tool("Ends a task, with `status` when it is given.")
def finish(server: Server, request: Request) -> None:
    server.tasks.end(server.tasks[request.arguments["task"]], request.arguments.get("status", "completed"))
    server.answer_text(request, "finished")


@tool("Reports progress on a task, with the token of the call that it came from.")
def step_task(server: Server, request: Request) -> None:
    server.report(server.tasks[request.arguments["task"]].token, int(request.arguments["step"]))
    server.answer_text(request, "reported")


@tool("Elicits a form for a task; answers the line that came back.")
def elicit_for_task(server: Server, request: Request) -> None:
    related = server.tasks.related(server.tasks[request.arguments["task"]])
    _ask(server, request, "elicitation/create", offers.ELICIT_FOR_TASK, related=related)
