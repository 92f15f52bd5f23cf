"""Windows in the process of a test: each at one end of a socket, with a socket face at the other."""

from __future__ import annotations

import asyncio
import socket

from dynamic_mcp import __version__
from dynamic_mcp.face import frames
from dynamic_mcp.face.socket import Hello, SocketFace
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientOrigin
from dynamic_mcp.session.server import LineSession
from dynamic_mcp.session.stream_session import StreamSession

CONFIG = b"/config.json"
HELLO = frames.hello(b"session", CONFIG, version=__version__.encode())


class Reception:
    """Admits every window to one proxy, as a daemon does."""

    def __init__(self, proxy: Proxy, max_message_bytes: int = 1 << 20) -> None:
        self.faces: list[SocketFace] = []
        self.dismissed: list[SocketFace] = []
        self._proxy = proxy
        self._max_message_bytes = max_message_bytes

    async def admit(self, face: SocketFace, hello: Hello) -> LineSession | None:
        """Return a session with the proxy."""
        return StreamSession(face.connection(ClientOrigin(), hello.continuation), self._proxy)

    def dismiss(self, face: SocketFace) -> None:
        """Note which window has gone."""
        self.dismissed.append(face)

    async def connect(self) -> socket.socket:
        """Return the window's end of a new connection, which nobody has said hello on."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(self._accept, theirs)
        return ours

    def _accept(self) -> SocketFace:
        face = SocketFace(self, self._max_message_bytes)
        self.faces.append(face)
        return face


class Frames:
    """Takes frames out of what a daemon has written."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return the kind, the number and the payload of each frame that is whole by now."""
        self._received += data
        taken: list[tuple[int, int, bytes]] = []
        while len(self._received) >= frames.HEADER_BYTES:
            kind, number, end = frames.header(self._received, 0)
            if len(self._received) < end:
                break
            taken.append((kind, number, self._received[frames.HEADER_BYTES : end]))
            self._received = self._received[end:]
        return taken
