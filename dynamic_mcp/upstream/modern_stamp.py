"""The envelope of requests to a modern upstream, encoded once for a link: this is on the path of a call."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.system.bounded import BoundedDict

# Legacy tasks are unknown to a modern server, and it receives no changes of the roots.
_LEGACY_CAPABILITY = "tasks"
_ROOTS = "roots"
# There are fewer levels, but clients may invent some.
_MAX_LEVELS = 16
_MAX_CLIENTS = 64


class Stamp:
    """The envelope of one link's requests; `capabilities` are those of the client as the upstream sees them.

    On a link that several kinds of clients share, each kind has a stamp with its capabilities.
    """

    def __init__(self, hello: ClientInfo) -> None:
        self.capabilities = _capabilities(hello)
        self.is_common = hello.is_common
        self._hello = hello
        self._by_client: BoundedDict[tuple[str, bytes], Stamp] = BoundedDict(_MAX_CLIENTS)
        self._members = {
            envelope.PROTOCOL_VERSION: Raw(wire.encode(MODERN.name)),
            envelope.CLIENT_CAPABILITIES: Raw(wire.encode(self.capabilities)),
            **({envelope.CLIENT_INFO: hello.client_info} if len(hello.client_info) else {}),
        }
        self._metas: BoundedDict[str, Raw] = BoundedDict(_MAX_LEVELS)

    def params(self, params: Mapping[str, Raw] | None = None, level: str = "") -> dict[str, Raw]:
        """Return params with the envelope in their `_meta`; `level` is the requested log level, if any."""
        if params is None:
            return {"_meta": self._meta(level)}
        if "_meta" not in params:
            return {**params, "_meta": self._meta(level)}
        members = self._members if not level else {**self._members, envelope.LOG_LEVEL: Raw(wire.encode(level))}
        meta = envelope.meta_of(params)
        if envelope.LOG_LEVEL in meta:
            del meta[envelope.LOG_LEVEL]  # a legacy client does not mean it
        return {**params, "_meta": Raw(wire.encode({**meta, **members}))}

    def of_client(self, client: ClientInfo) -> Stamp:
        """Return the stamp for requests of a client."""
        if not self.is_common:
            return self
        key = client.revision.name, bytes(client.capabilities)
        stamp = self._by_client.get(key)
        if stamp is None:
            hello = replace(client, client_info=self._hello.client_info)
            stamp = self._by_client[key] = Stamp(hello)
        return stamp

    def _meta(self, level: str) -> Raw:
        meta = self._metas.get(level)
        if meta is None:
            log_level = {envelope.LOG_LEVEL: level} if level else {}
            meta = self._metas[level] = Raw(wire.encode({**self._members, **log_level}))
        return meta


def _capabilities(hello: ClientInfo) -> dict[str, Raw]:
    try:
        declared = wire.members(hello.capabilities)
    except wire.Malformed:
        return {}
    if not hello.revision.is_stateless:
        declared.pop(_LEGACY_CAPABILITY, None)
        if _ROOTS in declared:
            declared[_ROOTS] = wire.EMPTY_OBJECT
    return {name: value for name, value in declared.items() if bytes(value) != b"null"}
