"""Put what was found into the config that is there: each server once, by a name of its own, and no edit lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynamic_mcp.config.keys import path as shown
from dynamic_mcp.config.values import NAME_LENGTH
from dynamic_mcp.importer.found import Found, Notice, Reading
from dynamic_mcp.importer.identity import Identity, identity
from dynamic_mcp.importer.memory import Memory, Record, key_of
from dynamic_mcp.importer.plan import Action, Choice, Item
from dynamic_mcp.importer.secrets import secrets
from dynamic_mcp.importer.three_way import Merged, Sides, remembered, three_way
from dynamic_mcp.importer.tree import NOTHING

Entry = Mapping[str, object]


@dataclass(frozen=True)
class Conflict:
    """A server that both the user and its source changed, or that nobody knows the history of."""

    found: Found
    name: str
    fields: tuple[str, ...]
    mine: Entry | None = field(repr=False)
    theirs: Entry = field(repr=False)


@dataclass(frozen=True)
class Rules:
    """How to merge. `settle` decides a conflict, `describe` and `write` make of a new entry what is written of it."""

    home: str
    settle: Callable[[Conflict], Choice]
    describe: Callable[[Found], Entry] = lambda found: found.entry
    write: Callable[[str, Entry, Entry | None], Entry] = lambda name, entry, mine: entry


class Merge:
    """One import at work: the servers of the output, which grow, and the records of what was done."""

    def __init__(self, servers: Mapping[str, Entry], memory: Memory, rules: Rules) -> None:
        self.servers = dict(servers)
        self.memory = memory
        self._before = dict(servers)
        self._rules = rules
        self._known = dict(memory.records)
        self._identities: dict[str, Identity] = {}
        self._named: dict[tuple[str, ...], list[str]] = {}  # by the key of their identity
        for name, entry in servers.items():
            self._know(name, entry)

    def take(self, found: Found) -> Item:
        """Merge one server. The order of the calls decides: of several sources of one server the first counts."""
        record = self._known.get(key_of(found))
        name = self._place(found, record)
        if name is None and record is not None:
            return self._removed(found, record)
        if name is None:
            return self._added(found, self._free_name(found))
        mine = self.servers[name]
        sides = Sides(mine, found.entry, self._rules.write(name, found.entry, mine))
        merged = three_way(sides, record, self.memory)
        if merged.is_settled():
            return self._settled(found, name, merged.mine, sides)
        if record is None and self._is_of_another_source(name, found):
            return self._second(found, name, merged, sides)
        return self._in_conflict(found, name, merged, sides)

    def _place(self, found: Found, record: Record | None) -> str | None:
        """Return the name of the entry that this server is."""
        if record is not None and record.name in self.servers:
            return record.name
        own = identity(found.entry, self._rules.home)
        same = [name for name in self._named.get(own.key, ()) if self._identities[name].is_same(own)]
        same.sort(key=lambda name: name != found.name)
        return next((name for name in same if self._may_be(found, name)), None)

    def _may_be(self, found: Found, name: str) -> bool:
        """Tell whether two entries that run the same are one server: not if they are two accounts of it."""
        entry = self.servers[name]
        own = key_of(found)
        records = [key for key, record in self.memory.records.items() if record.name == name]
        if any(key[:3] == own[:3] and key != own for key in records):
            return _without_description(entry) == _without_description(found.entry)
        return name == found.name or not _are_two_accounts(entry, found.entry)

    def _is_of_another_source(self, name: str, found: Found) -> bool:
        records = [key for key, record in self.memory.records.items() if record.name == name]
        return any(key != key_of(found) for key in records)

    def _added(self, found: Found, name: str) -> Item:
        theirs = self._rules.describe(found)
        entry = self._rules.write(name, theirs, None)
        self._keep(found, name, entry, Sides(NOTHING, found.entry, entry))
        return Item(found, name, Action.NEW, None, entry, notices=found.notices)

    def _removed(self, found: Found, record: Record) -> Item:
        """Settle what the user took out of the output: it stays out unless its source has changed."""
        if self.memory.print_of(found.entry) == record.read:
            return Item(
                found, record.name, Action.SKIP, reason="it was taken out of the config since the last import"
            )
        conflict = Conflict(found, record.name, ("the whole entry",), None, found.entry)
        choice = self._rules.settle(conflict)
        if choice is Choice.KEEP:
            self._remember(found, record.name, Sides(NOTHING, found.entry, NOTHING), NOTHING)
            return Item(found, record.name, Action.CONFLICT, conflicts=conflict.fields, choice=choice)
        return replace(
            self._added(found, self._free_name(found)),
            action=Action.CONFLICT,
            conflicts=conflict.fields,
            choice=choice,
        )

    def _settled(self, found: Found, name: str, entry: object, sides: Sides) -> Item:
        before = self.servers[name]
        assert isinstance(entry, Mapping)
        self._keep(found, name, entry, sides)
        action = Action.SAME if entry == before else Action.UPDATE
        return Item(found, name, action, self._before.get(name), entry, notices=found.notices)

    def _second(self, found: Found, name: str, merged: Merged, sides: Sides) -> Item:
        """Leave an entry that came from another source as that has it, and say where this one differs."""
        entry = self.servers[name]
        self._keep(found, name, entry, sides)
        source = found.source
        notices = tuple(
            Notice(
                f"{source.tool}/{source.scope.value}/{found.name}.{shown(keys)}",
                f"`{name}` has it from another tool, with another value, which stays",
            )
            for keys in merged.conflicts
        )
        return Item(found, name, Action.SAME, self._before.get(name), entry, notices=(*found.notices, *notices))

    def _in_conflict(self, found: Found, name: str, merged: Merged, sides: Sides) -> Item:
        assert isinstance(merged.mine, Mapping)
        assert isinstance(merged.theirs, Mapping)
        fields = tuple(shown(keys) for keys in merged.conflicts)
        choice = self._rules.settle(Conflict(found, name, fields, merged.mine, merged.theirs))
        if choice is Choice.RENAME:
            renamed = self._added(found, self._free_name(found))
            return replace(renamed, action=Action.CONFLICT, conflicts=fields, choice=choice)
        entry = merged.theirs if choice is Choice.REPLACE else merged.mine
        self._keep(found, name, entry, sides)
        before = self._before.get(name)
        return Item(found, name, Action.CONFLICT, before, entry, "", fields, choice, found.notices)

    def _keep(self, found: Found, name: str, entry: Entry, sides: Sides) -> None:
        self.servers[name] = entry
        self._know(name, entry)
        self._remember(found, name, sides, entry)

    def _know(self, name: str, entry: Entry) -> None:
        if name in self._identities:
            self._named[self._identities[name].key].remove(name)
        self._identities[name] = identity(entry, self._rules.home)
        self._named.setdefault(self._identities[name].key, []).append(name)

    def _remember(self, found: Found, name: str, sides: Sides, entry: object) -> None:
        key = key_of(found)
        before = self._known[key].written if key in self._known else None
        written = remembered(entry, sides, before, self.memory)
        self.memory.records[key] = Record(name, self.memory.print_of(found.entry), written)

    def _free_name(self, found: Found) -> str:
        plain = _usable(found.name)
        of_tool = f"{plain[: NAME_LENGTH - len(found.source.tool) - 1]}-{found.source.tool}"
        candidates = [plain, of_tool]
        candidates += [f"{of_tool[: NAME_LENGTH - 6]}-{number}" for number in range(2, len(self.servers) + 3)]
        return next(name for name in candidates if name not in self.servers)


def gone(memory: Memory, readings: Sequence[Reading], servers: Mapping[str, Entry]) -> list[str]:
    """What was imported from these files once and is not in them any more, but still in the output."""
    still = {key_of(found) for reading in readings for found in reading.servers}
    sources = [reading.source for reading in readings if not reading.error]
    read = {(source.tool, source.scope.value, str(source.file)) for source in sources}
    return [
        f"`{record.name}` is no longer in `{key[2]}` ({key[0]}) and stays in the config"
        for key, record in memory.records.items()
        if key[:3] in read and key not in still and record.name in servers
    ]


def _usable(name: str) -> str:
    """The name as our config takes it."""
    printable = "".join(character if character.isprintable() else "-" for character in name).strip()
    return printable[:NAME_LENGTH].strip() or "server"


def _are_two_accounts(one: Entry, other: Entry) -> bool:
    """Tell whether the same program is given other secrets."""
    ours, theirs = ({secret.path: secret.value for secret in secrets(entry)} for entry in (one, other))
    return any(theirs.get(path, value) != value for path, value in ours.items())


def _without_description(entry: Entry) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key != "description"}
