"""The running program that is attacked, in a home of its own, and clients of it that speak MCP."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests import own_process, signals
from tests.attacks.wire import Answer, Json, Wire, head, request
from tests.journeys.remote_server import free_port
from tests.own_process import BlockingProcess
from tests.windows import home_variables, state_variables

STARTS_WITHIN_S = 60.0
ENDS_WITHIN_S = 60.0
OFFICE = Path(__file__).with_name("office.py")
BOTH = "Accept: application/json, text/event-stream"
AS_JSON = "Content-Type: application/json"
HELLO: Json = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "attacker", "version": "1"},
}
BUGS = re.compile(r"Traceback|a bug:|never retrieved|never awaited")


class Target:
    """A running program and its config."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.config = folder / "dynamic-mcp.json"
        self.environment = environment_of(folder)
        self.pid = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        """Return what the program has written to stderr so far."""
        return (self.folder / "stderr.log").read_text(errors="replace")

    def journal(self) -> list[Json]:
        """Return each request that a server of `office` was sent, except lists."""
        file = self.folder / "journal.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the program on this config."""
        return self.command(*words, "-c", str(self.config))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the program."""
        done = own_process.run(*words, env=self.environment)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def request(self, method: str, path: str, *lines: str, body: bytes = b"", host: str = "127.0.0.1") -> Answer:
        """Send a request over a new connection, and return its answer."""
        return request(self.port, method, path, *lines, body=body, host=host)

    def peak_mib(self) -> int:
        """Return the most memory that the program has had, in MiB (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))

    def is_alive(self) -> bool:
        return self.request("GET", "/health").status == 200


class McpClient:
    """A session of a client with these headers, or requests without one before `begin`."""

    def __init__(self, target: Target, *lines: str, path: str = "/mcp", version: str = "2025-11-25") -> None:
        self.target = target
        self.path = path
        self.lines = lines
        self.version = version
        self.id = ""
        self._ids = itertools.count(1)

    def begin(self) -> McpClient:
        """Begin the session."""
        answer = self.post(self.message("initialize", {**HELLO, "protocolVersion": self.version}))
        assert answer.status == 200, answer
        self.id = answer.headers["mcp-session-id"]
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
        return self

    def message(self, method: str, params: Json = None) -> Json:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}

    def fields(self, *more: str) -> tuple[str, ...]:
        """Return the headers of a request."""
        own = (f"Mcp-Session-Id: {self.id}", f"Mcp-Protocol-Version: {self.version}") if self.id else ()
        return (*self.lines, *own, *more)

    def post(self, message: Json, *lines: str) -> Answer:
        """Post a message, or bytes as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.target.request("POST", self.path, *self.fields(BOTH, AS_JSON, *lines), body=body)

    def request(self, method: str, params: Json = None) -> Json:
        """Send a request, and return its answer."""
        answer = self.post(self.message(method, params))
        assert answer.status == 200, answer
        return answer.json

    def call(self, group: str, name: str, args: Json = None) -> Json:
        """Call a tool through `call_dynamic_tool`, and return the answer."""
        arguments = {"group": group, "name": name, "args": args or {}}
        return self.request("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})

    def send_call(self, group: str, name: str, args: Json = None) -> Wire:
        """Send a call, and return its connection before anything is read."""
        arguments = {"group": group, "name": name, "args": args or {}}
        message = self.message("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
        return self.send(json.dumps(message).encode())

    def send(self, body: bytes) -> Wire:
        """Post bytes over a new connection, and return it before anything is read."""
        wire = Wire(self.target.port)
        fields = self.fields(BOTH, AS_JSON, f"Content-Length: {len(body)}")
        wire.send(head("POST", self.path, *fields) + body)
        return wire

    def listen(self, *lines: str) -> Wire:
        """Open the stream of the session, and return its connection before anything is read."""
        wire = Wire(self.target.port)
        wire.send(head("GET", self.path, *self.fields("Accept: text/event-stream", *lines)))
        return wire

    def delete(self) -> int:
        """End the session, and return the status."""
        return self.target.request("DELETE", self.path, *self.fields()).status


def bearer(token: str) -> str:
    """Return the header that shows a token."""
    return f"Authorization: Bearer {token}"


def office(folder: Path, *options: str, **members: Json) -> Json:
    """Return the config of the server `office.py`, whose journal is in this folder."""
    return {
        "command": sys.executable,
        "args": ["-S", str(OFFICE), str(folder / "journal.jsonl"), *options],
        **members,
    }


def environment_of(folder: Path) -> dict[str, str]:
    """Return an environment with a home in this folder and nothing of the developer's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DYNAMIC_MCP_"))}
    runtime = folder / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    folders = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    folders |= state_variables(folder / "state")
    return {**kept, **folders, **home_variables(folder), "XDG_RUNTIME_DIR": str(runtime)}


@contextlib.contextmanager
def serving(
    folder: Path, servers: Json, *, port: int | None = None, profiles: Json = None, **settings: Json
) -> Iterator[Target]:
    """Run the program over HTTP; in the end it is alive, has met no bug of its own, and stops when it is told to."""
    target = Target(folder, port or free_port())
    config = {"mcpServers": servers, "settings": {"http": {}, **settings}, "profiles": profiles or {}}
    target.config.write_text(json.dumps(config))
    command = ("serve", str(target.config), "--http", f"127.0.0.1:{target.port}")
    quiet = subprocess.DEVNULL
    with (folder / "stderr.log").open("wb") as words:
        process = own_process.start_at_once(*command, stdin=quiet, stdout=quiet, stderr=words, env=target.environment)
    target.pid = process.pid
    try:
        _wait_until_serving(target, process)
        yield target
        assert process.poll() is None, f"the program has ended by itself: {target.log()}"
        assert target.is_alive()
        signals.ask_to_end(process.pid)
        assert process.wait(ENDS_WITHIN_S) == 0
        assert not BUGS.search(target.log()), target.log()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _wait_until_serving(target: Target, process: BlockingProcess | subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while "over HTTP at" not in target.log():
        assert process.poll() is None, target.log()
        assert time.monotonic() < deadline, target.log()
        time.sleep(0.02)
