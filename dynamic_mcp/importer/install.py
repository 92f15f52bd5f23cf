"""Our one entry in a tool's own file, and the servers that it stands for disabled there.

What cannot be parsed is not written; what is not ours keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dynamic_mcp.config.clients import Client, find_client
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer import claude, files, locations
from dynamic_mcp.importer.adapter import Adapter, Place
from dynamic_mcp.importer.documents import Document, document
from dynamic_mcp.importer.found import Machine, Scope
from dynamic_mcp.importer.journal import Change, Edit
from dynamic_mcp.importer.shapes import NAME, Shape, container_of, shape_of
from dynamic_mcp.importer.tree import NOTHING, at

_SUFFIXES = (".json", ".jsonc", ".toml", ".yaml", ".yml")
_OF_THE_SYSTEM = ("/etc/", "/Library/", "C:/", "{programdata}", "{GEMINI_CLI_SYSTEM")


class Target(NamedTuple):
    """One file of a tool, as one of its scopes."""

    place: Place
    file: Path


@dataclass(frozen=True)
class Diff:
    """One file's text before and after, and the servers that were in it."""

    file: Path
    before: str = field(repr=False)
    after: str = field(repr=False)
    servers: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True)
class Installation:
    """What would be done to a tool's files: `switched_off`, `taken_out` and `missing` are names of servers.

    `asked_for` are variables that the entry newly asks the tool to pass on, `withheld` those that it will not.
    """

    file: Path
    changes: tuple[Change, ...]
    diffs: tuple[Diff, ...]
    switched_off: tuple[str, ...] = ()
    taken_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    asked_for: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    remark: str = ""

    @property
    def is_needed(self) -> bool:
        """Tell whether a file would be another."""
        return bool(self.changes)

    @property
    def after(self) -> str:
        """The text of the tool's own file afterwards."""
        return next(diff.after for diff in self.diffs if diff.file == self.file)


def installation(
    adapter: Adapter,
    scope: Scope,
    machine: Machine,
    *,
    start: Sequence[str],
    needed: Collection[str] = (),
    replaced: Mapping[Target, Collection[str]] | None = None,
) -> Installation:
    """Work out what it takes to have a tool start `start`, a command and its arguments, with the `needed` variables.

    The servers that are `replaced`, by file, are switched off or taken out. Raises DynamicMcpError.
    """
    mine = target(adapter, scope, machine)
    work = _Work(adapter, machine)
    # our entry comes first, so that it goes last when all is undone: what is put back is written as it is by then
    work.install(mine, start, needed)
    for there, names in (replaced or {}).items():
        for name in names:
            work.replace(there, name)
    return work.done(mine)


def removal(adapter: Adapter, scope: Scope, machine: Machine) -> Installation:
    """Work out what it takes to have our entry out of a tool's file. Raises DynamicMcpError."""
    mine = target(adapter, scope, machine)
    work = _Work(adapter, machine)
    work.remove(mine)
    return work.done(mine)


def entry_in(adapter: Adapter, there: Target, machine: Machine) -> Mapping[str, object] | None:
    """Return our entry as it stands in a tool's file. Raises FileError."""
    data = files.read_bytes(there.file)
    if data is None:
        return None
    entry = _Servers(adapter, there.place, document(there.file, data), machine).get(NAME)
    return entry if isinstance(entry, dict) else None


def target(adapter: Adapter, scope: Scope, machine: Machine) -> Target:
    """Return the file that a tool's own settings are in: the first that is there, else the first that could be."""
    known = [
        Target(place, file)
        for place, file in locations.candidates(adapter, machine, (scope,))
        if is_writable(place, file)
    ]
    if not known:
        scopes = {place.scope for place in adapter.places if not place.borrowed}
        hint = " or ".join(f"--scope {each.value}" for each in Scope if each in scopes)
        raise DynamicMcpError(
            f"{adapter.title} has no file of this scope that could be written: {scope.value}", hint=hint
        )
    there = [each for each in known if each.file.is_file()]
    own = [each for each in there if not each.place.servers] or there
    return (
        own[0] if own else next((each for each in known if not (each.place.legacy or each.place.servers)), known[0])
    )


def targets(adapter: Adapter, scopes: Collection[Scope], machine: Machine) -> list[Target]:
    """Return the files of a tool that are there and that may be written."""
    return [
        Target(place, file)
        for place, file in locations.files(adapter, machine, scopes)
        if is_writable(place, file) and file.is_file()
    ]


def is_writable(place: Place, file: Path) -> bool:
    """Tell whether a file is the tool's own, the user's to change, and of a kind that can be changed."""
    return not place.borrowed and not place.path.startswith(_OF_THE_SYSTEM) and file.suffix in _SUFFIXES


class _Servers:
    """Where a tool's servers are in a document, and in which shape."""

    def __init__(self, adapter: Adapter, place: Place, made: Document, machine: Machine) -> None:
        value = made.get(())
        if place.scope is Scope.LOCAL and adapter.quirk == "claude":
            self._container: Keys = ("projects", claude.project_key(value, machine), "mcpServers")
        else:
            self._container = container_of(adapter, value, place.servers or adapter.servers)
        self.shape: Shape = shape_of(adapter, self._container)
        self._made = made

    def get(self, name: str) -> object:
        return self._made.get(self.place(name))

    def all(self) -> dict[str, object]:
        return dict(_named(self._made.get(self._container)))

    def place(self, name: str) -> Keys:
        """Return where a server of this name is, or would be."""
        servers = self._made.get(self._container)
        if not self.shape.has_name:
            return (*self._container, name)
        items = servers if isinstance(servers, list) else []
        places = [n for n, each in enumerate(items) if isinstance(each, dict) and each.get("name") == name]
        return (*self._container, places[0] if places else len(items))


class _File:
    """One file while it is being changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.data = files.read_bytes(file)
        self.before = document(file, self.data)
        self.made = self.before
        self._edits: list[Edit] = []

    def put(self, path: Keys, value: object, *, is_ours: bool = False) -> None:
        """Put a value in, and note it at the first place on its way that was not there."""
        before = self.made.get(())
        depth = next((n for n in range(1, len(path)) if at(before, path[:n]) in (NOTHING, None)), len(path))
        old = self.made.get(path[:depth])
        if old == value:
            return
        self.made = self.made.put(path, value)
        self._edits.append(Edit(path[:depth], old, self.made.get(path[:depth]), is_ours))

    def drop(self, path: Keys) -> None:
        """Take a value out, and note which neighbours it had."""
        old, around = self.made.get(path), self.made.get(path[:-1])
        self.made = self.made.drop(path)
        order = tuple(around) if isinstance(around, dict) else ()
        self._edits.append(Edit(path, old, NOTHING, order=order))

    def change(self) -> Change | None:
        """Return what was done; None for nothing."""
        after = self.made.data()
        return Change(self.file, self.data, after, tuple(self._edits)) if self._edits and after != self.data else None


class _Work:
    """The files of a tool while they are being changed."""

    def __init__(self, adapter: Adapter, machine: Machine) -> None:
        self._adapter = adapter
        self._machine = machine
        self._client: Client | None = find_client(adapter.name)
        self._files: dict[Path, _File] = {}
        self._servers: dict[Path, dict[str, object]] = {}
        self._off: list[str] = []
        self._out: list[str] = []
        self._missing: list[str] = []
        self._asked_for: list[str] = []
        self._withheld: list[str] = []

    def install(self, mine: Target, start: Sequence[str], needed: Collection[str]) -> None:
        file, servers = self._opened(mine)
        if file.data is None and servers.shape.must_be_there:
            raise DynamicMcpError(
                f"{self._adapter.title} has no `{mine.file}` yet, and making one would change what it reads",
                hint="set the tool up first, then run the command again",
            )
        command, *args = start
        wanted = servers.shape.entry(command, args)
        path, there = servers.place(NAME), servers.get(NAME)
        old = there if isinstance(there, dict) and servers.shape.command in there else None
        withheld = self._client.list_withheld(needed, old) if self._client is not None else []
        asking = self._client.request_fields(withheld) if self._client is not None else {}
        if old is None:
            file.put(path, {**wanted, **servers.shape.shown, **asking}, is_ours=True)
        else:
            self._update(file, path, old, {**wanted, **servers.shape.shown}, servers.shape)
            _ask(file, path, old, asking)
        (self._asked_for if asking else self._withheld).extend(withheld)

    def replace(self, there: Target, name: str) -> None:
        """Switch a server off, or take it out where the tool has no switch."""
        file, servers = self._opened(there)
        path, server, shape = servers.place(name), servers.get(name), servers.shape
        if server is NOTHING or name == NAME:
            self._missing.append(name)
        elif shape.off_list:
            names = file.made.get(shape.off_list)
            known = names if isinstance(names, list) else []
            if name not in known:
                file.put((*shape.off_list, len(known)), name)
                self._off.append(name)
        elif shape.off is not None and isinstance(server, dict):
            key, value = shape.off
            if server.get(key) != value:
                file.put((*path, key), value)
                self._off.append(name)
        else:
            file.drop(path)
            self._out.append(name)

    def remove(self, mine: Target) -> None:
        file, servers = self._opened(mine)
        if servers.get(NAME) is not NOTHING:
            file.drop(servers.place(NAME))

    def done(self, mine: Target) -> Installation:
        changes = [change for file in self._files.values() if (change := file.change()) is not None]
        diffs = [
            Diff(file.file, file.before.text, file.made.text, self._servers[file.file])
            for file in self._files.values()
        ]
        _, servers = self._opened(mine)
        return Installation(
            mine.file,
            tuple(changes),
            tuple(diffs),
            switched_off=tuple(self._off),
            taken_out=tuple(self._out),
            missing=tuple(self._missing),
            asked_for=tuple(self._asked_for),
            withheld=tuple(self._withheld),
            remark=servers.shape.remark,
        )

    def _opened(self, there: Target) -> tuple[_File, _Servers]:
        file = self._files.get(there.file) or self._files.setdefault(there.file, _File(there.file))
        servers = _Servers(self._adapter, there.place, file.made, self._machine)
        self._servers.setdefault(there.file, {}).update(servers.all())
        return file, servers

    def _update(
        self, file: _File, path: Keys, old: Mapping[str, object], new: Mapping[str, object], shape: Shape
    ) -> None:
        """Change the fields that decide what is started; what else the user has there stays."""
        for key, value in new.items():
            is_free = key in shape.shown or not shape.is_ours_to_set(key)
            if not (is_free and key in old):
                file.put((*path, key), value)


def _ask(file: _File, path: Keys, old: Mapping[str, object], asking: Mapping[str, object]) -> None:
    """Add the variables to those that an entry asks for already."""
    for key, value in asking.items():
        there = old.get(key)
        if isinstance(value, list):
            file.put((*path, key), [*(there if isinstance(there, list) else ()), *value])
        elif isinstance(value, dict):
            for name, reference in value.items():
                file.put((*path, key, name), reference)


def _named(servers: object) -> Iterator[tuple[str, object]]:
    if isinstance(servers, dict):
        yield from servers.items()
    for number, each in enumerate(servers if isinstance(servers, list) else ()):
        yield str(number), each
