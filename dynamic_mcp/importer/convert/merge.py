"""Put what was found into the config that is there: each server once, by a name of its own, and no edit lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynamic_mcp.config.keys import path as shown
from dynamic_mcp.config.values import NAME_LENGTH
from dynamic_mcp.importer.convert import inheritance
from dynamic_mcp.importer.convert.identity import Identity, collect_conditions, identify
from dynamic_mcp.importer.convert.memory import Key, Memory, Record, key_of
from dynamic_mcp.importer.convert.plan import Action, Choice, Item
from dynamic_mcp.importer.convert.three_way import MergeResult, Sides, merge_three_way, update_fingerprint
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.model import ForeignServer, Notice, Reading

Entry = Mapping[str, object]

_CONDITIONS = ("env", "env_file", "headers")
_BRIDGE_FIELDS = ("url", "type", "headers", "command", "args", "env", "cwd")


@dataclass(frozen=True)
class Conflict:
    """A server that both the user and its source changed, or that nobody knows the history of."""

    server: ForeignServer
    name: str
    fields: tuple[str, ...]
    mine: Entry | None = field(repr=False)
    theirs: Entry = field(repr=False)


@dataclass(frozen=True)
class Rules:
    """How to merge. `settle` decides a conflict, `describe` and `write` make of a new entry what is written of it.

    `values` are those of variables as far as they are known. `is_environment_settled` tells that the output's
    settings say what programs get of the environment, so that a new entry does not.
    """

    home: str
    settle: Callable[[Conflict], Choice]
    describe: Callable[[ForeignServer], Entry] = lambda found: found.entry
    write: Callable[[str, Entry, Entry | None], Entry] = lambda name, entry, mine: entry
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_environment_settled: bool = False


class Merge:
    """One import at work: the servers of the output, which grow, and the records of what was done."""

    def __init__(self, servers: Mapping[str, Entry], memory: Memory, rules: Rules) -> None:
        self.servers = dict(servers)
        self.memory = memory
        self._old_servers = dict(servers)
        self._rules = rules
        self._old_records = dict(memory.records)
        self._identities: dict[str, Identity] = {}
        self._names: dict[tuple[str, ...], list[str]] = {}  # by the key of their identity
        for name, entry in servers.items():
            self._index(name, entry)

    def take(self, found: ForeignServer) -> Item:
        """Merge one server. The order of the calls decides: of several sources of one server the first counts."""
        record = self._old_records.get(key_of(found))
        name = self._find_entry(found, record)
        if name is None and record is not None:
            return self._settle_removal(found, record)
        if name is None:
            return self._add(found, self._make_name(found))
        mine = self.servers[name]
        sides = Sides(mine, found.entry, self._rules.write(name, found.entry, mine))
        merged = _with_my_environment(merge_three_way(sides, record, self.memory))
        owner = self._first_source(name, found) if record is None else None
        if owner is not None:
            return self._merge_duplicate(found, name, merged, sides, owner)
        if merged.is_settled():
            return self._update(found, name, merged.mine, sides)
        return self._settle_conflict(found, name, merged, sides)

    def has(self, found: ForeignServer) -> bool:
        """Tell whether an earlier import brought this server, and the output still has it."""
        record = self._old_records.get(key_of(found))
        return record is not None and record.name in self.servers

    def is_same_server(self, one: ForeignServer, other: ForeignServer) -> bool:
        """Tell whether two servers run or reach the same in the same way."""
        is_same = identify(one.entry, self._rules.home).is_same(identify(other.entry, self._rules.home))
        return is_same and self._collect_conditions(one.entry) == self._collect_conditions(other.entry)

    def _find_entry(self, found: ForeignServer, record: Record | None) -> str | None:
        """Return the name of the entry that this server is."""
        if record is not None and record.name in self.servers:
            return record.name
        own = identify(found.entry, self._rules.home)
        same = [name for name in self._names.get(own.key, ()) if self._identities[name].is_same(own)]
        same.sort(key=lambda name: name != found.name)
        return next((name for name in same if self._is_same_entry(found, name)), None)

    def _is_same_entry(self, found: ForeignServer, name: str) -> bool:
        """Tell whether two entries that run the same are one server: not if they work with other variables."""
        entry = self.servers[name]
        own = key_of(found)
        others = [key for key in self._source_keys(name) if key != own]
        if any(key[:3] == own[:3] for key in others):
            return _comparable_fields(entry) == _comparable_fields(found.entry)
        if not others and name == found.name:
            return True  # a person wrote it: what differs is a conflict to settle
        return self._collect_conditions(entry) == self._collect_conditions(found.entry) or self._has_equal_source(
            found, others
        )

    def _collect_conditions(self, entry: Entry) -> frozenset[tuple[str, str, str]]:
        return collect_conditions(entry, self._rules.home, self._rules.values)

    def _has_equal_source(self, found: ForeignServer, others: Sequence[Key]) -> bool:
        """Tell whether another source has the same variables, whatever a person made of them here."""
        own = [self.memory.fingerprint(found.entry.get(key, NOTHING)) for key in _CONDITIONS]
        reads = [self.memory.records[key].source for key in others]
        return any(isinstance(read, Mapping) and [read.get(key) for key in _CONDITIONS] == own for read in reads)

    def _source_keys(self, name: str) -> list[Key]:
        return [key for key, record in self.memory.records.items() if record.name == name]

    def _first_source(self, name: str, found: ForeignServer) -> Key | None:
        """Return the source that an entry came from first, if that is another one than this."""
        return next((key for key in self._source_keys(name) if key != key_of(found)), None)

    def _add(self, found: ForeignServer, name: str) -> Item:
        theirs = self._rules.describe(found)
        if self._rules.is_environment_settled:
            theirs = inheritance.without_environment(theirs)
        entry = self._rules.write(name, theirs, None)
        self._store(found, name, entry, Sides(NOTHING, found.entry, entry))
        return Item(found, name, Action.NEW, None, entry, notices=found.notices)

    def _settle_removal(self, found: ForeignServer, record: Record) -> Item:
        """Settle what the user took out of the output: it stays out unless its source has changed."""
        if self.memory.fingerprint(found.entry) == record.source:
            return Item(
                found, record.name, Action.SKIP, reason="it was removed from the config after the last import"
            )
        conflict = Conflict(found, record.name, ("the whole entry",), None, found.entry)
        choice = self._rules.settle(conflict)
        if choice is Choice.KEEP:
            self._remember(found, record.name, Sides(NOTHING, found.entry, NOTHING), NOTHING)
            return Item(found, record.name, Action.CONFLICT, conflicts=conflict.fields, choice=choice)
        return replace(
            self._add(found, self._make_name(found)),
            action=Action.CONFLICT,
            conflicts=conflict.fields,
            choice=choice,
        )

    def _update(self, found: ForeignServer, name: str, entry: object, sides: Sides) -> Item:
        before = self.servers[name]
        assert isinstance(entry, Mapping)
        self._store(found, name, entry, sides)
        action = Action.SAME if entry == before else Action.UPDATE
        return Item(found, name, action, self._old_servers.get(name), entry, notices=found.notices)

    def _merge_duplicate(
        self, found: ForeignServer, name: str, merged: MergeResult, sides: Sides, owner: Key
    ) -> Item:
        """Leave an entry that came from another source as that has it, and say where this one differs."""
        entry = self.servers[name] if merged.conflicts else merged.mine
        assert isinstance(entry, Mapping)
        origin = f"{owner[0]} ({owner[1]})"
        reason = f"`{name}` keeps the value from {origin}, which differs"
        differing = [keys for keys in merged.conflicts if keys[0] not in _equivalent_fields(entry, found.entry)]
        notices = [_make_notice(found, shown(keys), reason) for keys in differing]
        if not self._is_my_environment(name):
            entry, remarks = _with_wider_environment(found, name, entry, owner[0])
            notices += remarks
        self._store(found, name, entry, sides)
        before = self._old_servers.get(name)
        action = Action.SAME if entry == (before or entry) else Action.UPDATE
        same = f"is `{name}` from {origin}"
        return Item(found, name, action, before, entry, same, notices=(*found.notices, *notices))

    def _is_my_environment(self, name: str) -> bool:
        """Tell whether a person has chosen what the program gets of the environment."""
        mine = self.memory.fingerprint(self.servers[name].get(inheritance.FIELD, NOTHING))
        written = [self.memory.records[key].output for key in self._source_keys(name)]
        return all(not isinstance(each, Mapping) or each.get(inheritance.FIELD) != mine for each in written)

    def _settle_conflict(self, found: ForeignServer, name: str, merged: MergeResult, sides: Sides) -> Item:
        assert isinstance(merged.mine, Mapping)
        assert isinstance(merged.theirs, Mapping)
        fields = tuple(shown(keys) for keys in merged.conflicts)
        choice = self._rules.settle(Conflict(found, name, fields, merged.mine, merged.theirs))
        if choice is Choice.RENAME:
            renamed = self._add(found, self._make_name(found))
            return replace(renamed, action=Action.CONFLICT, conflicts=fields, choice=choice)
        entry = merged.theirs if choice is Choice.REPLACE else merged.mine
        self._store(found, name, entry, sides)
        before = self._old_servers.get(name)
        return Item(found, name, Action.CONFLICT, before, entry, "", fields, choice, found.notices)

    def _store(self, found: ForeignServer, name: str, entry: Entry, sides: Sides) -> None:
        self.servers[name] = entry
        self._index(name, entry)
        self._remember(found, name, sides, entry)

    def _index(self, name: str, entry: Entry) -> None:
        if name in self._identities:
            self._names[self._identities[name].key].remove(name)
        self._identities[name] = identify(entry, self._rules.home)
        self._names.setdefault(self._identities[name].key, []).append(name)

    def _remember(self, found: ForeignServer, name: str, sides: Sides, entry: object) -> None:
        key = key_of(found)
        before = self._old_records[key].output if key in self._old_records else None
        written = update_fingerprint(entry, sides, before, self.memory)
        self.memory.records[key] = Record(name, self.memory.fingerprint(found.entry), written)

    def _make_name(self, found: ForeignServer) -> str:
        plain = _to_usable_name(found.name)
        of_tool = f"{plain[: NAME_LENGTH - len(found.source.tool) - 1]}-{found.source.tool}"
        candidates = [plain, of_tool]
        candidates += [f"{of_tool[: NAME_LENGTH - 6]}-{number}" for number in range(2, len(self.servers) + 3)]
        return next(name for name in candidates if name not in self.servers)


def describe_vanished(memory: Memory, readings: Sequence[Reading], servers: Mapping[str, Entry]) -> list[str]:
    """What was imported from these files once and is not in them any more, but still in the output."""
    still = {key_of(found) for reading in readings for found in reading.servers}
    sources = [reading.source for reading in readings if not reading.error]
    read = {(source.tool, source.scope.value, str(source.file)) for source in sources}
    return [
        f"`{record.name}` is no longer in `{key[2]}` ({key[0]}) and stays in the config"
        for key, record in memory.records.items()
        if key[:3] in read and key not in still and record.name in servers
    ]


def _to_usable_name(name: str) -> str:
    """The name as our config takes it."""
    printable = "".join(character if character.isprintable() else "-" for character in name).strip()
    return printable[:NAME_LENGTH].strip() or "server"


def _comparable_fields(entry: Entry) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key not in ("description", inheritance.FIELD)}


def _equivalent_fields(entry: Entry, other: Entry) -> tuple[str, ...]:
    """Return the fields that say the same of one server in two ways: a URL, or the bridge to it."""
    return _BRIDGE_FIELDS if ("url" in entry) != ("url" in other) else ("url",)


def _with_my_environment(merged: MergeResult) -> MergeResult:
    """Return the same with a person's choice of an environment, which no tool changes."""
    conflicts = tuple(keys for keys in merged.conflicts if keys != (inheritance.FIELD,))
    if len(conflicts) == len(merged.conflicts):
        return merged
    assert isinstance(merged.mine, Mapping)
    assert isinstance(merged.theirs, Mapping)
    return MergeResult(merged.mine, inheritance.with_choice_of(merged.theirs, merged.mine), conflicts)


def _with_wider_environment(found: ForeignServer, name: str, entry: Entry, owner: str) -> tuple[Entry, list[Notice]]:
    """Return the entry with the wider environment: its own, or that of the same server of another tool."""
    tool = found.source.tool
    if "url" in entry or "url" in found.entry:
        return entry, []
    if inheritance.is_wider(found.entry, entry):
        entry, wider, narrower = inheritance.with_choice_of(entry, found.entry), tool, owner
    elif inheritance.is_wider(entry, found.entry):
        wider, narrower = owner, tool
    else:
        return entry, []
    reason = f"`{name}` gets the environment that {wider} passes on, which is more than {narrower} passes on"
    return entry, [_make_notice(found, inheritance.FIELD, reason)]


def _make_notice(found: ForeignServer, field: str, reason: str) -> Notice:
    source = found.source
    return Notice(f"{source.tool}/{source.scope.value}/{found.name}.{field}", reason)
