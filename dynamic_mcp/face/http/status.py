"""The health endpoints: whether the process is alive, and whether it is ready to serve."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import asdict

from dynamic_mcp import __version__
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import JSON, refusal
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy

_NO_STORE = ((b"cache-control", b"no-store"),)


def health(method: str) -> Response:
    """Return that the process is alive; this says nothing about any server."""
    if method not in ("GET", "HEAD"):
        return refusal(405, "only GET and HEAD are allowed for this path", ((b"allow", b"GET, HEAD"),))
    return Response(200, JSON + _NO_STORE, b'{"status":"alive"}')


class Load(Struct, frozen=True):
    """The load of a server: sessions of legacy clients, modern clients, and their requests in flight."""

    sessions: int
    modern_clients: int
    modern_requests: int


def ready(proxy: Proxy, load: Load | None, *, is_draining: bool) -> Response:
    """Return status 200, or 503 once the server is stopping, and the load and the other replicas, if they are given.

    This needs no authentication, so it names no group, and has no load if clients must authenticate.
    """
    body: dict[str, object] = {"status": "ending" if is_draining else "ready"}
    if load is not None:
        states = Counter(group.state.name.lower() for group in proxy.groups)
        body |= {"version": __version__, "groups": dict(sorted(states.items())), **asdict(load)}
        if proxy.replicas is not None:
            body["cluster"] = asdict(proxy.replicas.describe())
    store = proxy.shared_store
    if store is not None:
        state = store.describe()
        body["shared_store"] = {"state": state.failure or "ok", **({} if load is None else asdict(state))}
    return Response(503 if is_draining else 200, JSON + _NO_STORE, wire.encode(body))
