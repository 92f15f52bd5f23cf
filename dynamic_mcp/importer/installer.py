"""Installs our entry in a tool's file, and disables the servers that it replaces there.

A file that cannot be parsed is never written, and everything outside our entry keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dynamic_mcp.config.clients import ToolEnvironment, find_client
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer.adapter import Adapter, FileLocation
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.formats.documents import TextDocument, parse_document
from dynamic_mcp.importer.formats.shapes import NAME, Shape, container_of, header_fields, remote_shape_of, shape_of
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.journal import FileChange
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.tools import claude, locations

_SUFFIXES = (".json", ".jsonc", ".toml", ".yaml", ".yml")
_SYSTEM_PREFIXES = ("/etc/", "/Library/", "C:/", "{programdata}", "{GEMINI_CLI_SYSTEM")


class TargetFile(NamedTuple):
    """One file of a tool, in one of its scopes."""

    place: FileLocation
    file: Path


@dataclass(frozen=True)
class Diff:
    """One file's text before and after, and the servers that it contained."""

    file: Path
    before: str = field(repr=False)
    after: str = field(repr=False)
    servers: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True)
class InstallPlan:
    """The changes to a tool's files, and the names of the affected servers.

    `requested_variables` are those that our entry newly asks the tool to pass on; `withheld_variables` are those that
    the tool will not pass on. If it `is_remote`, our entry has a URL and does not start a program.
    """

    file: Path
    changes: tuple[FileChange, ...]
    diffs: tuple[Diff, ...]
    disabled_servers: tuple[str, ...] = ()
    removed_servers: tuple[str, ...] = ()
    missing_servers: tuple[str, ...] = ()
    requested_variables: tuple[str, ...] = ()
    withheld_variables: tuple[str, ...] = ()
    is_remote: bool = False
    remark: str = ""

    @property
    def is_needed(self) -> bool:
        return bool(self.changes)


def plan_installation(
    adapter: Adapter,
    scope: ToolScope,
    machine: Machine,
    *,
    start: Sequence[str],
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    variables: Collection[str] = (),
    replacements: Mapping[TargetFile, Collection[str]] | None = None,
    may_hide: bool = False,
) -> InstallPlan:
    """Plan an entry that starts `start`, a command and its arguments, and needs these variables.

    With a `url` the entry has that instead, if the tool is known to support one with these `headers`; `start` and
    `variables` are for the other tools. With `may_hide`, the tool may hide our tools behind its own search.
    The servers in `replacements`, by file, are disabled or removed. Raises DynamicMcpError.
    """
    target = find_target(adapter, scope, machine)
    work = _InstallationBuilder(adapter, machine, may_hide=may_hide)
    work.install(target, start, url, headers or {}, variables)
    for other, names in (replacements or {}).items():
        for name in names:
            work.replace(other, name)
    return work.build(target)


def plan_replacements(
    adapter: Adapter, machine: Machine, replacements: Mapping[TargetFile, Collection[str]]
) -> InstallPlan:
    """Plan to disable or remove servers, by file, and to add no entry. Raises DynamicMcpError."""
    work = _InstallationBuilder(adapter, machine)
    for target, names in replacements.items():
        for name in names:
            work.replace(target, name)
    return work.build(next(iter(replacements)))


def plan_removal(adapter: Adapter, scope: ToolScope, machine: Machine) -> InstallPlan:
    """Plan the removal of our entry from a tool's file. Raises DynamicMcpError."""
    target = find_target(adapter, scope, machine)
    work = _InstallationBuilder(adapter, machine)
    work.remove(target)
    return work.build(target)


def read_entry(adapter: Adapter, target: TargetFile, machine: Machine) -> Mapping[str, object] | None:
    """Return our entry in a tool's file, if it has one. Raises FileError."""
    data = files.read_bytes(target.file)
    if data is None:
        return None
    entry = _Servers(adapter, target.place, parse_document(target.file, data), machine).get(NAME)
    return entry if isinstance(entry, dict) else None


def find_target(adapter: Adapter, scope: ToolScope, machine: Machine) -> TargetFile:
    """Return the file with a tool's own settings: the first that exists, else the first that may be created."""
    targets = [
        TargetFile(place, file)
        for place, file in locations.list_candidates(adapter, machine, (scope,))
        if is_writable(place, file)
    ]
    if not targets:
        scopes = {place.scope for place in adapter.places if not (place.borrowed or place.ambiguous)}
        hint = " or ".join(f"--scope {each.value}" for each in ToolScope if each in scopes)
        raise DynamicMcpError(f"{adapter.title} has no writable file of the scope `{scope.value}`", hint=hint)
    existing = [each for each in targets if each.file.is_file()]
    preferred = [each for each in existing if not each.place.servers] or existing
    return (
        preferred[0]
        if preferred
        else next((each for each in targets if not (each.place.legacy or each.place.servers)), targets[0])
    )


def list_targets(adapter: Adapter, scopes: Collection[ToolScope], machine: Machine) -> list[TargetFile]:
    """Return the existing files of a tool that may be written."""
    return [
        TargetFile(place, file)
        for place, file in locations.find_files(adapter, machine, scopes)
        if is_writable(place, file) and file.is_file()
    ]


def is_writable(place: FileLocation, file: Path) -> bool:
    """Return whether a file belongs to the tool and the user, and is in an editable format."""
    is_own = not (place.borrowed or place.ambiguous or place.path.startswith(_SYSTEM_PREFIXES))
    return is_own and file.suffix in _SUFFIXES


class _Servers:
    """The servers of a tool in a document: their container and their shape."""

    def __init__(self, adapter: Adapter, place: FileLocation, document: TextDocument, machine: Machine) -> None:
        value = document.get(())
        if place.scope is ToolScope.LOCAL and adapter.quirk == "claude":
            self._container: Keys = ("projects", claude.project_key(value, machine), "mcpServers")
        else:
            self._container = container_of(adapter, value, place.servers or adapter.servers)
        self.shape: Shape = shape_of(adapter, self._container)
        self.remote_shape = remote_shape_of(adapter, self._container)
        self._document = document

    def get(self, name: str) -> object:
        return self._document.get(self.path_of(name))

    def to_dict(self) -> dict[str, object]:
        return dict(_iter_servers(self._document.get(self._container)))

    def path_of(self, name: str) -> Keys:
        """Return the path of a server with this name, existing or not."""
        servers = self._document.get(self._container)
        if not self.shape.has_name:
            return (*self._container, name)
        items = servers if isinstance(servers, list) else []
        places = [n for n, each in enumerate(items) if isinstance(each, dict) and each.get("name") == name]
        return (*self._container, places[0] if places else len(items))


class Entry(NamedTuple):
    """Our entry for a tool, and its shape. If it `is_remote`, it has a URL and does not start a program."""

    shape: Shape
    fields: Mapping[str, object]
    is_remote: bool

    @property
    def remark(self) -> str:
        return self.shape.remark


def make_entry(
    adapter: Adapter, servers: _Servers, start: Sequence[str], *, url: str | None, headers: Mapping[str, str]
) -> Entry:
    """Return our entry: with the URL, if the tool is known to support one with these headers, else with `start`."""
    remote, fields = servers.remote_shape, header_fields(adapter, headers)
    if remote is not None and fields is not None and url is not None:
        return Entry(remote, remote.make_remote_entry(url, fields), is_remote=True)
    return Entry(servers.shape, servers.shape.make_entry(start[0], start[1:]), is_remote=False)


def write_entry(
    adapter: Adapter,
    place: FileLocation,
    file: Path,
    start: Sequence[str],
    *,
    url: str | None = None,
    headers: Mapping[str, str],
    variables: Collection[str] = (),
) -> tuple[str, Entry]:
    """Return the text that a new file of the user or of a project would have, and the entry in it.

    Nothing is read or written: the suffix of `file` says in which language it is.
    """
    document = parse_document(file, None)
    nowhere = Machine(Path(), Path(), {}, "linux")  # which only a user's file for one project depends on
    servers = _Servers(adapter, place, document, nowhere)
    entry = make_entry(adapter, servers, start, url=url, headers=headers)
    client = find_client(adapter.name)
    asking: Mapping[str, object] = {}
    if client is not None and not entry.is_remote:
        asking = client.request_fields(client.list_withheld(variables))
    fields = {**entry.fields, **entry.shape.visibility, **asking}
    return document.put(servers.path_of(NAME), fields).text, entry._replace(fields=fields)


class _File:
    """A file that is being changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.data = files.read_bytes(file)
        self.before = parse_document(file, self.data)
        self.document = self.before

    def put(self, path: Keys, value: object) -> None:
        if self.document.get(path) != value:
            self.document = self.document.put(path, value)

    def drop(self, path: Keys) -> None:
        self.document = self.document.drop(path)

    def change(self) -> FileChange | None:
        if self.document is self.before:
            return None
        after = self.document.encode()
        return FileChange(self.file, self.data, after) if after != self.data else None


class _InstallationBuilder:
    """The files of a tool that are being changed."""

    def __init__(self, adapter: Adapter, machine: Machine, *, may_hide: bool = False) -> None:
        self._adapter = adapter
        self._machine = machine
        self._may_hide = may_hide
        self._client: ToolEnvironment | None = find_client(adapter.name)
        self._files: dict[Path, _File] = {}
        self._servers: dict[Path, dict[str, object]] = {}
        self._is_remote = False
        self._disabled_names: list[str] = []
        self._removed_names: list[str] = []
        self._missing_names: list[str] = []
        self._requested_names: list[str] = []
        self._withheld_names: list[str] = []

    def install(
        self,
        target: TargetFile,
        start: Sequence[str],
        url: str | None,
        headers: Mapping[str, str],
        variables: Collection[str],
    ) -> None:
        file, servers = self._open(target)
        if file.data is None and servers.shape.must_exist:
            raise DynamicMcpError(
                f"{self._adapter.title} has no `{target.file}` yet, and creating one would change what it reads",
                hint="set the tool up first, then run the command again",
            )
        entry = make_entry(self._adapter, servers, start, url=url, headers=headers)
        shape, wanted, self._is_remote = entry.shape, entry.fields, entry.is_remote
        if entry.is_remote:
            variables = ()
        visibility = {} if self._may_hide else shape.visibility
        path, current = servers.path_of(NAME), servers.get(NAME)
        old = current if isinstance(current, dict) and shape.command in current else None
        withheld = self._client.list_withheld(variables, old) if self._client is not None else []
        asking = self._client.request_fields(withheld) if self._client is not None else {}
        if old is None and isinstance(current, dict):  # the old entry has the other form
            file.drop(path)
            path = self._open(target)[1].path_of(NAME)
        if old is None:
            file.put(path, {**wanted, **visibility, **asking})
        else:
            self._update(file, path, old, {**wanted, **visibility}, shape)
            if self._may_hide:
                self._drop_visibility(file, path, old, shape)
            _request_variables(file, path, old, asking)
        (self._requested_names if asking else self._withheld_names).extend(withheld)

    def replace(self, target: TargetFile, name: str) -> None:
        """Disable a server, or remove it if the tool cannot disable servers."""
        file, servers = self._open(target)
        path, server, shape = servers.path_of(name), servers.get(name), servers.shape
        if server is NOTHING or name == NAME:
            self._missing_names.append(name)
        elif shape.off_list:
            names = file.document.get(shape.off_list)
            disabled_names = names if isinstance(names, list) else []
            if name not in disabled_names:
                file.put((*shape.off_list, len(disabled_names)), name)
                self._disabled_names.append(name)
        elif shape.off is not None and isinstance(server, dict):
            key, value = shape.off
            if server.get(key) != value:
                file.put((*path, key), value)
                self._disabled_names.append(name)
        else:
            file.drop(path)
            self._removed_names.append(name)

    def remove(self, target: TargetFile) -> None:
        file, servers = self._open(target)
        if servers.get(NAME) is not NOTHING:
            file.drop(servers.path_of(NAME))

    def build(self, target: TargetFile) -> InstallPlan:
        changes = [change for file in self._files.values() if (change := file.change()) is not None]
        diffs = [
            Diff(file.file, file.before.text, file.document.text, self._servers[file.file])
            for file in self._files.values()
        ]
        _, servers = self._open(target)
        return InstallPlan(
            target.file,
            tuple(changes),
            tuple(diffs),
            disabled_servers=tuple(self._disabled_names),
            removed_servers=tuple(self._removed_names),
            missing_servers=tuple(self._missing_names),
            requested_variables=tuple(self._requested_names),
            withheld_variables=tuple(self._withheld_names),
            is_remote=self._is_remote,
            remark=servers.shape.remark,
        )

    def _open(self, target: TargetFile) -> tuple[_File, _Servers]:
        file = self._files.get(target.file) or self._files.setdefault(target.file, _File(target.file))
        servers = _Servers(self._adapter, target.place, file.document, self._machine)
        self._servers.setdefault(target.file, {}).update(servers.to_dict())
        return file, servers

    def _update(
        self, file: _File, path: Keys, old: Mapping[str, object], new: Mapping[str, object], shape: Shape
    ) -> None:
        """Update the fields that select the program; the user's other fields stay."""
        for key, value in new.items():
            is_free = key in shape.visibility or not shape.is_ours_to_set(key)
            if not (is_free and key in old):
                file.put((*path, key), value)

    def _drop_visibility(self, file: _File, path: Keys, old: Mapping[str, object], shape: Shape) -> None:
        """Remove what an earlier `install` has added to keep our tools in the prompt."""
        for key, value in shape.visibility.items():
            if old.get(key) == value:
                file.drop((*path, key))


def _request_variables(file: _File, path: Keys, old: Mapping[str, object], asking: Mapping[str, object]) -> None:
    """Add the variables to those that an entry already requests."""
    for key, value in asking.items():
        current = old.get(key)
        if isinstance(value, list):
            file.put((*path, key), [*(current if isinstance(current, list) else ()), *value])
        elif isinstance(value, dict):
            for name, reference in value.items():
                file.put((*path, key, name), reference)


def _iter_servers(servers: object) -> Iterator[tuple[str, object]]:
    if isinstance(servers, dict):
        yield from servers.items()
    for number, each in enumerate(servers if isinstance(servers, list) else ()):
        yield str(number), each
