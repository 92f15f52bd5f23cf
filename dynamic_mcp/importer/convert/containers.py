"""Find the servers in a document, and which of them it disables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from dynamic_mcp.importer.adapter import Adapter, Place, find_values
from dynamic_mcp.importer.convert.conversion import RawServer
from dynamic_mcp.importer.convert.draft import describe_kind
from dynamic_mcp.importer.convert.variables import Input

_SIGNS = frozenset(
    ("command", "cmd", "executable", "url", "serverUrl", "httpUrl", "uri", "baseUrl", "base_url", "server_url", "tcp")
)
_HINTS = frozenset(("args", "env", "headers"))
_TYPES = frozenset(("local", "remote", "stdio", "http", "sse", "streamable-http", "streamableHttp"))


@dataclass
class ServerCollection:
    """The servers of a document and the remarks about it."""

    servers: dict[str, RawServer] = field(default_factory=dict)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    has_container: bool = False


def collect(
    document: Mapping[str, object], adapter: Adapter, place: Place | None = None, off: Sequence[str] = ()
) -> ServerCollection:
    """Collect the servers from where the tool keeps them, else from where other tools do.

    `off` are names, or globs, of the servers that another file disables.
    """
    collected = ServerCollection()
    for path in place.servers if place and place.servers else adapter.servers:
        for value in find_values(document, path):
            _add_servers(collected, value, path, adapter)
    if not collected.has_container:
        _look_elsewhere(collected, document, adapter)
    _switch_off(collected, document, adapter, off)
    return collected


def collect_inputs(document: object, adapter: Adapter) -> dict[str, Input]:
    """Return what the tool prompts its user for, by id."""
    found: dict[str, Input] = {}
    for path in adapter.inputs:
        for value in find_values(document, path):
            for each in value if isinstance(value, list) else ():
                if isinstance(each, dict) and isinstance(each.get("id"), str):
                    found[each["id"]] = _parse_input(each)
    return found


def is_server_like(value: object) -> bool:
    """Tell whether an object says how to start or reach something."""
    if not isinstance(value, dict):
        return False
    return bool(value.keys() & _SIGNS) or value.get("type") in _TYPES


def is_among(name: str, listed: Iterable[str], adapter: Adapter) -> bool:
    """Tell whether a list of names or globs contains this name, as the tool compares them."""
    if adapter.is_off_in_any_case:
        return any(fnmatchcase(name.strip().casefold(), each.strip().casefold()) for each in listed)
    return any(fnmatchcase(name, each) for each in listed)


def _parse_input(each: Mapping[str, object]) -> Input:
    default = each.get("default")
    if isinstance(default, bool):
        default = str(default).lower()
    text = str(default) if isinstance(default, (str, int, float)) and str(default) else None
    return Input(str(each["id"]), is_secret=each.get("password") is True, default=text)


def _look_elsewhere(collected: ServerCollection, document: Mapping[str, object], adapter: Adapter) -> None:
    for path in adapter.fallback:
        for value in find_values(document, path):
            members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            if any(is_server_like(each) or (isinstance(each, dict) and each.keys() & _HINTS) for each in members):
                _add_servers(collected, value, path, adapter)
        if collected.has_container:
            return
    if adapter.is_bare and document:
        own = {name: value for name, value in document.items() if name != "$schema"}
        if own and all(map(is_server_like, own.values())):
            _add_servers(collected, own, "$", adapter)


def _add_servers(collected: ServerCollection, value: object, path: str, adapter: Adapter) -> None:
    where = path.removeprefix("$").lstrip(".").replace("'", "")
    if value is None:
        return
    if not isinstance(value, (dict, list)):
        collected.remarks.append((where, f"is {describe_kind(value)} and holds no servers"))
        return
    collected.has_container = True
    for name, server in _iter_items(value, adapter):
        if name in collected.servers:
            if collected.servers[name].value != server:
                collected.remarks.append((name, f"is defined twice; the one in `{where}` is ignored"))
            continue
        collected.servers[name] = RawServer(name, server)


def _iter_items(value: dict[str, object] | list[object], adapter: Adapter) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((name, server) for name, server in value.items() if name != "$schema")
        return
    seen: set[str] = set()
    for i, server in enumerate(value):
        keys = (adapter.named_by, "name", "id", "key")
        named = next((server[key] for key in keys if key in server), None) if isinstance(server, dict) else None
        name = named if isinstance(named, str) and named else f"server-{i + 1}"
        while name in seen:
            name = f"{name}-{i + 1}"
        seen.add(name)
        yield name, server


def _switch_off(
    collected: ServerCollection, document: Mapping[str, object], adapter: Adapter, elsewhere: Sequence[str]
) -> None:
    listed = [name for path in adapter.off for name in find_values(document, path) if isinstance(name, str)]
    off = [name for name in collected.servers if is_among(name, (*listed, *elsewhere), adapter)]
    for name in off:
        raw = collected.servers[name]
        collected.servers[name] = RawServer(raw.name, raw.value, is_off=True, remarks=raw.remarks)
    allowed = [name for path in adapter.allowed for name in find_values(document, path) if isinstance(name, str)]
    for name, raw in collected.servers.items() if allowed else ():
        if not is_among(name, allowed, adapter) and name not in off:
            remark = ("", "is not in the tool's list of allowed servers, so the tool does not start it")
            collected.servers[name] = RawServer(
                raw.name, raw.value, is_off=raw.is_off, remarks=(*raw.remarks, remark)
            )
