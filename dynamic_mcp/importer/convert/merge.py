"""Merge foreign servers into an existing config: each server once, under a unique name, and no edit is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.config.types import NAME_LENGTH
from dynamic_mcp.importer.convert.identity import Identity, collect_conditions, identify
from dynamic_mcp.importer.convert.memory import Fingerprint, Key, Memory, Record, key_of
from dynamic_mcp.importer.convert.plan import Action, Choice, Item
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.model import ForeignServer, Notice, Reading
from dynamic_mcp.system.text import replace_unprintable

Entry = Mapping[str, object]

_CONDITIONS = ("env", "env_file", "headers")
_BRIDGE_FIELDS = ("url", "type", "headers", "command", "args", "env", "cwd")
INHERIT_ENV = "inherit_env"


@dataclass(frozen=True)
class Conflict:
    """A server that was changed both here and at its source, or whose history is unknown."""

    server: ForeignServer
    name: str
    fields: tuple[str, ...]
    mine: Entry | None = field(repr=False)
    theirs: Entry = field(repr=False)


@dataclass(frozen=True)
class Rules:
    """How to merge: `settle` decides conflicts, `describe` and `write` prepare a new entry for the output.

    `values` are the known values of variables. `is_environment_settled` tells that the output's settings already
    decide what programs inherit, so that new entries do not.
    """

    home: str
    settle: Callable[[Conflict], Choice]
    describe: Callable[[ForeignServer], Entry] = lambda server: server.entry
    write: Callable[[str, Entry, Entry | None], Entry] = lambda name, entry, mine: entry
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_environment_settled: bool = False


class Merge:
    """One import at work: the servers of the output so far, and the records of what was done."""

    def __init__(self, servers: Mapping[str, Entry], memory: Memory, rules: Rules) -> None:
        self.servers = dict(servers)
        self.memory = memory
        self._old_servers = dict(servers)
        self._rules = rules
        self._old_records = dict(memory.records)
        self._identities: dict[str, Identity] = {}
        self._names: dict[tuple[str, ...], list[str]] = {}  # by identity key
        for name, entry in servers.items():
            self._index(name, entry)

    def take(self, server: ForeignServer) -> Item:
        """Merge one server. The order of calls matters: the first of several sources of one server counts."""
        record = self._old_records.get(key_of(server))
        name = self._find_entry(server, record)
        if name is None and record is not None:
            return self._settle_removal(server, record)
        if name is None:
            return self._add(server, self._make_name(server))
        mine = self.servers[name]
        sides = Sides(mine, server.entry, self._rules.write(name, server.entry, mine))
        merged = _with_my_environment(merge_three_way(sides, record, self.memory))
        owner = self._first_source(name, server) if record is None else None
        if owner is not None:
            return self._merge_duplicate(server, name, merged, sides, owner)
        if merged.is_settled():
            return self._update(server, name, merged.mine, sides)
        return self._settle_conflict(server, name, merged, sides)

    def has(self, server: ForeignServer) -> bool:
        """Tell whether an earlier import added this server and the output still has it."""
        record = self._old_records.get(key_of(server))
        return record is not None and record.name in self.servers

    def is_same_server(self, one: ForeignServer, other: ForeignServer) -> bool:
        """Tell whether two servers run or reach the same with the same variables and headers."""
        is_same = identify(one.entry, self._rules.home).is_same(identify(other.entry, self._rules.home))
        return is_same and self._collect_conditions(one.entry) == self._collect_conditions(other.entry)

    def forget_renamed(self, readings: Sequence[Reading]) -> None:
        """Drop the records of servers that their file has under another name now, which has a record of its own."""
        present = {key_of(server) for reading in readings for server in reading.servers}
        entries = {(key[:3], record.name) for key, record in self.memory.records.items() if key in present}
        for key, record in list(self.memory.records.items()):
            if key not in present and (key[:3], record.name) in entries:
                del self.memory.records[key]

    def _find_entry(self, server: ForeignServer, record: Record | None) -> str | None:
        """Return the name of the output's entry for this server."""
        if record is not None and record.name in self.servers:
            return record.name
        own = identify(server.entry, self._rules.home)
        same = [name for name in self._names.get(own.key, ()) if self._identities[name].is_same(own)]
        same.sort(key=lambda name: name != server.name)
        return next((name for name in same if self._is_same_entry(server, name)), None)

    def _is_same_entry(self, server: ForeignServer, name: str) -> bool:
        """Tell whether an entry with the same identity is this server: its variables and headers must agree."""
        entry = self.servers[name]
        own = key_of(server)
        others = [key for key in self._source_keys(name) if key != own]
        if any(key[:3] == own[:3] for key in others):
            return _comparable_fields(entry) == _comparable_fields(server.entry)
        if not others and name == server.name:
            return True  # a person wrote it: differences are conflicts to settle
        return self._collect_conditions(entry) == self._collect_conditions(server.entry) or self._has_equal_source(
            server, others
        )

    def _collect_conditions(self, entry: Entry) -> frozenset[tuple[str, str, str]]:
        return collect_conditions(entry, self._rules.home, self._rules.values)

    def _has_equal_source(self, server: ForeignServer, others: Sequence[Key]) -> bool:
        """Tell whether another source of the entry has the same variables, even if a person changed them here."""
        own = [self.memory.fingerprint(server.entry.get(key, NOTHING)) for key in _CONDITIONS]
        reads = [self.memory.records[key].source for key in others]
        return any(isinstance(read, Mapping) and [read.get(key) for key in _CONDITIONS] == own for read in reads)

    def _source_keys(self, name: str) -> list[Key]:
        return [key for key, record in self.memory.records.items() if record.name == name]

    def _first_source(self, name: str, server: ForeignServer) -> Key | None:
        """Return the source that first provided an entry, unless it is this one."""
        return next((key for key in self._source_keys(name) if key != key_of(server)), None)

    def _add(self, server: ForeignServer, name: str) -> Item:
        theirs = self._rules.describe(server)
        if self._rules.is_environment_settled:
            theirs = _without_environment(theirs)
        entry = self._rules.write(name, theirs, None)
        self._store(server, name, entry, Sides(NOTHING, server.entry, entry))
        return Item(server, name, Action.NEW, None, entry, notices=server.notices)

    def _settle_removal(self, server: ForeignServer, record: Record) -> Item:
        """Handle a server that the user removed from the output: it stays removed unless its source has changed."""
        if self.memory.fingerprint(server.entry) == record.source:
            return Item(
                server, record.name, Action.SKIP, reason="it was removed from the config after the last import"
            )
        conflict = Conflict(server, record.name, ("the whole entry",), None, server.entry)
        choice = self._rules.settle(conflict)
        if choice is Choice.KEEP:
            self._remember(server, record.name, Sides(NOTHING, server.entry, NOTHING), NOTHING)
            return Item(server, record.name, Action.CONFLICT, conflicts=conflict.fields, choice=choice)
        return replace(
            self._add(server, self._make_name(server)),
            action=Action.CONFLICT,
            conflicts=conflict.fields,
            choice=choice,
        )

    def _update(self, server: ForeignServer, name: str, entry: object, sides: Sides) -> Item:
        before = self.servers[name]
        assert isinstance(entry, Mapping)
        self._store(server, name, entry, sides)
        action = Action.SAME if entry == before else Action.UPDATE
        return Item(server, name, action, self._old_servers.get(name), entry, notices=server.notices)

    def _merge_duplicate(
        self, server: ForeignServer, name: str, merged: _MergeResult, sides: Sides, owner: Key
    ) -> Item:
        """Keep an entry that came from another source, and add notices where this source differs."""
        entry = self.servers[name] if merged.conflicts else merged.mine
        assert isinstance(entry, Mapping)
        origin = f"{owner[0]} ({owner[1]})"
        reason = f"`{name}` keeps the value from {origin}, which differs"
        differing = [keys for keys in merged.conflicts if keys[0] not in _equivalent_fields(entry, server.entry)]
        notices = [_make_notice(server, shown(keys), reason) for keys in differing]
        if not self._is_my_environment(name):
            entry, remarks = _with_wider_environment(server, name, entry, owner[0])
            notices += remarks
        self._store(server, name, entry, sides)
        before = self._old_servers.get(name)
        action = Action.SAME if entry == (before or entry) else Action.UPDATE
        same = f"is `{name}` from {origin}"
        return Item(server, name, action, before, entry, same, notices=(*server.notices, *notices))

    def _is_my_environment(self, name: str) -> bool:
        """Tell whether a person has chosen what the program inherits."""
        mine = self.memory.fingerprint(self.servers[name].get(INHERIT_ENV, NOTHING))
        written = [self.memory.records[key].output for key in self._source_keys(name)]
        return all(not isinstance(each, Mapping) or each.get(INHERIT_ENV) != mine for each in written)

    def _settle_conflict(self, server: ForeignServer, name: str, merged: _MergeResult, sides: Sides) -> Item:
        assert isinstance(merged.mine, Mapping)
        assert isinstance(merged.theirs, Mapping)
        fields = tuple(shown(keys) for keys in merged.conflicts)
        choice = self._rules.settle(Conflict(server, name, fields, merged.mine, merged.theirs))
        if choice is Choice.RENAME:
            renamed = self._add(server, self._make_name(server))
            return replace(renamed, action=Action.CONFLICT, conflicts=fields, choice=choice)
        entry = merged.theirs if choice is Choice.REPLACE else merged.mine
        self._store(server, name, entry, sides)
        before = self._old_servers.get(name)
        return Item(server, name, Action.CONFLICT, before, entry, "", fields, choice, server.notices)

    def _store(self, server: ForeignServer, name: str, entry: Entry, sides: Sides) -> None:
        self.servers[name] = entry
        self._index(name, entry)
        self._remember(server, name, sides, entry)

    def _index(self, name: str, entry: Entry) -> None:
        if name in self._identities:
            self._names[self._identities[name].key].remove(name)
        self._identities[name] = identify(entry, self._rules.home)
        self._names.setdefault(self._identities[name].key, []).append(name)

    def _remember(self, server: ForeignServer, name: str, sides: Sides, entry: object) -> None:
        key = key_of(server)
        before = self._old_records[key].output if key in self._old_records else None
        written = update_fingerprint(entry, sides, before, self.memory)
        self.memory.records[key] = Record(name, self.memory.fingerprint(server.entry), written)

    def _make_name(self, server: ForeignServer) -> str:
        plain = _to_usable_name(server.name)
        of_tool = f"{plain[: NAME_LENGTH - len(server.source.tool) - 1]}-{server.source.tool}"
        candidates = [plain, of_tool]
        candidates += [f"{of_tool[: NAME_LENGTH - 6]}-{number}" for number in range(2, len(self.servers) + 3)]
        return next(name for name in candidates if name not in self.servers)


def describe_vanished(memory: Memory, readings: Sequence[Reading], servers: Mapping[str, Entry]) -> list[str]:
    """Return a remark for each server that is no longer in its source but still in the output."""
    still = {key_of(server) for reading in readings for server in reading.servers}
    sources = [reading.source for reading in readings if not reading.error]
    read = {(source.tool, source.scope.value, str(source.file)) for source in sources}
    return [
        f"`{record.name}` is no longer in `{key[2]}` ({key[0]}) and stays in the config"
        for key, record in memory.records.items()
        if key[:3] in read and key not in still and record.name in servers
    ]


def _to_usable_name(name: str) -> str:
    """Return the name in a form that our config accepts."""
    return replace_unprintable(name, "-").strip()[:NAME_LENGTH].strip() or "server"


def _comparable_fields(entry: Entry) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key not in ("description", INHERIT_ENV)}


def _equivalent_fields(entry: Entry, other: Entry) -> tuple[str, ...]:
    """Return the fields that may differ between two forms of one server, as a URL and the bridge to it."""
    return _BRIDGE_FIELDS if ("url" in entry) != ("url" in other) else ("url",)


def _with_my_environment(merged: _MergeResult) -> _MergeResult:
    """Return the result with the environment that a person chose, which no tool overrides."""
    conflicts = tuple(keys for keys in merged.conflicts if keys != (INHERIT_ENV,))
    if len(conflicts) == len(merged.conflicts):
        return merged
    assert isinstance(merged.mine, Mapping)
    assert isinstance(merged.theirs, Mapping)
    return _MergeResult(merged.mine, _with_choice_of(merged.theirs, merged.mine), conflicts)


def _with_wider_environment(server: ForeignServer, name: str, entry: Entry, owner: str) -> tuple[Entry, list[Notice]]:
    """Return the entry with the wider environment: its own, or the one of the same server elsewhere."""
    tool = server.source.tool
    if "url" in entry or "url" in server.entry:
        return entry, []
    if _is_wider(server.entry, entry):
        entry, wider, narrower = _with_choice_of(entry, server.entry), tool, owner
    elif _is_wider(entry, server.entry):
        wider, narrower = owner, tool
    else:
        return entry, []
    reason = f"`{name}` gets the environment that {wider} passes on, which is more than {narrower} passes on"
    return entry, [_make_notice(server, INHERIT_ENV, reason)]


def _make_notice(server: ForeignServer, field: str, reason: str) -> Notice:
    source = server.source
    return Notice(f"{source.tool}/{source.scope.value}/{server.name}.{field}", reason)


@dataclass(frozen=True)
class Sides:
    """Three versions of a value: in our config, at its source, and the one that the import would write."""

    mine: object
    theirs: object
    proposal: object


@dataclass(frozen=True)
class _MergeResult:
    """A merged value, with my side or theirs where both changed it, and the paths of those conflicts."""

    mine: object
    theirs: object
    conflicts: tuple[Keys, ...]

    def is_settled(self) -> bool:
        """Tell whether no field was changed on both sides."""
        return not self.conflicts


def merge_three_way(sides: Sides, record: Record | None, memory: Memory) -> _MergeResult:
    """Merge one server. Without a record it is unknown who changed what, so every difference is a conflict."""
    known = record or Record("", None, None)
    return _merge_value(sides, known.source, known.output, memory, (), is_known=record is not None)


def update_fingerprint(result: object, sides: Sides, before: Fingerprint, memory: Memory) -> Fingerprint:
    """Return the fingerprint of what the import wrote; a field that the user kept retains the previous one."""
    if isinstance(result, Mapping) and isinstance(sides.proposal, Mapping):
        old = before if isinstance(before, Mapping) else {}
        return {
            key: update_fingerprint(_member(result, key), _sides_at(sides, key), old.get(key), memory)
            for key in _all_keys(result, sides.proposal, old)
        }
    return memory.fingerprint(result) if result == sides.proposal else before


def _merge_value(
    sides: Sides, source: Fingerprint, output: Fingerprint, memory: Memory, at: Keys, *, is_known: bool
) -> _MergeResult:
    values = (sides.mine, sides.theirs, sides.proposal)
    if any(isinstance(value, Mapping) and value for value in values) and all(map(_is_object, values)):
        return _merge_object(sides, source, output, memory, at, is_known=is_known)
    if _is_equal(sides.mine, sides.proposal) or _is_equal(sides.mine, sides.theirs):
        return _MergeResult(sides.proposal, sides.proposal, ())
    if sides.theirs is NOTHING if not is_known else memory.fingerprint(sides.theirs) == source:
        return _MergeResult(sides.mine, sides.mine, ())
    if is_known and memory.fingerprint(sides.mine) == output:
        return _MergeResult(sides.proposal, sides.proposal, ())
    return _MergeResult(sides.mine, sides.proposal, (at,))


def _merge_object(
    sides: Sides, source: Fingerprint, output: Fingerprint, memory: Memory, at: Keys, *, is_known: bool
) -> _MergeResult:
    old_source = source if isinstance(source, Mapping) else {}
    old_output = output if isinstance(output, Mapping) else {}
    mine: dict[str, object] = {}
    theirs: dict[str, object] = {}
    conflicts: list[Keys] = []
    for key in _all_keys(sides.mine, sides.proposal, sides.theirs):
        inner = (*at, key)
        part = _merge_value(
            _sides_at(sides, key), old_source.get(key), old_output.get(key), memory, inner, is_known=is_known
        )
        conflicts += part.conflicts
        if part.mine is not NOTHING:
            mine[key] = part.mine
        if part.theirs is not NOTHING:
            theirs[key] = part.theirs
    return _MergeResult(_or_nothing(mine, sides), _or_nothing(theirs, sides), tuple(conflicts))


def _or_nothing(value: dict[str, object], sides: Sides) -> object:
    # an object without any field left is removed, unless it was written as an empty object
    return value if value or {} in (sides.mine, sides.theirs) else NOTHING


def _is_object(value: object) -> bool:
    return value is NOTHING or isinstance(value, Mapping)


def _is_equal(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _sides_at(sides: Sides, key: str) -> Sides:
    return Sides(_member(sides.mine, key), _member(sides.theirs, key), _member(sides.proposal, key))


def _member(value: object, key: str) -> object:
    return value.get(key, NOTHING) if isinstance(value, Mapping) else NOTHING


def _all_keys(*values: object) -> Iterable[str]:
    return dict.fromkeys(str(key) for value in values if isinstance(value, Mapping) for key in value)


def with_environment(server: ForeignServer) -> ForeignServer:
    """Return the server with what its tool passes on, if that is more than the default."""
    match server.inherits:
        case None | "safe":
            return server
        case "all":
            return server.with_fields({INHERIT_ENV: "all"})
        case names:
            return server.with_fields({INHERIT_ENV: list(names)})


def _without_environment(entry: Entry) -> dict[str, object]:
    """Return the entry without its choice of an environment."""
    return {key: value for key, value in entry.items() if key != INHERIT_ENV}


def _with_choice_of(entry: Entry, other: Entry) -> dict[str, object]:
    """Return the entry with the other one's choice of an environment, or without any if it has none."""
    kept = {INHERIT_ENV: other[INHERIT_ENV]} if INHERIT_ENV in other else {}
    return _without_environment(entry) | kept


def _is_wider(one: Entry, other: Entry) -> bool:
    """Tell whether an entry passes on more of the environment than the other; only the kinds are compared."""
    return _width(one.get(INHERIT_ENV, NOTHING)) > _width(other.get(INHERIT_ENV, NOTHING))


def describe_wider(items: Sequence[Item]) -> list[str]:
    """Return one remark for all servers that get more than the safe environment; none if there are none."""
    wider = [item for item in items if item.entry is not None and _has_become_wider(item)]
    if not wider:
        return []
    tools = " and ".join(dict.fromkeys(item.server.source.tool for item in wider))
    names = {item.name for item in wider}
    servers = f"{len(names)} servers get" if len(names) > 1 else "1 server gets"
    change = f"{servers} your environment as {tools} passed it on (`{INHERIT_ENV}`)"
    advice = f"to pass on less, set a server's `{INHERIT_ENV}` to `safe` or to a list of names"
    return [f"{change}, because a variable in it may be needed; {advice}"]


def _has_become_wider(item: Item) -> bool:
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
