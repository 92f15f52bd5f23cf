"""The socket of a daemon serves windows of its own user alone, which notice no attack."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dynamic_mcp import __version__
from dynamic_mcp.face import frames, window
from tests import own_process
from tests.attacks.target import BUGS, HELLO, environment_of, office
from tests.attacks.wire import Json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="users and processes as Linux has them")

WITHIN_S = 60.0
NOBODY = 65534
AS_NOBODY = f"import os, socket, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
as_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, to act as another user"
)


class DaemonTarget:
    """A daemon with one window, which is a client over stdin and stdout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "dynamic-mcp.json"
        settings = {"daemon": {"linger": "0s"}}
        self.config.write_text(json.dumps({"mcpServers": {"office": office(folder)}, "settings": settings}))
        self.environment = environment_of(folder)
        self.socket = Path(self.environment["XDG_RUNTIME_DIR"], "dynamic-mcp", window.socket_name(str(self.config)))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            end = theirs.fileno()
            self.window = own_process.start_at_once(
                str(self.config), stdin=end, stdout=end, stderr=subprocess.DEVNULL, env=self.environment
            )
            self.client = ours.makefile("rwb")
        self.pid = 0
        self._ids = 0

    def request(self, method: str, params: Json) -> Json:
        """Send a request of the window, and return its answer."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        self.client.write(json.dumps(message).encode() + b"\n")
        self.client.flush()
        while line := self.client.readline():
            if (answer := json.loads(line)).get("id") == self._ids:
                return answer
        raise EOFError("the window has ended")

    def is_served(self) -> bool:
        """Return whether a call of the window comes to its server."""
        call = {"name": "call_dynamic_tool", "arguments": {"group": "office", "name": "query", "args": {}}}
        return "has run" in json.dumps(self.request("tools/call", call))

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(WITHIN_S)
        connection.connect(str(self.socket))
        return connection

    def hello(self, **members: Json) -> bytes:
        """Return what a window says first."""
        return frames.hello(b"session", os.fsencode(self.config), version=__version__.encode(), **members)

    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.rglob("*.log"))

    def close(self) -> None:
        """Close the window, and wait until its daemon has ended."""
        self.client.close()
        assert self.window.wait(WITHIN_S) == 0
        with contextlib.suppress(ProcessLookupError):
            daemon = os.pidfd_open(self.pid)
            try:  # one that has ended may still wait for its parent
                assert select.select([daemon], [], [], WITHIN_S)[0], "the daemon has not ended"
            finally:
                os.close(daemon)


@pytest.fixture(scope="module")
def target() -> Iterator[DaemonTarget]:
    # the path of a socket must be short
    with tempfile.TemporaryDirectory(prefix="dm-") as folder:
        target = DaemonTarget(Path(folder))
        try:
            target.request("initialize", HELLO)
            with target.connect() as connection:
                data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            target.pid = struct.unpack("3i", data)[0]
            yield target
            assert target.is_served()
            target.close()
            assert not BUGS.search(target.log()), target.log()
        finally:
            if target.window.poll() is None:
                target.window.kill()
                target.window.wait()
            if target.pid and Path(f"/proc/{target.pid}").exists():
                os.kill(target.pid, signal.SIGKILL)


def test_the_socket_is_in_a_folder_of_its_user_alone(target: DaemonTarget) -> None:
    assert stat.S_IMODE(target.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(target.socket.stat().st_mode) & 0o077 == 0


@as_root
def test_another_user_is_refused_whatever_the_modes_are(target: DaemonTarget) -> None:
    closed = [path for path in target.folder.parents if not path.stat().st_mode & stat.S_IXOTH]
    opened = [*closed, target.folder, target.socket.parent.parent, target.socket.parent]
    modes = [(path, path.stat().st_mode) for path in (*opened, target.socket)]
    for path in opened:
        path.chmod(0o711)
    target.socket.chmod(0o666)
    code = (
        f"{AS_NOBODY}s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b'x' * 99); print(s.recv(9))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(target.socket)], capture_output=True, text=True, timeout=WITHIN_S
    )
    for path, mode in modes:
        path.chmod(mode)
    assert done.stdout in ("b''\n", ""), "it was sent something"
    assert not done.stderr or "ConnectionReset" in done.stderr or "BrokenPipe" in done.stderr
    assert target.is_served()


def altered(hello: bytes, old: bytes, new: bytes) -> bytes:
    """Return a hello with another part of the same length."""
    assert hello.count(old) == 1
    return hello.replace(old, new)


HELLOS: dict[str, Callable[[DaemonTarget], bytes]] = {
    "garbage": lambda target: (8).to_bytes(4) + b"garbage!",
    "nothing": lambda target: (0).to_bytes(4),
    "4 GiB": lambda target: b"\xff\xff\xff\xff" + b"x" * 100_000,
    "another conversation": lambda target: altered(target.hello(), b"protocol\0\0\0\x011", b"protocol\0\0\0\x012"),
    "a number that is none": lambda target: altered(target.hello(generation=7), b"\0\0\0\x017", b"\0\0\0\x01x"),
    "notes that are none": lambda target: target.hello(generation=1, notes=b"\0\0\0\x05a"),
    "notes of another session": lambda target: target.hello(
        generation=1, notes=frames.pack_pairs({b"initialize": b"oops"})
    ),
    "another config": lambda target: frames.hello(b"session", b"/etc/passwd", version=__version__.encode()),
    "an unknown purpose": lambda target: frames.hello(
        b"shutdow", os.fsencode(target.config), version=__version__.encode()
    ),
    "a group with a path": lambda target: target.hello(only=b"../office"),
    "a profile that there is not": lambda target: target.hello(profile=b"none"),
}


@pytest.mark.parametrize("name", HELLOS)
def test_what_is_no_window_of_this_config_is_not_served(target: DaemonTarget, name: str) -> None:
    with target.connect() as connection:
        connection.sendall(HELLOS[name](target))
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        try:
            connection.sendall(json.dumps(call).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass
    assert b"inputSchema" not in received
    assert target.is_served()


def test_a_hello_that_does_not_end_and_an_http_request_hold_nobody_up(target: DaemonTarget) -> None:
    half = (target.hello()[:10], b"", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
    connections = [target.connect() for _ in range(60)]
    for number, connection in enumerate(connections):
        connection.sendall(half[number % len(half)])
    assert target.is_served()
    for connection in connections:
        connection.close()
    assert target.is_served()


def test_a_line_that_does_not_end_and_lines_that_are_no_messages_end_only_their_window(target: DaemonTarget) -> None:
    with target.connect() as connection:
        connection.sendall(target.hello())
        assert connection.recv(1)[0] == frames.WELCOME
        connection.sendall(b"\xff\xfe\n{}\n[1]\nnull\n" + b"[" * 100_000 + b"\n" + b"a" * 1_000_000)
        assert target.is_served()
    assert target.is_served()


def test_no_value_of_the_environment_of_a_window_is_in_a_file(target: DaemonTarget) -> None:
    with target.connect() as connection:
        connection.sendall(target.hello(environment=frames.pack_pairs({b"TOKEN": b"s3cret-of-the-window"})))
        connection.recv(1)
    assert target.is_served()
    files = [path for path in target.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"s3cret-of-the-window" in path.read_bytes()]
