"""Finds the config entry for a foreign server: by its program or URL, else by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dynamic_mcp.config.substitute import expand
from dynamic_mcp.config.types import NAME_LENGTH
from dynamic_mcp.importer.convert.identity import Identity, collect_conditions, identify
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.model import Entry, ForeignServer
from dynamic_mcp.system.text import replace_unprintable

INHERIT_ENV = "inherit_env"
# The fields that select the program or URL; an import replaces them together.
STARTING_FIELDS = ("command", "args", "env", "env_file", "cwd", "url", "type", "headers", "cli", "openapi", "skills")
_BRIDGE_FIELDS = ("url", "type", "headers", "command", "args", "env", "cwd")
# The user's settings: an import does not change them in an existing entry.
_USER_FIELDS = ("description", INHERIT_ENV)


class Matcher:
    """The entries of a config, and the foreign servers that match each of them, in order.

    `values` are the known values of variables: a reference equals its value.
    """

    def __init__(self, entries: Mapping[str, Entry], home: str, values: Mapping[str, str]) -> None:
        self._home = home
        self._values = values
        self._entries: dict[str, Entry] = {}
        self._identities: dict[str, Identity] = {}
        self._names: dict[tuple[str, ...], list[str]] = {}  # by identity key
        self._servers: dict[str, list[ForeignServer]] = {}
        for name, entry in entries.items():
            self.put(name, entry)

    def put(self, name: str, entry: Entry) -> None:
        if name in self._identities:
            self._names[self._identities[name].key].remove(name)
        self._entries[name] = entry
        self._identities[name] = self._identify(entry)
        self._names.setdefault(self._identities[name].key, []).append(name)

    def claim(self, name: str, server: ForeignServer) -> None:
        """Record that an entry is this server."""
        self._servers.setdefault(name, []).append(server)

    def first_server(self, name: str) -> ForeignServer | None:
        """Return the first server that was claimed for this entry."""
        return next(iter(self._servers.get(name, ())), None)

    def find_same(self, server: ForeignServer, siblings: Collection[str]) -> str | None:
        """Return the name of the entry with the same program or URL, and the same variables and headers.

        `siblings` are the names of all servers in the server's file.
        """
        identity = self._identify(server.entry)
        names = [name for name in self._names.get(identity.key, ()) if self._identities[name].is_same(identity)]
        names.sort(key=lambda name: name != to_usable_name(server.name))
        return next((name for name in names if self._is_same_entry(server, name, siblings)), None)

    def find_named(self, server: ForeignServer, siblings: Collection[str]) -> str | None:
        """Return the entry with one of the names that the server would get, unless it is another server."""
        names = (name for name in reversed(own_names(server)) if name == server.name or name not in siblings)
        return next((name for name in names if name in self._entries and name not in self._servers), None)

    def is_same_server(self, one: ForeignServer, other: ForeignServer) -> bool:
        """Return whether two servers have the same program or URL, variables and headers."""
        is_same = self._identify(one.entry).is_same(self._identify(other.entry))
        return is_same and self._collect_conditions(one.entry) == self._collect_conditions(other.entry)

    def differing_fields(self, entry: Entry, other: Entry) -> tuple[str, ...]:
        """Return the fields of another entry of a server that differ from those of the first.

        Settings that only the first has do not count, unless they select the program or URL.
        """
        ignored = {*_USER_FIELDS, *self._equivalent_fields(entry, other)}
        starting = [key for key in STARTING_FIELDS if key in entry]
        keys = [key for key in dict.fromkeys((*other, *starting)) if key not in ignored]
        return tuple(
            field
            for key in keys
            for field in _differing(key, self._resolve(entry.get(key)), self._resolve(other.get(key)))
        )

    def _equivalent_fields(self, entry: Entry, other: Entry) -> tuple[str, ...]:
        """Return the fields that may differ between two forms of one server, as a URL and the bridge to it."""
        if not self._identify(entry).is_same(self._identify(other)):
            return ()
        return _BRIDGE_FIELDS if ("url" in entry) != ("url" in other) else ("url",)

    def _is_same_entry(self, server: ForeignServer, name: str, siblings: Collection[str]) -> bool:
        entry = self._entries[name]
        claims = self._servers.get(name, ())
        is_siblings = name in siblings and name != server.name
        must_be_equal = is_siblings or any(each.source == server.source for each in claims)
        if must_be_equal and self.differing_fields(entry, server.entry):
            return False
        return self._collect_conditions(entry) == self._collect_conditions(server.entry)

    def _identify(self, entry: Entry) -> Identity:
        resolved = self._resolve({key: entry[key] for key in STARTING_FIELDS if key in entry})
        assert isinstance(resolved, dict)
        return identify(resolved, self._home)

    def _collect_conditions(self, entry: Entry) -> frozenset[tuple[str, str, str]]:
        return collect_conditions(entry, self._home, self._values)

    def _resolve(self, value: object) -> object:
        match value:
            case str():
                return expand(value, self._values).text
            case Mapping():
                return {key: self._resolve(inner) for key, inner in value.items()}
            case list():
                return [self._resolve(inner) for inner in value]
        return value


def own_names(server: ForeignServer) -> tuple[str, str]:
    """Return the candidate names of a server in the config: its name, or with its tool's if that is taken."""
    plain = to_usable_name(server.name)
    return plain, f"{plain[: NAME_LENGTH - len(server.source.tool) - 1]}-{server.source.tool}"


def to_usable_name(name: str) -> str:
    """Convert a name to a form that our config accepts."""
    return replace_unprintable(name, "-").strip()[:NAME_LENGTH].strip() or "server"


def _differing(key: str, one: object, other: object) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys((*one, *other))
        yield from (f"{key}.{name}" for name in names if one.get(name, NOTHING) != other.get(name, NOTHING))
        return
    yield key
