"""The only way out of a sandbox without a network: a proxy of ours for HTTP, which knows the hosts of the config.

It listens on a socket that a few lines of Python open in the sandbox and send here, before they become the program.
Names are resolved here, and lead to no private network unless the config names the address itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.features.sandbox.hosts import HostRule, is_address
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.web.address_policy import Resolver, Zone, resolve_host, zone_of

assert sys.platform != "win32"

log = logging.getLogger(__name__)

PORT = 3128
_PROXY = f"http://127.0.0.1:{PORT}"
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
    "NODE_USE_ENV_PROXY": "1",
    "npm_config_proxy": _PROXY,
    "npm_config_https_proxy": _PROXY,
}
# Runs in the sandbox: listens, sends the socket to us over the descriptor that it is given, and becomes the program.
_DOOR = f"""
import sys, _socket, posix
door = _socket.socket(2, 1)
door.bind(("127.0.0.1", {PORT}))
door.listen(128)
us = _socket.socket(fileno=int(sys.argv[1]))
us.sendmsg([b"."], [(1, 1, door.fileno().to_bytes(4, sys.byteorder))])
us.close()
door.close()
posix.execv(sys.argv[2], sys.argv[2:])
"""
_DOOR_WITHIN_S = 10.0
_HEAD_BYTES = 64 << 10
_HEAD_WITHIN_S = 30.0
_CONNECT_WITHIN_S = 20.0
_CHUNK_BYTES = 64 << 10
_MOST_CONNECTIONS = 256
_LOCAL_NAME = "localhost"


def door_command(descriptor: int, command: Sequence[str]) -> list[str]:
    """Return the command that opens the door in the sandbox, and then becomes `command`."""
    return [_python(), "-I", "-S", "-c", _DOOR, str(descriptor), *command]


def door_places() -> list[str]:
    """Return what the door reads: the Python that runs it."""
    return [sys.base_prefix, str(Path(_python()).parent)]


def _python() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def take_door(connection: socket.socket) -> socket.socket:
    """Receive the socket on which a program in a sandbox is served. Raises CannotConfine."""
    connection.settimeout(_DOOR_WITHIN_S)
    try:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    except OSError as exc:
        raise CannotConfine(f"its way out could not be opened: {os_reason(exc)}") from exc
    if not descriptors:
        raise CannotConfine("its way out could not be opened: the sandbox has ended")
    return socket.socket(fileno=descriptors[0])


class HostProxy:
    """Serves the programs of one sandbox, from `open` to `close`, which may be called in any thread."""

    def __init__(self, server: str, rules: Sequence[HostRule], resolve: Resolver = resolve_host) -> None:
        self._server = server
        self._resolve = resolve
        self._rules = rules
        self._refused = set[str]()
        self._listener: asyncio.Server | None = None
        self._tasks = set[asyncio.Task[None]]()

    def open(self, door: socket.socket) -> None:
        asyncio.run_coroutine_threadsafe(self._open(door), _loop()).result(_DOOR_WITHIN_S)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), _loop())

    async def _open(self, door: socket.socket) -> None:
        door.settimeout(0)
        self._listener = await asyncio.start_server(self._take, sock=door, limit=_HEAD_BYTES)

    async def _close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in [*self._tasks]:
            task.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if len(self._tasks) <= _MOST_CONNECTIONS:
                    await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_WITHIN_S):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            name, port, first = _parse_head(head)
        except ValueError:
            return await _refuse(writer, 400, "this proxy takes CONNECT, and requests for http:// URLs")
        addresses, why_not = await self._find_addresses(name, port)
        if why_not:
            self._log_refusal(name, port, why_not)
            return await _refuse(writer, 403, f"{name}:{port} {why_not}")
        try:
            far_reader, far_writer = await _connect(addresses, port)
        except (OSError, TimeoutError) as exc:
            return await _refuse(writer, 502, f"{name}:{port} cannot be reached: {exc}")
        try:
            if first:
                far_writer.write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, far_writer))
                tasks.create_task(_copy(far_reader, writer))
        except* OSError:  # one side is gone
            pass
        finally:
            far_writer.close()

    async def _find_addresses(self, name: str, port: int) -> tuple[list[str], str]:
        """Return the addresses that a program may connect to, or the reason why there is none."""
        if not any(rule.matches(name, port) for rule in self._rules):
            return [], "is not one of the hosts of its sandbox"
        if is_address(name):
            return [name], ""
        try:
            found = await self._resolve(name, port)
        except (OSError, TimeoutError):
            return [], "cannot be resolved"
        allowed = [each for each in found if self._may_lead_to(name, each, port)]
        return allowed, "" if allowed else "leads into a private network, and its address is not named"

    def _may_lead_to(self, name: str, address: str, port: int) -> bool:
        zone = zone_of(address)
        if zone is Zone.PUBLIC or (zone is Zone.LOOPBACK and name == _LOCAL_NAME):
            return True
        return any(rule.is_address and rule.matches(address, port) for rule in self._rules)

    def _log_refusal(self, name: str, port: int, why_not: str) -> None:
        host = f"{name[:200]}:{port}"
        if host not in self._refused and len(self._refused) < _MOST_CONNECTIONS:
            self._refused.add(host)
            log.warning("group %s: its sandbox refused a connection: %r %s", self._server, host, why_not)


def _parse_head(head: bytes) -> tuple[str, int, bytes]:
    """Return the host and the port of a request, and what is sent on: nothing for CONNECT. Raises ValueError."""
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    if method == "CONNECT":
        return *_split_host(target, None), b""
    scheme, _, rest = target.partition("://")
    if scheme.lower() != "http":
        raise ValueError(scheme)
    cut = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    host = rest[:cut]
    name, port = _split_host(host, 80)
    path = rest[cut:] if rest[cut:].startswith("/") else f"/{rest[cut:]}"
    fields = [each for each in lines[1:] if not each.lower().startswith(("host:", "proxy-", "connection:"))]
    text = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *fields])
    return name, port, text.encode("latin-1")


def _split_host(host: str, usual: int | None) -> tuple[str, int]:
    name, port = (host, "") if host.endswith("]") or ":" not in host else host.rsplit(":", 1)
    if not port and usual is None:
        raise ValueError(host)
    name = name.strip("[]").rstrip(".").lower()
    if not name or "@" in name or not name.isascii() or not name.isprintable():
        raise ValueError(host)
    if is_address(name):
        name = str(ipaddress.ip_address(name))
    number = int(port) if port else usual or 0
    if not 0 < number < 1 << 16:
        raise ValueError(host)
    return name, number


async def _connect(addresses: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of the addresses that answers. Raises OSError and TimeoutError."""
    error = OSError("no address")
    for each in addresses:
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                return await asyncio.open_connection(each, port)
        except (OSError, TimeoutError) as exc:
            error = OSError(str(exc) or "no answer in time")
    raise error


async def _refuse(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    body = f"dynamic-mcp: {why}\n".encode()
    fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    writer.write(f"HTTP/1.1 {status} Refused\r\n{fields}\r\n\r\n".encode() + body)
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of the thread that serves all sandboxes, so that they do not delay other servers."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="sandbox hosts", daemon=True).start()
    return loop


@contextlib.contextmanager
def door_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Provide two connected sockets: ours, and the one of the sandbox."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
