"""The sockets that the HTTP server listens on."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from dynamic_mcp.config.addresses import TcpAddress


def bind_tcp(address: TcpAddress) -> list[socket.socket]:
    """Return a bound socket for each address of the host. Raises OSError."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            try:
                bound.append(_bind(family, kind, protocol, where))
            except OSError as exc:
                if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = exc  # a name may have an IPv6 address on a machine without IPv6
    except BaseException:
        for each in bound:
            each.close()
        raise
    if missing is not None and not bound:
        raise missing
    return bound


def _bind(family: int, kind: int, protocol: int, where: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows it would let two processes use the same port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(where)
    except BaseException:
        listening.close()
        raise
    return listening


class UnixSocket:
    """A bound Unix socket. A stale socket file is replaced, and ours is removed at the end."""

    def __init__(self, path: str, mode: int) -> None:
        """Bind. Raises OSError, with EADDRINUSE if the path is in use."""
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "asyncio has no Unix sockets on Windows", path)
        self._path = Path(path)
        _remove_stale(self._path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o777 & ~mode)  # so that it never exists with other permissions
        try:
            self.socket.bind(path)
        except BaseException:
            self.socket.close()
            raise
        finally:
            os.umask(before)
        self._inode = self._path.stat().st_ino

    def remove(self) -> None:
        """Remove the file, unless it was replaced."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "the path is a file that is not a socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise OSError(errno.EADDRINUSE, "another process listens here", str(path)) from exc
        else:
            raise OSError(errno.EADDRINUSE, "another process listens here", str(path))
