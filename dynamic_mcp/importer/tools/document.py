"""A tool's document while it is converted to the form that its adapter describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Object = dict[str, object]


@dataclass
class ToolDocument:
    """A document with remarks about it and about the fields of its servers.

    The tool treats `refused_servers` as if they did not exist, so they shadow no others.
    """

    settings: Object
    remarks: list[tuple[str, str]] = field(default_factory=list)
    server_remarks: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    refused_servers: set[str] = field(default_factory=set)

    def servers(self, key: str = "mcpServers") -> Object:
        """Return the servers in this member; none if it is not an object."""
        servers = self.settings.get(key)
        return servers if isinstance(servers, dict) else {}

    def change_servers(self, key: str, change: Callable[[str, Object], object]) -> None:
        """Replace each server in this member that is an object."""
        if isinstance(self.settings.get(key), dict):
            self.settings[key] = {
                name: change(name, server) if isinstance(server, dict) else server
                for name, server in self.servers(key).items()
            }

    def remarks_on(self, server: str) -> list[tuple[str, str]]:
        return self.server_remarks.get(server, [])

    def add_remark(self, server: str, field: str, reason: str) -> None:
        self.server_remarks.setdefault(server, []).append((field, reason))


def fill_in(document: ToolDocument, values: Mapping[str, str]) -> None:
    """Replace these references in the servers of a document by their values at the time of the import."""
    document.change_servers("mcpServers", lambda name, server: _fill(server, values))


def _fill(value: object, values: Mapping[str, str]) -> object:
    """Replace the references in a value, down to two levels."""
    match value:
        case str():
            for name, text in values.items():
                value = value.replace(f"${{{name}}}", text)
            return value
        case dict():
            return {key: _fill_members(each, values) for key, each in value.items()}
    return value


def _fill_members(value: object, values: Mapping[str, str]) -> object:
    match value:
        case list():
            return [_fill(each, values) if isinstance(each, str) else each for each in value]
        case dict():
            return {key: _fill(each, values) if isinstance(each, str) else each for key, each in value.items()}
    return _fill(value, values)
