"""Merges foreign servers into a config: each server once, under a unique name. Entries stay unless replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from dynamic_mcp.config.types import NAME_LENGTH
from dynamic_mcp.importer.convert.matching import INHERIT_ENV, STARTING_FIELDS, Matcher, own_names
from dynamic_mcp.importer.convert.plan import Action, ImportItem
from dynamic_mcp.importer.model import Entry, ForeignServer, Notice

_MOST_NAMED = 3


class MergeChoice(Enum):
    """The choices for a server that the config has with other content."""

    KEEP = auto()
    REPLACE = auto()
    ADD = auto()  # under another name


class Merge:
    """An import in progress: the servers of the config so far.

    `decide` settles differences, `describe` and `write` prepare a new entry for the config. `has_environment_setting`
    means that the config's settings decide what programs inherit, so that new entries do not. The tools in
    `starting_us` have our entry, and may have disabled a server because of it.
    """

    def __init__(
        self,
        servers: Mapping[str, Entry],
        matcher: Matcher,
        *,
        decide: Callable[[ImportItem], MergeChoice],
        describe: Callable[[ForeignServer], Entry],
        write: Callable[[str, Entry, Entry | None], Entry],
        has_environment_setting: bool,
        starting_us: Collection[str],
    ) -> None:
        self.servers = dict(servers)
        self.remarks: list[str] = []
        self._before = dict(servers)
        self._matcher = matcher
        self._decide = decide
        self._describe = describe
        self._write = write
        self._has_environment_setting = has_environment_setting
        self._starting_us = starting_us

    def take(self, server: ForeignServer, siblings: Collection[str]) -> ImportItem:
        """Merge one server. The order of calls matters: the first of several sources of one server counts.

        `siblings` are the names of all servers in its file.
        """
        name = self._matcher.find_same(server, siblings) or self._matcher.find_named(server, siblings)
        if name is None:
            return self._add(server)
        first = self._matcher.first_server(name)
        self._matcher.claim(name, server)
        server = self._without_our_switch(server, name)
        fields = self._matcher.differing_fields(self.servers[name], server.entry)
        if first is not None:
            return self._take_duplicate(server, name, fields, first)
        self._compare_environment(server, name)
        return self._settle(server, name, fields) if fields else self._same(server, name)

    def _add(self, server: ForeignServer) -> ImportItem:
        name = self._make_name(server)
        entry = self._describe(server)
        if self._has_environment_setting:
            entry = without_environment(entry)
        entry = self._write(name, entry, None)
        self._put(name, entry)
        self._matcher.claim(name, server)
        return ImportItem(server, name, Action.NEW, None, entry, notices=server.notices)

    def _same(self, server: ForeignServer, name: str, reason: str = "", notices: Sequence[Notice] = ()) -> ImportItem:
        before = self._before.get(name)
        return ImportItem(
            server, name, Action.SAME, before, self.servers[name], reason, notices=(*server.notices, *notices)
        )

    def _settle(self, server: ForeignServer, name: str, fields: tuple[str, ...]) -> ImportItem:
        before = self.servers[name]
        proposal = replace_entry(before, server.entry)
        item = ImportItem(
            server, name, Action.DIFFERS, before, before, fields=fields, proposal=proposal, notices=server.notices
        )
        match self._decide(item):
            case MergeChoice.KEEP:
                return item
            case MergeChoice.REPLACE:
                self._put(name, self._write(name, proposal, before))
                return replace(item, action=Action.REPLACED, entry=self.servers[name])
            case MergeChoice.ADD:
                return replace(self._add(server), fields=fields)

    def _take_duplicate(
        self, server: ForeignServer, name: str, fields: Sequence[str], first: ForeignServer
    ) -> ImportItem:
        """Keep an entry that came from another source, and add notices where this source differs."""
        origin = f"{first.source.tool} ({first.source.scope.value})"
        kept = "its value" if name in self._before else f"the value from {origin}"
        notices = [_make_notice(server, each, f"`{name}` keeps {kept}, which differs") for each in fields]
        if name in self._before:
            self._compare_environment(server, name)
        elif not self._has_environment_setting:
            entry, remarks = _with_wider_environment(server, name, self.servers[name], first.source.title)
            self._put(name, entry)
            notices += remarks
        return self._same(server, name, f"is `{name}` from {origin}", notices)

    def _compare_environment(self, server: ForeignServer, name: str) -> None:
        """Add a notice if an entry, which keeps its environment, gets less than the tool passes on."""
        entry = self.servers[name]
        is_settled = self._has_environment_setting or INHERIT_ENV in entry or "url" in entry
        if not is_settled and _is_wider(server.entry, entry):
            self.remarks.append(
                f"`{name}` gets less of your environment than {server.source.title} passes on: set its"
                f" `{INHERIT_ENV}` if it lacks a variable"
            )

    def _without_our_switch(self, server: ForeignServer, name: str) -> ForeignServer:
        """Return the server as enabled if its tool may have disabled it only because it starts us."""
        is_ours = server.is_off and server.source.tool in self._starting_us
        return (
            server.without_field("enabled") if is_ours and self.servers[name].get("enabled") is not False else server
        )

    def _put(self, name: str, entry: Entry) -> None:
        self.servers[name] = entry
        self._matcher.put(name, entry)

    def _make_name(self, server: ForeignServer) -> str:
        plain, of_tool = own_names(server)
        numbered = (f"{of_tool[: NAME_LENGTH - 6]}-{number}" for number in range(2, len(self.servers) + 3))
        return next(name for name in (plain, of_tool, *numbered) if name not in self.servers)


def replace_entry(before: Entry, entry: Entry) -> dict[str, object]:
    """Return the new entry with the settings that only the old one has: its description, filters and so on."""
    theirs = {key: value for key, value in entry.items() if key not in ("description", INHERIT_ENV)}
    kept = {key: value for key, value in before.items() if key not in STARTING_FIELDS or key in theirs}
    return without_environment(kept) | theirs if "url" in theirs else kept | theirs


def _with_wider_environment(server: ForeignServer, name: str, entry: Entry, owner: str) -> tuple[Entry, list[Notice]]:
    """Return the entry with the wider environment: its own, or the one of the same server elsewhere."""
    tool = server.source.title
    if "url" in entry or "url" in server.entry:
        return entry, []
    if _is_wider(server.entry, entry):
        entry, wider, narrower = _with_environment_of(entry, server.entry), tool, owner
    elif _is_wider(entry, server.entry):
        wider, narrower = owner, tool
    else:
        return entry, []
    reason = (
        f"`{name}` comes from two tools, and gets the environment variables that {wider} passes on;"
        f" {narrower} passes on fewer"
    )
    return entry, [replace(_make_notice(server, INHERIT_ENV, reason), is_about_environment=True)]


def _make_notice(server: ForeignServer, field: str, reason: str) -> Notice:
    source = server.source
    return Notice(f"{source.tool}/{source.scope.value}/{server.name}.{field}", reason)


def with_environment(server: ForeignServer) -> ForeignServer:
    """Return the server with the environment that its tool passes on, if that is more than the default."""
    match server.inherits:
        case None | "safe":
            return server
        case "all":
            return server.with_fields({INHERIT_ENV: "all"})
        case names:
            return server.with_fields({INHERIT_ENV: list(names)})


def without_environment(entry: Entry) -> dict[str, object]:
    """Return the entry without its environment setting."""
    return {key: value for key, value in entry.items() if key != INHERIT_ENV}


def _with_environment_of(entry: Entry, other: Entry) -> dict[str, object]:
    return without_environment(entry) | ({INHERIT_ENV: other[INHERIT_ENV]} if INHERIT_ENV in other else {})


def _is_wider(one: Entry, other: Entry) -> bool:
    """Return whether an entry passes on more of the environment than the other; only the kinds are compared."""
    return _width(one.get(INHERIT_ENV)) > _width(other.get(INHERIT_ENV))


def describe_wider(items: Sequence[ImportItem]) -> list[str]:
    """Return one remark for all servers that get more than the safe environment, if there are any."""
    wider = [item for item in items if item.entry is not None and _has_become_wider(item)]
    if not wider:
        return []
    tools = " and ".join(dict.fromkeys(item.server.source.title for item in wider))
    names = list(dict.fromkeys(item.name for item in wider))
    count = f"{len(names)} servers" if len(names) > _MOST_NAMED else ", ".join(f"`{name}`" for name in names)
    verb = "get" if len(names) > 1 else "gets"
    change = f"{count} {verb} the environment variables that {tools} passed on (`{INHERIT_ENV}` in the config)"
    return [f"{change}; to pass on fewer, set it to `safe` or to a list of names"]


def _has_become_wider(item: ImportItem) -> bool:
    assert item.entry is not None
    before = item.before or {}
    return INHERIT_ENV in item.entry and item.entry[INHERIT_ENV] != before.get(INHERIT_ENV)


def _width(choice: object) -> int:
    match choice:
        case "all":
            return 3
        case list() if "*" in choice:
            return 2
        case list() if choice:
            return 1
    return 0
