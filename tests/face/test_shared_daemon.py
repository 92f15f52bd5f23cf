"""Windows of one daemon as separate programs, on every system: one server, and answers that meet their questions."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dynamic_mcp
from dynamic_mcp.cli.daemon_control import stop_running
from dynamic_mcp.face import window
from dynamic_mcp.system import private_socket
from dynamic_mcp.system.paths import FileLock
from tests.program import Json, odd

CALLS = 50


class Window:
    """A window as an AI tool has it: lines over the standard streams of a program."""

    def __init__(self, config: Path, *, cwd: Path | None = None) -> None:
        command = [sys.executable, "-m", "dynamic_mcp", str(config)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd
        )
        self._number = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = self.exchange("initialize", hello)
        self.version = answer["result"]["serverInfo"]["version"]

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
    with running_daemon(config) as process:
        yield process


@contextlib.contextmanager
def running_daemon(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dynamic_mcp", "daemon", "run", "--linger", "never", "-c", str(config)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            assert b"daemon of" in process.stderr.readline()
            yield process
        finally:
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
def test_a_command_uses_the_server_of_a_window(open_window: Callable[[], Window], config: Path) -> None:
    server = open_window().call("pid")
    command = [sys.executable, "-m", "dynamic_mcp", "call", "-c", str(config), "odd", "pid"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True, text=True
    )
    assert done.stdout.strip() == server


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


def test_a_daemon_that_is_still_starting_is_stopped(config: Path) -> None:
    path = private_socket.place(os.environ, window.socket_name(str(config)))
    lock = FileLock(Path(path).with_suffix(".start"))
    assert lock.try_acquire()  # as the window has that starts it
    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(stop_running, str(config))
        with running_daemon(config) as daemon:
            lock.release()
            assert stopped.result()
            assert daemon.wait() == 0


@pytest.mark.posix_only("links need a privilege on Windows")
def test_a_lock_that_cannot_be_opened_is_not_waited_for(config: Path) -> None:
    path = private_socket.place(os.environ, window.socket_name(str(config)))
    Path(path).with_suffix(".start").symlink_to(config)
    assert not stop_running(str(config))


def test_a_daemon_that_has_never_started_is_not_waited_for(config: Path) -> None:
    command = [sys.executable, "-m", "dynamic_mcp", "daemon", "stop", "-c", str(config)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "was not running" in done.stderr


@pytest.mark.usefixtures("daemon")
def test_a_command_stops_a_daemon_and_waits_for_its_end(config: Path) -> None:
    command = [sys.executable, "-m", "dynamic_mcp", "daemon", "stop", "-c", str(config)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "stopped the daemon" in done.stderr
    assert window.find_daemon(str(config)) is None


@pytest.mark.full  # elsewhere, tests/process/test_upgrade.py has the daemon look at its files at once
def test_windows_go_on_after_an_upgrade_of_the_files_that_a_running_daemon_has_loaded(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    monkeypatch.setenv("PYTHONPATH", str(installed))
    copy_program(installed, "1.0.0")
    command = [sys.executable, "-m", "dynamic_mcp", "daemon", "start", "-c", str(config)]
    subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path, check=True)
    older = Window(config, cwd=tmp_path)
    try:
        server = older.call("pid")
        copy_program(installed, "2.0.10")  # Python tells files of the same second apart by their sizes
        newer = Window(config, cwd=tmp_path)
        try:
            assert [older.version, newer.version] == ["1.0.0", "2.0.10"]
            assert newer.call("pid") != server
            while older.call("pid") == server:  # the daemon looks at its files every few seconds
                time.sleep(0.1)
            assert newer.close() == 0
        finally:
            newer.kill()
        assert older.call("echo", {"text": "still there"}) == "still there"
        assert older.close() == 0
    finally:
        older.kill()


def copy_program(folder: Path, version: str) -> None:
    """Put this program, as this version, in place of what is in a folder, file by file; its version comes last."""
    source = Path(str(dynamic_mcp.__file__)).parent
    shutil.copytree(source, folder / "dynamic_mcp", ignore=shutil.ignore_patterns("*.pyc*"), dirs_exist_ok=True)
    new = folder / "new.py"
    new.write_text(f'"""A copy."""\n\n__version__ = "{version}"\n', encoding="utf-8")
    new.replace(folder / "dynamic_mcp" / "__init__.py")
