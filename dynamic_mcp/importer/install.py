"""Our one entry in a tool's own file, and the servers that it stands for switched off there.

What cannot be parsed is not written; what is not ours keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer import claude, files, locations
from dynamic_mcp.importer.adapter import Adapter, Place
from dynamic_mcp.importer.documents import document
from dynamic_mcp.importer.found import Machine, Scope
from dynamic_mcp.importer.journal import Change, Edit
from dynamic_mcp.importer.shapes import NAME, container_of, shape_of
from dynamic_mcp.importer.tree import NOTHING, at

_SUFFIXES = (".json", ".jsonc", ".toml", ".yaml", ".yml")
_OF_THE_SYSTEM = ("/etc/", "/Library/", "C:/", "{programdata}", "{GEMINI_CLI_SYSTEM")


@dataclass(frozen=True)
class Installation:
    """What would be done to a tool's file: `switched_off` and `taken_out` are names of servers there."""

    file: Path
    before: str = field(repr=False)
    change: Change
    servers: Mapping[str, object] = field(repr=False)
    switched_off: tuple[str, ...] = ()
    taken_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Tell whether the file would be another."""
        return self.change.before != self.change.after

    @property
    def after(self) -> str:
        """The text of the file afterwards."""
        return document(self.file, self.change.after).text


def installation(
    adapter: Adapter, scope: Scope, machine: Machine, *, start: Sequence[str], replaced: Collection[str] = ()
) -> Installation:
    """Work out what it takes to have a tool start `start`, a command and its arguments. Raises DynamicMcpError."""
    place, file = target(adapter, scope, machine)
    return _Work(adapter, place, file, machine).installation(start, replaced)


def removal(adapter: Adapter, scope: Scope, machine: Machine) -> Installation:
    """Work out what it takes to have our entry out of a tool's file. Raises DynamicMcpError."""
    place, file = target(adapter, scope, machine)
    return _Work(adapter, place, file, machine).removal()


def target(adapter: Adapter, scope: Scope, machine: Machine) -> tuple[Place, Path]:
    """Return the file that a tool's own settings are in: the first that is there, else the first that could be."""
    known = [
        (place, file)
        for place, file in locations.candidates(adapter, machine, (scope,))
        if not place.borrowed and not place.path.startswith(_OF_THE_SYSTEM) and file.suffix in _SUFFIXES
    ]
    if not known:
        scopes = {place.scope for place in adapter.places if not place.borrowed}
        hint = " or ".join(f"--scope {each.value}" for each in Scope if each in scopes)
        raise DynamicMcpError(
            f"{adapter.title} has no file of this scope that could be written: {scope.value}", hint=hint
        )
    there = [(place, file) for place, file in known if file.is_file()]
    own = [(place, file) for place, file in there if not place.servers] or there
    return own[0] if own else next((each for each in known if not (each[0].legacy or each[0].servers)), known[0])


class _Work:
    """One file of a tool while it is being changed."""

    def __init__(self, adapter: Adapter, place: Place, file: Path, machine: Machine) -> None:
        self._data = files.read_bytes(file)
        self._file = file
        self._before = document(file, self._data)
        self._made = self._before
        self._edits: list[Edit] = []
        value = self._before.get(())
        paths = place.servers or adapter.servers
        if place.scope is Scope.LOCAL and adapter.quirk == "claude":
            self._container: Keys = ("projects", claude.project_key(value, machine), "mcpServers")
        else:
            self._container = container_of(adapter, value, paths)
        self._shape = shape_of(adapter, self._container)
        if self._data is None and self._shape.must_be_there:
            raise DynamicMcpError(
                f"{adapter.title} has no `{file}` yet, and making one would change what it reads",
                hint="set the tool up first, then run the command again",
            )

    def installation(self, start: Sequence[str], replaced: Collection[str]) -> Installation:
        command, *args = start
        entry = self._shape.entry(command, args)
        off: list[str] = []
        out: list[str] = []
        missing: list[str] = []
        for name in replaced:
            self._replace(name, off, out, missing)
        self._put(self._place(NAME), entry, is_ours=True)
        return self._done(tuple(off), tuple(out), tuple(missing))

    def removal(self) -> Installation:
        path = self._place(NAME)
        if self._made.get(path) is not NOTHING:
            self._drop(path)
        return self._done()

    def _replace(self, name: str, off: list[str], out: list[str], missing: list[str]) -> None:
        path = self._place(name)
        server = self._made.get(path)
        if server is NOTHING or name == NAME:
            missing.append(name)
        elif self._shape.off_list:
            names = self._made.get(self._shape.off_list)
            known = names if isinstance(names, list) else []
            if name not in known:
                self._put((*self._shape.off_list, len(known)), name)
                off.append(name)
        elif self._shape.off is not None and isinstance(server, dict):
            key, value = self._shape.off
            if server.get(key) != value:
                self._put((*path, key), value)
                off.append(name)
        else:
            self._drop(path)
            out.append(name)

    def _place(self, name: str) -> Keys:
        """Return where a server of this name is, or would be."""
        servers = self._made.get(self._container)
        if not self._shape.has_name:
            return (*self._container, name)
        items = servers if isinstance(servers, list) else []
        places = [n for n, each in enumerate(items) if isinstance(each, dict) and each.get("name") == name]
        return (*self._container, places[0] if places else len(items))

    def _put(self, path: Keys, value: object, *, is_ours: bool = False) -> None:
        """Put a value in, and note it at the first place on its way that was not there."""
        before = self._made.get(())
        depth = next((n for n in range(1, len(path)) if at(before, path[:n]) in (NOTHING, None)), len(path))
        old = self._made.get(path[:depth])
        if is_ours and old == value:
            return
        self._made = self._made.put(path, value)
        self._edits.append(Edit(path[:depth], old, self._made.get(path[:depth]), is_ours))

    def _drop(self, path: Keys) -> None:
        old = self._made.get(path)
        self._made = self._made.drop(path)
        self._edits.append(Edit(path, old, NOTHING))

    def _done(
        self, off: tuple[str, ...] = (), out: tuple[str, ...] = (), missing: tuple[str, ...] = ()
    ) -> Installation:
        after = self._made.data() if self._edits else self._data or b""
        change = Change(self._file, self._data if self._edits else after, after, tuple(self._edits))
        servers = self._before.get(self._container)
        named = dict(_named(servers))
        return Installation(self._file, self._before.text, change, named, off, out, missing)


def _named(servers: object) -> Iterator[tuple[str, object]]:
    if isinstance(servers, dict):
        yield from servers.items()
    for number, each in enumerate(servers if isinstance(servers, list) else ()):
        yield str(number), each
