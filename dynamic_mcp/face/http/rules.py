"""What both ways in refuse by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynamic_mcp.face.http.responses import Headers


class Refusal(Exception):
    """A request that no handler sees: the status and the reason that the client is told, and further headers."""

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.headers = headers


def join_fields(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], frozenset[bytes]]:
    """Return header fields as a `RequestHead` has them, and the names of those that were sent several times."""
    fields: dict[bytes, bytes] = {}
    repeated = set[bytes]()
    for raw_name, value in pairs:
        name = raw_name.lower()
        if name in fields:
            repeated.add(name)
            fields[name] += b", " + value
        else:
            fields[name] = value
    return fields, frozenset(repeated)


def check_host(fields: Mapping[bytes, bytes], repeated: frozenset[bytes], *, is_needed: bool) -> None:
    """Raise Refusal unless there is one Host (RFC 9112, 3.2)."""
    if b"host" in repeated:
        raise Refusal(400, "there are two Host headers")
    if is_needed and b"host" not in fields:
        raise Refusal(400, "there is no Host header")
