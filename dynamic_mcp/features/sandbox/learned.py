"""What a program has used, as `strace` has written it down, beyond what a sandbox gives it anyway."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox.places import SYSTEM, SYSTEM_DIRECTORIES, SYSTEM_FILES, find_places, is_too_wide
from dynamic_mcp.features.sandbox.words import Restrictions

_CALL = re.compile(rb"^\d+ +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
_TEXT = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"')
_ADDRESS = re.compile(rb'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"((?:\\x[0-9a-f]{2})*)"')
_CHANGING_FLAGS = re.compile(rb"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
_OPENING = (b"open", b"openat", b"creat")
_CHANGING = (
    *(b"mkdir", b"mkdirat", b"rename", b"renameat", b"renameat2", b"unlink", b"unlinkat", b"rmdir", b"symlink"),
    *(b"symlinkat", b"link", b"linkat", b"chmod", b"fchmodat", b"truncate", b"utimensat", b"mknod", b"mknodat"),
)
# Always there, or made anew.
_OWN = ("/proc", "/dev", "/sys", "/tmp", "/var/tmp", "/run")  # noqa: S108 - not used
_USUAL_PORTS = (80, 443)
_NAME_SERVICE = "/var/run/nscd/socket"  # which every program tries
_NAME_SERVER = 53


class Learned(Struct, frozen=True):
    """Words for a sandbox: directories and files, hosts with their ports; and what no word is proposed for."""

    read: list[str]
    write: list[str]
    hosts: list[str]
    sockets: list[str]
    addresses: list[str]


def learn_from(lines: Iterable[bytes], words: Restrictions, program: Program) -> Learned:
    """Return what the trace of a program has, beyond the own places of the program. Raises OSError."""
    places = find_places(words, program)
    given = {*SYSTEM, *SYSTEM_DIRECTORIES, *SYSTEM_FILES, *_OWN, *places.write}
    watched = _Watched(program.cwd or str(Path.cwd()))
    for line in lines:
        watched.take(line)
    write = _list_directories(watched.written, {*places.write, *_OWN}, words)
    read = _list_directories(watched.read, {*given, *places.read, *write}, words)
    names = sorted(watched.names)
    hosts = [name if port in _USUAL_PORTS else f"{name}:{port}" for name in names for port in watched.ports or [443]]
    unnamed = [] if names else sorted(f"{address}:{port}" for address, port in watched.addresses)
    return Learned(read, write, [*dict.fromkeys(hosts)], sorted(watched.sockets), unnamed)


class _Watched:
    """What is in the lines of a trace. A relative path is taken to start at `cwd`."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self.read = set[str]()
        self.written = set[str]()
        self.sockets = set[str]()
        self.names = set[str]()
        self.addresses = set[tuple[str, int]]()

    @property
    def ports(self) -> set[int]:
        return {port for _, port in self.addresses}

    def take(self, line: bytes) -> None:
        match = _CALL.match(line)
        if match is None:
            return
        name, arguments = match["name"], match["arguments"]
        if name == b"connect":
            self._take_connection(arguments)
        elif name.startswith(b"send"):
            self.names.update(_questions_in(arguments))
        elif not match["result"].startswith(b"-"):
            self._take_file(name, arguments)

    def _take_file(self, name: bytes, arguments: bytes) -> None:
        paths = [
            os.path.normpath(Path(self._cwd, _decode(each).decode(errors="replace")))
            for each in _TEXT.findall(arguments)
        ]
        if name in _CHANGING or (name in _OPENING and (name == b"creat" or _CHANGING_FLAGS.search(arguments))):
            self.written.update(paths)
        elif name in (*_OPENING, b"execve"):
            self.read.update(paths[:1])

    def _take_connection(self, arguments: bytes) -> None:
        if b"AF_UNIX" in arguments:
            paths = (_decode(each).decode(errors="replace") for each in _TEXT.findall(arguments)[:1])
            self.sockets.update(each for each in paths if each != _NAME_SERVICE)
        for port, address in _ADDRESS.findall(arguments):
            if int(port) not in (0, _NAME_SERVER):
                self.addresses.add((_decode(address).decode(), int(port)))


def _decode(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(b"\\x", b"").decode())


def _questions_in(arguments: bytes) -> Iterator[str]:
    """Yield the names that are asked for in messages to a name server (RFC 1035, section 4)."""
    for text in _TEXT.findall(arguments):
        message = _decode(text)
        if len(message) > 16 and message[2:3] == b"\x01" and message[4:6] == b"\x00\x01":
            name = _read_name(message[12:])
            if name:
                yield name


def _read_name(data: bytes) -> str:
    labels: list[str] = []
    while data and data[0]:
        size = data[0]
        label = data[1 : 1 + size]
        if size > 63 or len(label) < size or not label.isascii():
            return ""
        labels.append(label.decode())
        data = data[1 + size :]
    return ".".join(labels).lower() if len(labels) > 1 else ""


def _list_directories(paths: Iterable[str], given: Iterable[str], words: Restrictions) -> list[str]:
    """Return the directories of files, without those in others; a file itself where its directory is too wide."""
    known = [Path(each) for each in given if each]
    found = set[Path]()
    for path in map(Path, paths):
        if any(path.is_relative_to(each) for each in known):
            continue
        folder = path if path.is_dir() else path.parent
        found.add(path if is_too_wide(str(folder), words) else folder)
    found = {each for each in found if not is_too_wide(str(each), words)}
    return sorted(
        str(each) for each in found if not any(other != each and each.is_relative_to(other) for other in found)
    )
