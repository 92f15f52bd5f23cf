"""The checks that both servers, ours and ASGI, make before the core sees a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynamic_mcp.face.http.responses import Headers


class HttpRefusal(Exception):
    """A request that the core never sees: the status, the reason for the client, and further headers."""

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.headers = headers


def join_fields(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], frozenset[bytes]]:
    """Return header fields as in `RequestHead`, and the names of those that were sent several times."""
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
    """Raise HttpRefusal unless there is exactly one Host header (RFC 9112, 3.2)."""
    if b"host" in repeated:
        raise HttpRefusal(400, "duplicate header `Host`")
    if is_needed and b"host" not in fields:
        raise HttpRefusal(400, "missing header `Host`")
