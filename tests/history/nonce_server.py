"""An MCP server whose every word carries the nonce of the request that it is about; standard library only.

    python nonce_server.py NAME JOURNAL_PORT

It advances its running calls in turns, in an order of its own, so that many are in flight at once. Its ids of
questions and of tasks count from one, so those of two instances are equal; only tasks of `hold` have ids that nobody
else has. To JOURNAL_PORT of 127.0.0.1 go the id of the process that has started it, and then every line that it gets
and sends, after `<` or `>`; a connection that ends there is the end of the process.

Its skills and the page of its app have the URIs of those of every other nonce server; each says whose it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import random
import re
import socket
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

Json = Any  # what a peer sent, of any shape
# A call that runs; what it yields for is its next turn, and it is sent the answer to its question.
Running = Generator[str, Json, None]
Write = Callable[[bytes, Json], None]

NONCE = re.compile(r"nonce-\w+-\d+-")
ASKING = "ask"
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": True}},
}
PAGE = "ui://app/page"
# One path reads as a skill of group `b`.
SKILLS = ("shared", "b/shared")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_DIGEST = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
RELATED = "io.modelcontextprotocol/related-task"


class _Task:
    def __init__(self, id: str, nonce: str, running: Running) -> None:
        self.id = id
        self.nonce = nonce
        self.running = running
        self.status = "working"
        self.waiting: list[Json] = []

    def shown(self) -> Json:
        times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z", "ttl": None}
        return {"taskId": self.id, "status": self.status, "statusMessage": self.nonce, **times}


class NonceServer:
    """The server behind any transport. `write` takes a line, and the id of the request in whose answer it belongs."""

    def __init__(self, name: str, write: Write) -> None:
        self.name = name
        self.level = "debug"
        self.origin = f"origin-{name}-"
        self._skills = [self._skill(path) for path in SKILLS]
        self._files = {PAGE, *(file["uri"] for skill in self._skills for file in skill["resources"])}
        self.lists: dict[str, list[Json]] = {
            "tools": [
                *(_tool(each) for each in ("echo", "work", "hold", "ask", "big", "update", "say")),
                {**_tool("show"), "description": self.origin, "_meta": {"ui": {"resourceUri": PAGE}}},
                {**_tool("refresh"), "description": self.origin, "_meta": {"ui": {"visibility": ["app"]}}},
            ],
            "resources": [
                {"uri": f"{name}://shared", "name": "shared"},
                {"uri": PAGE, "name": "page", "description": self.origin},
            ],
            "prompts": [{"name": f"greet_{name}", "arguments": [{"name": "nonce"}]}],
        }
        self._write = write
        self._running: dict[int, Running] = {}
        self._asking: dict[int, tuple[int, Running]] = {}
        self._tasks: dict[str, _Task] = {}
        self._order = random.Random(name)  # noqa: S311 an order, not a secret
        self._question = 0
        self._subscribed: set[str] = set()
        self.answers: dict[str, Callable[[Json], Json]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": lambda _: {"tools": self.lists["tools"]},
            "resources/list": lambda _: {"resources": self.lists["resources"]},
            "resources/templates/list": lambda _: {
                "resourceTemplates": [{"uriTemplate": f"{name}://item/{{id}}", "name": "item"}]
            },
            "resources/read": self._read,
            "resources/directory/read": self._read_directory,
            "skills/list": self._list_skills,
            "skills/get": self._get_skill,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": lambda _: {"prompts": self.lists["prompts"]},
            "prompts/get": lambda params: {"messages": [_message(params["arguments"]["nonce"])]},
            "completion/complete": lambda params: {"completion": {"values": [params["argument"]["value"]]}},
            "logging/setLevel": self._set_level,
            "tasks/get": lambda params: self._tasks[params["taskId"]].shown(),
            "tasks/list": lambda _: {"tasks": [task.shown() for task in self._tasks.values()]},
            "tasks/cancel": self._cancel_task,
        }

    @property
    def is_busy(self) -> bool:
        """Whether a turn would do something."""
        return bool(self._running)

    def turn(self) -> None:
        """Let one of the calls that run go on."""
        self._advance(self._order.choice(list(self._running)), None)

    def receive(self, line: bytes) -> None:
        """Take one line."""
        message = json.loads(line)
        match message:
            case {"method": "tools/call", "id": id, "params": params}:
                self._call(id, params)
            case {"method": "tasks/result", "id": id, "params": {"taskId": task}} if task in self._tasks:
                self._tasks[task].waiting.append(id)
                self._give_result(self._tasks[task])
            case {"method": str(method), "id": id}:
                self._answer_simple(id, method, message.get("params", {}))
            case {"method": "notifications/cancelled", "params": {"requestId": id}}:
                self._running.pop(id, None)
                self._withdraw(id)
            case {"id": int(id)} if id in self._asking:
                call, running = self._asking.pop(id)
                self._running[call] = running
                self._advance(call, message)

    def _withdraw(self, call: int) -> None:
        """Take back what a call that was cancelled has asked."""
        for number, (asked_by, _) in list(self._asking.items()):
            if asked_by == call:
                del self._asking[number]
                params = {"requestId": number, "reason": "the call was cancelled"}
                self._send({"method": "notifications/cancelled", "params": params}, None)

    # --- calls -----------------------------------------------------------------------------------------

    def _call(self, id: int, params: Json) -> None:
        nonce = params["arguments"]["nonce"]
        run: Callable[[int, str, Json], Running] = getattr(self, f"_run_{params['name']}")
        if "task" not in params:
            self._running[id] = run(id, nonce, params)
            return
        id_of_task = f"task-{len(self._tasks) + 1}"
        if params["name"] == "hold":
            id_of_task = f"held-{hashlib.sha256(nonce.encode()).hexdigest()[:12]}"
        task = _Task(id_of_task, nonce, self._run_task(id, nonce, params))
        self._tasks[task.id] = task
        self._result(id, {"task": task.shown()})
        if params["name"] != "hold":
            self._running[id] = task.running

    def _advance(self, id: int, reply: Json) -> None:
        running = self._running.pop(id)
        try:
            wants = running.send(reply)
        except StopIteration:
            return
        if wants == ASKING:
            self._asking[self._question] = (id, running)
        elif wants != "forever":
            self._running[id] = running

    def _run_echo(self, id: int, nonce: str, params: Json) -> Running:
        yield ""
        self._text(id, nonce)

    def _run_refresh(self, id: int, nonce: str, params: Json) -> Running:
        yield ""
        self._text(id, f"{nonce} {self.origin}")

    def _run_work(self, id: int, nonce: str, params: Json) -> Running:
        """Report progress and log, a step a turn."""
        for step in range(1, params["arguments"]["steps"] + 1):
            yield ""
            self._progress(params, nonce, step, id)
            self._log(id, "info", nonce, step)
        yield ""
        self._text(id, nonce)

    def _run_hold(self, id: int, nonce: str, params: Json) -> Running:
        yield "forever"

    def _run_say(self, id: int, nonce: str, params: Json) -> Running:
        """Log once at each of these levels that is wanted."""
        yield ""
        for level in params["arguments"]["levels"]:
            self._log(id, level, nonce, 0)
        self._text(id, f"{nonce} {self.level}")

    def _run_ask(self, id: int, nonce: str, params: Json) -> Running:
        """Ask the client, and answer with what it answers."""
        yield ""
        method = params["arguments"]["method"]
        self._question += 1
        self._send({"id": self._question, "method": method, "params": _question(method, nonce)}, id)
        reply = yield ASKING
        self._text(id, f"{nonce} {json.dumps(reply.get('result', 'refused'))}")

    def _run_big(self, id: int, nonce: str, params: Json) -> Running:
        yield ""
        self._text(id, "\n".join(f"{nonce} line {number}" for number in range(params["arguments"]["lines"])))

    def _run_update(self, id: int, nonce: str, params: Json) -> Running:
        yield ""
        uri = params["arguments"]["uri"]
        if uri in self._subscribed:
            self._send({"method": "notifications/resources/updated", "params": {"uri": uri}}, None)
        self._text(id, nonce)

    # --- tasks -----------------------------------------------------------------------------------------

    def _run_task(self, id: int, nonce: str, params: Json) -> Running:
        [task] = [each for each in self._tasks.values() if each.nonce == nonce]
        for step in range(1, params["arguments"]["steps"] + 1):
            yield ""
            self._progress(params, nonce, step, None)
        yield ""
        if task.status == "working":
            task.status = "completed"
            self._send({"method": "notifications/tasks/status", "params": task.shown()}, None)
            self._give_result(task)

    def _cancel_task(self, params: Json) -> Json:
        task = self._tasks[params["taskId"]]
        task.status = "cancelled"
        self._give_result(task)
        return task.shown()

    def _give_result(self, task: _Task) -> None:
        waiting, task.waiting = (task.waiting, []) if task.status != "working" else ([], task.waiting)
        for id in waiting:
            text = {"type": "text", "text": f"{task.nonce} {task.status}"}
            self._result(id, {"content": [text], "_meta": {RELATED: {"taskId": task.id}}})

    # --- skills and pages ------------------------------------------------------------------------------

    def _skill(self, path: str) -> Json:
        root = f"skill://{path}"
        files = [{"uri": f"{root}/{name}", "digest": _DIGEST, "size": 1} for name in ("SKILL.md", "notes/one.md")]
        about = {"name": path.rpartition("/")[2], "description": self.origin}
        return {"uri": files[0]["uri"], "frontmatter": about, "resources": files}

    def _list_skills(self, params: Json) -> Json:
        """Return one a page."""
        at = int((params or {}).get("cursor", 0))
        more = {"nextCursor": str(at + 1)} if at + 1 < len(self._skills) else {}
        return {"skills": self._skills[at : at + 1], **more}

    def _get_skill(self, params: Json) -> Json:
        found = {skill["uri"]: skill for skill in self._skills}
        return {"skill": found[params["uri"]], "_meta": _nonce_of(params)}

    def _read(self, params: Json) -> Json:
        uri = params["uri"]
        if uri not in self._files:
            raise KeyError(uri)
        return {"contents": [{"uri": uri, "text": self.origin}], "_meta": _nonce_of(params)}

    def _read_directory(self, params: Json) -> Json:
        below = f"{params['uri']}/"
        names = {uri.removeprefix(below).partition("/")[0] for uri in self._files if uri.startswith(below)}
        if not names:
            raise KeyError(params["uri"])
        children = [{"uri": f"{below}{name}", "name": name} for name in sorted(names)]
        return {"resources": children, "_meta": {**_nonce_of(params), "origin": self.origin}}

    # --- the rest --------------------------------------------------------------------------------------

    def _initialize(self, params: Json) -> Json:
        about = {"capabilities": CAPABILITIES, "serverInfo": {"name": self.name, "version": "1"}}
        return {"protocolVersion": params["protocolVersion"], **about}

    def _subscribe(self, params: Json) -> Json:
        self._subscribed.add(params["uri"])
        return {}

    def _unsubscribe(self, params: Json) -> Json:
        self._subscribed.discard(params["uri"])
        return {}

    def _set_level(self, params: Json) -> Json:
        self.level = params["level"]
        return {}

    def _answer_simple(self, id: int, method: str, params: Json) -> None:
        try:
            result = self.answers[method](params)
        except KeyError as exc:
            error = {"code": -32602 if method in self.answers else -32601, "message": f"there is no {exc}"}
            self._send({"id": id, "error": error}, id)
        else:
            self._result(id, result)

    def add(self, feature: str, name: str) -> None:
        """Add an entry to a list, and say that the list has changed."""
        entry = {"uri": f"{self.name}://{name}", "name": name} if feature == "resources" else _tool(name)
        self.lists[feature] = [*self.lists[feature], entry if feature != "prompts" else {"name": name}]
        self._send({"method": f"notifications/{feature}/list_changed"}, None)

    def _progress(self, params: Json, nonce: str, step: int, about: int | None) -> None:
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            said = {"progressToken": token, "progress": step, "message": nonce}
            self._send({"method": "notifications/progress", "params": said}, about)

    def _log(self, id: int, level: str, nonce: str, step: int) -> None:
        if LEVELS.index(level) >= LEVELS.index(self.level):
            said = {"level": level, "logger": "l", "data": {"nonce": nonce, "step": step}}
            self._send({"method": "notifications/message", "params": said}, id)

    def _text(self, id: int, text: str) -> None:
        self._result(id, {"content": [{"type": "text", "text": text}]})

    def _result(self, id: int, result: Json) -> None:
        self._send({"id": id, "result": result}, id)

    def _send(self, message: Json, about: int | None) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **message}).encode(), about)


def _tool(name: str) -> Json:
    tool = {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}
    return {**tool, "execution": {"taskSupport": "optional"}}


def _nonce_of(params: Json) -> Json:
    return {"nonce": params.get("_meta", {}).get("nonce", "")}


def _message(text: str) -> Json:
    return {"role": "user", "content": {"type": "text", "text": text}}


def _question(method: str, nonce: str) -> Json:
    match method:
        case "sampling/createMessage":
            return {"messages": [_message(nonce)], "maxTokens": 10}
        case "elicitation/create":
            return {"message": nonce, "requestedSchema": {"type": "object", "properties": {}}}
    return {"_meta": {"nonce": nonce}}


def main() -> None:
    """Serve stdin, until it ends."""
    journal = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    journal.sendall(b"%d\n" % os.getppid())
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def write(line: bytes, about: Json) -> None:
        journal.sendall(b">" + line + b"\n")
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line.rstrip(b"\n"))
        lines.put(b"")

    server = NonceServer(sys.argv[1], write)
    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(block=not server.is_busy)
        except queue.Empty:
            server.turn()
            continue
        if not line:
            return
        journal.sendall(b"<" + line + b"\n")
        server.receive(line)


if __name__ == "__main__":
    main()
