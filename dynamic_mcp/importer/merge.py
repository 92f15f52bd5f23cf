"""Put what was found into the config that is there: each server once, by a name of its own, and no edit lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.config.values import NAME_LENGTH
from dynamic_mcp.importer import inheritance
from dynamic_mcp.importer.found import Found, Notice, Reading
from dynamic_mcp.importer.identity import Identity, conditions, identity
from dynamic_mcp.importer.memory import Key, Memory, Record, key_of
from dynamic_mcp.importer.plan import Action, Choice, Item
from dynamic_mcp.importer.three_way import Merged, Sides, remembered, three_way
from dynamic_mcp.importer.tree import NOTHING

Entry = Mapping[str, object]

_CONDITIONS = ("env", "env_file", "headers")
_OF_BRIDGES = ("url", "type", "headers", "command", "args", "env", "cwd")


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
    """How to merge. `settle` decides a conflict, `describe` and `write` make of a new entry what is written of it.

    `values` are those of variables as far as they are known. `is_environment_settled` tells that the output's
    settings say what programs get of the environment, so that a new entry does not.
    """

    home: str
    settle: Callable[[Conflict], Choice]
    describe: Callable[[Found], Entry] = lambda found: found.entry
    write: Callable[[str, Entry, Entry | None], Entry] = lambda name, entry, mine: entry
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_environment_settled: bool = False


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
        merged = _with_my_environment(three_way(sides, record, self.memory))
        owner = self._owner(name, found) if record is None else None
        if owner is not None:
            return self._second(found, name, merged, sides, owner)
        if merged.is_settled():
            return self._settled(found, name, merged.mine, sides)
        return self._in_conflict(found, name, merged, sides)

    def has(self, found: Found) -> bool:
        """Tell whether an earlier import brought this server, and the output still has it."""
        record = self._known.get(key_of(found))
        return record is not None and record.name in self.servers

    def are_one(self, one: Found, other: Found) -> bool:
        """Tell whether two servers run or reach the same in the same way."""
        is_same = identity(one.entry, self._rules.home).is_same(identity(other.entry, self._rules.home))
        return is_same and self._conditions(one.entry) == self._conditions(other.entry)

    def _place(self, found: Found, record: Record | None) -> str | None:
        """Return the name of the entry that this server is."""
        if record is not None and record.name in self.servers:
            return record.name
        own = identity(found.entry, self._rules.home)
        same = [name for name in self._named.get(own.key, ()) if self._identities[name].is_same(own)]
        same.sort(key=lambda name: name != found.name)
        return next((name for name in same if self._may_be(found, name)), None)

    def _may_be(self, found: Found, name: str) -> bool:
        """Tell whether two entries that run the same are one server: not if they work with other variables."""
        entry = self.servers[name]
        own = key_of(found)
        others = [key for key in self._sources(name) if key != own]
        if any(key[:3] == own[:3] for key in others):
            return _comparable(entry) == _comparable(found.entry)
        if not others and name == found.name:
            return True  # a person wrote it: what differs is a conflict to settle
        return self._conditions(entry) == self._conditions(found.entry) or self._was_read_like(found, others)

    def _conditions(self, entry: Entry) -> frozenset[tuple[str, str, str]]:
        return conditions(entry, self._rules.home, self._rules.values)

    def _was_read_like(self, found: Found, others: Sequence[Key]) -> bool:
        """Tell whether another source has the same variables, whatever a person made of them here."""
        own = [self.memory.print_of(found.entry.get(key, NOTHING)) for key in _CONDITIONS]
        reads = [self.memory.records[key].read for key in others]
        return any(isinstance(read, Mapping) and [read.get(key) for key in _CONDITIONS] == own for read in reads)

    def _sources(self, name: str) -> list[Key]:
        return [key for key, record in self.memory.records.items() if record.name == name]

    def _owner(self, name: str, found: Found) -> Key | None:
        """Return the source that an entry came from first, if that is another one than this."""
        return next((key for key in self._sources(name) if key != key_of(found)), None)

    def _added(self, found: Found, name: str) -> Item:
        theirs = self._rules.describe(found)
        if self._rules.is_environment_settled:
            theirs = inheritance.without_environment(theirs)
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

    def _second(self, found: Found, name: str, merged: Merged, sides: Sides, owner: Key) -> Item:
        """Leave an entry that came from another source as that has it, and say where this one differs."""
        entry = self.servers[name] if merged.conflicts else merged.mine
        assert isinstance(entry, Mapping)
        origin = f"{owner[0]} ({owner[1]})"
        reason = f"`{name}` has it from {origin}, with another value, which stays"
        differing = [keys for keys in merged.conflicts if keys[0] not in _same_in_other_words(entry, found.entry)]
        notices = [_notice(found, shown(keys), reason) for keys in differing]
        if not self._is_my_environment(name):
            entry, remarks = _with_the_wider_environment(found, name, entry, owner[0])
            notices += remarks
        self._keep(found, name, entry, sides)
        before = self._before.get(name)
        action = Action.SAME if entry == (before or entry) else Action.UPDATE
        same = f"is `{name}` from {origin}"
        return Item(found, name, action, before, entry, same, notices=(*found.notices, *notices))

    def _is_my_environment(self, name: str) -> bool:
        """Tell whether a person has chosen what the program gets of the environment."""
        mine = self.memory.print_of(self.servers[name].get(inheritance.FIELD, NOTHING))
        written = [self.memory.records[key].written for key in self._sources(name)]
        return all(not isinstance(each, Mapping) or each.get(inheritance.FIELD) != mine for each in written)

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


def _comparable(entry: Entry) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key not in ("description", inheritance.FIELD)}


def _same_in_other_words(entry: Entry, other: Entry) -> tuple[str, ...]:
    """Return the fields that say the same of one server in two ways: a URL, or the bridge to it."""
    return _OF_BRIDGES if ("url" in entry) != ("url" in other) else ("url",)


def _with_my_environment(merged: Merged) -> Merged:
    """Return the same with a person's choice of an environment, which no tool changes."""
    conflicts = tuple(keys for keys in merged.conflicts if keys != (inheritance.FIELD,))
    if len(conflicts) == len(merged.conflicts):
        return merged
    assert isinstance(merged.mine, Mapping)
    assert isinstance(merged.theirs, Mapping)
    return Merged(merged.mine, inheritance.with_choice_of(merged.theirs, merged.mine), conflicts)


def _with_the_wider_environment(found: Found, name: str, entry: Entry, owner: str) -> tuple[Entry, list[Notice]]:
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
    reason = f"`{name}` gets the environment as {wider} passes it on, which is more than {narrower} does"
    return entry, [_notice(found, inheritance.FIELD, reason)]


def _notice(found: Found, field: str, reason: str) -> Notice:
    source = found.source
    return Notice(f"{source.tool}/{source.scope.value}/{found.name}.{field}", reason)
