"""The protocol between a window and its daemon over their socket.

A window sends one hello, and then the client's bytes unchanged; the daemon sends frames. A frame is a kind (one
byte), the number of one of the client's lines (eight bytes), and a payload after its length (four bytes). Only
builtins are used, because a window starts with this.
"""

from __future__ import annotations

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The version of this protocol, not of MCP; a daemon refuses windows with another version.
PROTOCOL = b"1"

HEADER_BYTES = 13
# The daemon accepts the window, which may start to send.
WELCOME = 0x77
# The payload goes to the client; a number other than 0 is that of a line that is answered or needs no answer.
OUTPUT = 0x6F
# A note about the session for another daemon: a name, NUL, and the data; without the NUL, the note is removed.
KEEP = 0x6B
# The daemon stops; the number is how many of the client's lines it has taken. With the payload `RECONNECT` the window
# finds or starts another daemon at once, else when its client needs one.
STOP = 0x73
RECONNECT = b"reconnect"
# The session is over: the payload says why, the number is the exit code.
END = 0x65

# Instead of a welcome: the config no longer wants a daemon, so the window serves alone.
REFUSE = 0x61

# Sent by a window instead of a line when the client's input has ended.
END_OF_INPUT = b"\x04"


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    """Return an encoded frame."""
    return b"%c%b%b%b" % (kind, number.to_bytes(8), len(payload).to_bytes(4), payload)


def header(data: bytes | bytearray, at: int) -> tuple[int, int, int]:
    """Return the kind and the number of the frame at this offset, and the offset where its payload ends."""
    start = at + HEADER_BYTES
    return data[at], int.from_bytes(data[at + 1 : at + 9]), start + int.from_bytes(data[at + 9 : start])


def hello(
    purpose: bytes,
    config: bytes,
    *,
    version: bytes,
    directory: bytes = b"/",
    environment: bytes = b"",
    only: bytes = b"",
    profile: bytes = b"",
    generation: int = 0,
    notes: bytes = b"",
    interrupted: bytes = b"",
) -> bytes:
    """Return the first message of a window (`purpose` `session`) or of a command (`command` or `stop`).

    `only` is the one group that the client sees; empty means all. An empty `profile` means none.
    """
    body = pack_pairs(
        {
            b"protocol": PROTOCOL,
            b"purpose": purpose,
            b"version": version,
            b"config": config,
            b"directory": directory,
            b"environment": environment,
            b"only": only,
            b"profile": profile,
            b"generation": b"%d" % generation,
            b"notes": notes,
            b"interrupted": interrupted,
        }
    )
    return len(body).to_bytes(4) + body


def pack(parts: Iterable[bytes]) -> bytes:
    """Join byte strings into one, which `unpack` splits."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def unpack(data: bytes) -> list[bytes]:
    """Return the byte strings that `pack` joined. Raises ValueError for other data."""
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4])
        if end > len(data):
            raise ValueError("cut short")
        parts.append(data[at + 4 : end])
        at = end
    return parts


def pack_pairs(pairs: dict[bytes, bytes]) -> bytes:
    """Encode names and values as one byte string, which `unpack_pairs` decodes."""
    return pack(part for pair in pairs.items() for part in pair)


def unpack_pairs(data: bytes) -> dict[bytes, bytes]:
    """Return the names and values that `pack_pairs` encoded. Raises ValueError for other data."""
    parts = unpack(data)
    if len(parts) % 2:
        raise ValueError("a name has no value")
    return dict(zip(parts[::2], parts[1::2], strict=True))
