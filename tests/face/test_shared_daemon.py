"""Windows of one daemon as separate programs, on every system: one server, and answers that meet their questions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dynamic_mcp.face import window
from tests.program import Json, odd

CALLS = 50


class Window:
    """A window as an AI tool has it: lines over the standard streams of a program."""

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "dynamic_mcp", str(config)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        self.exchange("initialize", hello)

    def send(self, method: str, params: Json) -> int:
        """Send a request; return its id."""
        assert self._process.stdin is not None
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        return self._number

    def answer(self, number: int) -> dict[str, Json]:
        """Return the answer to a request; other messages are skipped."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Json] = json.loads(line)
            if message.get("id") == number:
                return message
        raise EOFError

    def exchange(self, method: str, params: Json) -> dict[str, Json]:
        return self.answer(self.send(method, params))

    def send_call(self, name: str, args: Json = None) -> int:
        arguments = {"group": "odd", "name": name, "args": args or {}}
        return self.send("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})

    def call(self, name: str, args: Json = None) -> str:
        """Return the text that a tool of the server answers."""
        answer = self.answer(self.send_call(name, args))
        return str(answer["result"]["content"][0]["text"])

    def close(self) -> int:
        """End the input; return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait()

    def kill(self) -> None:
        with self._process:
            self._process.kill()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_RUNTIME_DIR", "LOCALAPPDATA"):
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}, "settings": {"daemon": {"linger": "0s"}}}))
    return file


@pytest.fixture
def daemon(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon of the config, which listens."""
    command = [sys.executable, "-m", "dynamic_mcp", "daemon", "run", "--linger", "never", "-c", str(config)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert b"daemon of" in process.stderr.readline()
    yield process
    with process:
        process.kill()


@pytest.fixture
def open_window(config: Path) -> Iterator[Callable[[], Window]]:
    windows: list[Window] = []

    def start() -> Window:
        windows.append(Window(config))
        return windows[-1]

    yield start
    for each in windows:
        each.kill()


@pytest.mark.usefixtures("daemon")
def test_two_windows_share_a_server_and_each_gets_its_own_answers(open_window: Callable[[], Window]) -> None:
    first, second = open_window(), open_window()
    assert first.call("pid") == second.call("pid")

    def ask(shown: Window, name: str) -> list[str]:
        return [shown.call("echo", {"text": f"{name} {number}"}) for number in range(CALLS)]

    with ThreadPoolExecutor() as pool:
        answers = [*pool.map(ask, (first, second), ("first", "second"))]
    assert answers == [[f"{name} {number}" for number in range(CALLS)] for name in ("first", "second")]
    assert [first.close(), second.close()] == [0, 0]


@pytest.mark.usefixtures("daemon")
def test_commands_use_a_server_of_the_daemon_one_after_the_other(config: Path) -> None:
    command = [sys.executable, "-m", "dynamic_mcp", "call", "-c", str(config), "odd", "pid"]
    first, second = (
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True).stdout
        for _ in range(2)
    )
    assert first == second


@pytest.mark.usefixtures("daemon")
def test_a_call_that_hangs_delays_no_other_window_and_no_other_call(open_window: Callable[[], Window]) -> None:
    first, second = open_window(), open_window()
    first.send_call("sleep", {"seconds": 600})
    assert first.call("pid") == second.call("pid")


@pytest.mark.usefixtures("daemon")
def test_a_client_may_write_much_before_it_reads(open_window: Callable[[], Window]) -> None:
    shown = open_window()
    numbers = [shown.send_call("echo", {"text": "x" * 5000}) for _ in range(CALLS)]
    assert [shown.answer(number)["id"] for number in numbers] == numbers


def test_windows_whose_daemon_is_killed_go_on_and_hear_that_a_call_was_interrupted(
    daemon: subprocess.Popen[bytes], open_window: Callable[[], Window], config: Path
) -> None:
    first, second = open_window(), open_window()
    server = second.call("pid")
    call = first.send_call("sleep", {"seconds": 600})
    assert first.call("pid") == server  # so the call has reached it

    daemon.kill()

    answer = first.answer(call)
    assert "error" in answer or answer["result"]["isError"]
    assert first.call("pid") != server
    assert second.call("pid") != server
    assert [first.close(), second.close()] == [0, 0]


@pytest.mark.usefixtures("daemon")
def test_a_command_stops_a_daemon_and_waits_for_its_end(config: Path) -> None:
    command = [sys.executable, "-m", "dynamic_mcp", "daemon", "stop", "-c", str(config)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "stopped the daemon" in done.stderr
    assert window.find_daemon(str(config)) is None
