"""The private socket of a daemon, a named pipe on Windows. Only one daemon listens on it at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dynamic_mcp.system.paths import FileLock

if sys.platform == "win32":
    from dynamic_mcp.face.pipe_listener import PipeListener

# Windows that may connect at once before one is accepted.
_BACKLOG = 1024


class _Server(Protocol):
    def close(self) -> None: ...


class DaemonListener:
    """A Unix socket at `path`, with a lock beside it: a socket whose lock is free is stale.

    On Windows the file at `path` has the name of the pipe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"))
        self._server: _Server | None = None
        self._inode = 0

    async def open(self, accept: Callable[[], asyncio.BaseProtocol]) -> bool:
        """Listen; return False if another daemon already does. Raises OSError."""
        if not self._lock.try_acquire():
            return False
        try:
            await self._listen(accept)
        except BaseException:
            self._lock.release()
            raise
        return True

    async def restore(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        """Listen again if the socket file was removed, unless another daemon listens there now. Raises OSError."""
        if self._server is not None and not self.path.exists():
            self._server.close()
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            await self._listen(accept)

    async def _listen(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        if sys.platform == "win32":
            self._server = pipe = PipeListener(accept)
            self.path.write_text(pipe.address, encoding="ascii")
        else:
            self.path.unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                listening.bind(str(self.path))
            finally:
                os.umask(before)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(accept, sock=listening, backlog=_BACKLOG)
        self._inode = self.path.stat().st_ino

    def close(self) -> None:
        """Stop listening and release the lock. Existing connections stay open."""
        if self._server is None:
            return
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:  # else our file was removed, and another process listens there
                self.path.unlink()
        self._server.close()
        self._server = None
        self._lock.release()
