"""A client of HTTP/1.1 over a plain socket, which sends any bytes and reads what comes back."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

Json = Any  # whatever JSON a test writes down

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    """An answer. Names of headers are in lower case, and values of a doubled header are joined by a comma."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def json(self) -> Json:
        """The JSON of the body, or of the last message in a stream of events."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            data = [line[5:] for line in self.body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
            return json.loads(data[-1])
        return json.loads(self.body)


class Wire:
    """One connection."""

    def __init__(self, port: int, *, source: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes; a server that has hung up may still have answered."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def end_input(self) -> None:
        """Send nothing more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def read_line(self) -> bytes:
        """Return the next line, with its end; nothing if the connection has ended."""
        try:
            return self._file.readline()
        except ConnectionResetError:
            return b""

    def read_head(self) -> Answer | None:
        """Return the head of the next answer, or None if the connection ends before it."""
        status = self.read_line()
        if not status:
            return None
        headers: dict[str, str] = {}
        while line := self.read_line().strip():
            name, _, value = line.decode("latin-1").partition(":")
            key = name.lower()
            headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
        return Answer(int(status.split()[1]), headers, b"")

    def read(self) -> Answer | None:
        """Return the next answer, or None if the connection ends before it."""
        head = self.read_head()
        while head is not None and head.status == 100:
            head = self.read_head()
        if head is None:
            return None
        return Answer(head.status, head.headers, self.read_body(head))

    def read_all(self) -> list[Answer]:
        """Return every answer until the connection ends, which is waited for."""
        answers = []
        while answer := self.read():
            answers.append(answer)
        return answers

    def read_body(self, head: Answer) -> bytes:
        """Return the body that follows a head."""
        if head.status in (204, 304):
            return b""
        if head.headers.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self.read_line().split(b";")[0] or b"0", 16):
                pieces.append(self._file.read(size))
                self.read_line()
            self.read_line()
            return b"".join(pieces)
        if "content-length" in head.headers:
            return self._file.read(int(head.headers["content-length"]))
        return self._file.read()


def exchange(port: int, data: bytes) -> list[Answer]:
    """Send bytes over a new connection, nothing more after them, and return every answer."""
    with Wire(port) as wire:
        wire.send(data)
        wire.end_input()
        return wire.read_all()


def head(method: str, target: str, *lines: str, host: str = "127.0.0.1") -> bytes:
    """Return the head of a request, with these lines after `Host`."""
    fields = "".join(f"{line}\r\n" for line in (f"Host: {host}", *lines))
    return f"{method} {target} HTTP/1.1\r\n{fields}\r\n".encode("utf-8", "surrogateescape")


def request(port: int, method: str, target: str, *lines: str, body: bytes = b"", host: str = "127.0.0.1") -> Answer:
    """Send a request over a new connection, and return its answer."""
    length = (f"Content-Length: {len(body)}",) if body or method in ("POST", "PUT") else ()
    with Wire(port) as wire:
        wire.send(head(method, target, *lines, *length, "Connection: close", host=host) + body)
        answer = wire.read()
    assert answer is not None, f"no answer to {method} {target}"
    return answer
