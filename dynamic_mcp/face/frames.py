"""What a window and its daemon say to each other over their socket.

A window says hello once; from then on it sends the client's bytes as they are, and the daemon sends frames. A frame
is a kind (one byte), the number of a line of the client (eight bytes), and a payload after its length (four bytes).
Only builtins are used, because a window starts with this.
"""

from __future__ import annotations

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Of this conversation, not of MCP; a daemon refuses a window that speaks another.
PROTOCOL = b"1"

HEADER_BYTES = 13
# The daemon serves the window, which may begin to send.
WELCOME = 0x77
# The payload goes to the client; the line with this number, if it is not 0, is answered or needs no answer.
OUTPUT = 0x6F
# What another daemon must know of this session: a name, NUL, and the data; without the NUL, the name is forgotten.
KEEP = 0x6B
# The daemon stops, and took as many lines of the client as the number says. With the payload `RECONNECT` the window
# finds or starts another one at once, without it when its client needs one.
STOP = 0x73
RECONNECT = b"reconnect"
# The session is over: the payload says why, the number is the exit code.
END = 0x65

# In place of a welcome: the config asks for no daemon any more, so the window serves alone.
REFUSE = 0x61

# What a window sends in place of a line when the client's input has ended.
END_OF_INPUT = b"\x04"


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return b"%c%b%b%b" % (kind, number.to_bytes(8), len(payload).to_bytes(4), payload)


def header(data: bytes | bytearray, at: int) -> tuple[int, int, int]:
    """Return the kind and the number of a frame whose header is at this place, and where its payload ends."""
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
    """Return what a window says first; `purpose` is `session`, or of a command `command` or `stop`.

    `only` is the one group that the client sees; empty is all of them. An empty `profile` is none.
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
    """Return some byte strings as one, which `unpack` takes apart."""
    return b"".join(part for each in parts for part in (len(each).to_bytes(4), each))


def unpack(data: bytes) -> list[bytes]:
    """Return the byte strings that `pack` was given. Raises ValueError for anything else."""
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
    """Return names and values as one byte string, which `unpack_pairs` takes apart."""
    return pack(part for pair in pairs.items() for part in pair)


def unpack_pairs(data: bytes) -> dict[bytes, bytes]:
    """Return the names and values that `pack_pairs` was given. Raises ValueError for anything else."""
    parts = unpack(data)
    if len(parts) % 2:
        raise ValueError("a name has no value")
    return dict(zip(parts[::2], parts[1::2], strict=True))
