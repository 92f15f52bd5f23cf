"""Caches results for a while, so that equal calls of a read-only tool are not repeated.

The key of a cached result has everything that it may depend on: the server and its login, the tool's definition,
the arguments, the caller, and the writes and notifications since.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Hashable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Raw, Struct

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.cache.clearing import ClearingMarks
from dynamic_mcp.features.cache.kept_results import ABANDONED, Abandoned, Flight, KeptResult, KeptResults, prepare
from dynamic_mcp.features.cache.rules import CacheRules, KeepRule, list_rules
from dynamic_mcp.groups.catalog_store import key
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import strict_json, wire
from dynamic_mcp.mcp.envelope import RETRY_MEMBERS
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.bounded import BoundedDict

if TYPE_CHECKING:
    from dynamic_mcp.features.cache.shared import SharedCache
    from dynamic_mcp.proxy.view import GroupView
    from dynamic_mcp.system.shared_store import SharedStore

# Calls with longer arguments or names are not cached.
_LONGEST_ARGUMENTS = 16 << 10
_LONGEST_NAME = 8 << 10
# The number of arguments whose canonical form is remembered.
_MAX_CANONICAL, _LONGEST_REMEMBERED = 512, 2 << 10
# Values with only one JSON form.
_SAME = frozenset((b"", b"{}", b"null", b"true", b"false"))
# The number of URIs per group with separate update counts; beyond it, an update counts for all of them.
_MAX_UPDATED = 1000
_NOT_CACHED = RETRY_MEMBERS | {"task"}
_PLAIN = frozenset(("name", "arguments", "uri", "_meta"))


class _GroupHistory:
    """The events of a group that invalidate its cached results."""

    __slots__ = ("id", "updates", "writes")
    _ids = itertools.count()

    def __init__(self) -> None:
        self.id = next(self._ids)
        self.writes = 0
        self.updates: dict[str, int] = {}


class _Slot(Struct, frozen=True, gc=False):
    """A place in the cache: the rule, and the key for all users or for one.

    `tool`, with the `digest` of its definition, is empty for a resource. `key_bytes` is the size of a key.
    """

    rule: KeepRule
    store: KeptResults
    shared: Hashable
    personal: Hashable
    tool: str
    digest: bytes
    key_bytes: int
    server: str = ""  # as the config runs it; empty if its results depend on more than the parts
    parts: tuple[str, ...] = ()

    def find(self, now: float) -> KeptResult | None:
        found = None if self.rule.per_person else self.store.find(self.shared, now)
        return found or self.store.find(self.personal, now)

    @property
    def flight(self) -> Hashable:
        return self.personal if self.rule.per_person else self.shared


class ResultCache(Step):
    """The cached results of one proxy. Marks in the state folder of its services clear it."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        folder = services.state_folder
        self._clock = services.clock
        self._marks = None if folder is None else ClearingMarks(folder, self._clock)
        self._stores: dict[str, KeptResults] = {}
        self._histories: WeakKeyDictionary[Group, _GroupHistory] = WeakKeyDictionary()
        self._has_kept = False
        self._canonical: BoundedDict[bytes, bytes | None] = BoundedDict(_MAX_CANONICAL)
        self._shared: SharedCache | None = None
        self._common: WeakSet[Group] = WeakSet()  # whose results other replicas may have cached

    def share(self, store: SharedStore | None) -> None:
        if self._shared is not None:
            self._shared.end()
            self._shared = None
        self._common.clear()

    async def close(self) -> None:
        if self._shared is not None:
            self._shared.end()

    def _share_group(self, group: Group) -> None:
        """Share what is cached of a group for all users with other replicas, and what makes that out of date."""
        store = self.services.shared_store
        if store is None:
            return
        self._common.add(group)
        if self._shared is None:
            from dynamic_mcp.features.cache.shared import SharedCache

            self._shared = SharedCache(store, self._record_write_elsewhere)

    def _record_write_elsewhere(self, server: str) -> None:
        """Called when results of a server, cached at any replica, are out of date."""
        for group, history in self._histories.items():
            if key(group.config) == server:
                history.writes += 1

    def _renew_shared(self, group: Group) -> None:
        if self._shared is not None and group in self._common:
            self._shared.renew(key(group.config))

    # --- invalidation ----------------------------------------------------------------------------------

    def apply(self, configs: Iterable[Config]) -> None:
        """Drop results that no rule of these configs caches any more."""
        shown = [pair for config in configs for pair in config.presentations.items()]
        keys = {rule.key for server, each in shown for rule in list_rules(each, server)}
        self._stores = {key: store for key, store in self._stores.items() if key in keys}

    def clear(self, server: str | None = None) -> None:
        """Drop the results of one server, or of all; results in flight are not cached either."""
        self._stores = {} if server is None else {k: v for k, v in self._stores.items() if v.server != server}
        for group in [*self._common]:
            if server in (None, group.name):
                self._renew_shared(group)

    async def _heed_marks(self, server: str) -> None:
        if self._marks is not None and self._marks.is_due(server):
            for each in await self._marks.look(server):
                self.clear(each)

    def record_update(self, group: Group, uri: str) -> None:
        """Record that a resource has changed."""
        self._renew_shared(group)
        history = self._histories.get(group)
        if history is None:
            return
        if len(history.updates) >= _MAX_UPDATED and uri not in history.updates:
            history.updates.clear()
            history.writes += 1
        history.updates[uri] = history.updates.get(uri, 0) + 1

    def _record_write(self, group: Group) -> None:
        history = self._histories.get(group)
        if history is not None:
            history.writes += 1
        self._renew_shared(group)

    # --- requests --------------------------------------------------------------------------------------

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        rules = group.find_rules("cache", CacheRules)
        if rules is not None and rules.has_common:
            self._share_group(group.group)
        if tool is None or rules is None:
            return super().bind(group, tool, next)
        return partial(self._call, rules.for_tool(tool) is not None, next)

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Answer a request that calls no tool from the cache, or send it and cache its result."""
        match call.method:
            case "resources/read":
                return self._find(call, next, "uri", b"")
            case "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel":  # of a tool that may write
                return self._write(call, next)
            case _:
                return next(call)

    def _call(self, may_keep: bool, next: Next, call: UpstreamRequest) -> Awaitable[Frame]:  # noqa: FBT001 - bound
        group = call.group.group
        if not may_keep and (not self._has_kept or group not in self._histories) and group not in self._common:
            return next(call)  # no cached result depends on it
        name = call.tool or ""
        digest = _digest_of_reader(call.group, name)
        if digest is None:
            return self._write(call, next)
        return self._find(call, next, "name", digest) if may_keep else next(call)

    async def _find(self, call: UpstreamRequest, next: Next, member: str, digest: bytes) -> Frame:
        call.group.refuse_held_request(call.method, call.params)
        await self._heed_marks(call.group.name)
        slot = self._find_slot(call, member, digest)
        return await (next(call) if slot is None else self._answer(call, next, slot))

    async def _write(self, call: UpstreamRequest, next: Next) -> Frame:
        """Send a request that may change data, and invalidate cached results even if it fails."""
        try:
            return await next(call)
        finally:
            self._record_write(call.group.group)

    async def _answer(self, call: UpstreamRequest, next: Next, slot: _Slot) -> Frame:
        """Answer a cacheable request; equal requests meanwhile wait for the first."""
        while True:
            if (kept := slot.find(self._clock.now())) is not None:
                return self._hit(call, kept)
            flight = slot.store.flights.get(slot.flight)
            if flight is None:
                return await self._lead(call, next, slot)
            await asyncio.wait([flight], timeout=call.timeout_s)
            outcome = flight.result() if flight.done() else None
            if isinstance(outcome, KeptResult) and (slot.rule.per_person or not outcome.is_private):
                return self._hit(call, outcome)
            if outcome is not ABANDONED:  # it failed, or its result is private
                return (await self._send_and_keep(call, next, slot))[0]

    async def _lead(self, call: UpstreamRequest, next: Next, slot: _Slot) -> Frame:
        flight: Flight = asyncio.get_running_loop().create_future()
        slot.store.flights[slot.flight] = flight
        outcome: KeptResult | Abandoned | None = None
        try:
            answer, outcome = await self._find_or_send(call, next, slot)
            return answer
        except asyncio.CancelledError:
            outcome = ABANDONED
            raise
        finally:
            del slot.store.flights[slot.flight]
            flight.set_result(outcome)

    async def _find_or_send(self, call: UpstreamRequest, next: Next, slot: _Slot) -> tuple[Frame, KeptResult | None]:
        """Answer by what another replica has cached, or send the request and share its result."""
        shared = None if slot.rule.per_person or not slot.server else self._shared
        name = None if shared is None else await shared.find_name(slot.server, slot.parts)
        if shared is None or name is None:
            return await self._send_and_keep(call, next, slot)
        kept = await shared.find(name, self._clock.now())
        if kept is not None:
            slot.store.put(slot.shared, kept, slot.key_bytes)
            return self._hit(call, kept), kept
        answer, kept = await self._send_and_keep(call, next, slot)
        if kept is not None and not kept.is_private:
            shared.keep(name, kept, self._clock.now(), slot.server)
        return answer, kept

    async def _send_and_keep(self, call: UpstreamRequest, next: Next, slot: _Slot) -> tuple[Frame, KeptResult | None]:
        group = call.group.group
        questions = group.questions
        answer = await next(call)
        if group.questions != questions:  # the result may depend on an answer of the client
            return answer, None
        if slot.tool and _digest_of_reader(call.group, slot.tool) != slot.digest:
            self._record_write(group)  # the server's definition has changed
            return answer, None
        kept = prepare(answer, slot.rule.ttl_s, self._clock.now())
        if kept is not None:
            is_personal = kept.is_private or slot.rule.per_person
            slot.store.put(slot.personal if is_personal else slot.shared, kept, slot.key_bytes)
        return answer, kept

    def _hit(self, call: UpstreamRequest, kept: KeptResult) -> Frame:
        if call.request.observation is not None:
            call.request.observation.is_cached = True
        return kept.answer(self._clock.now())

    # --- keys ------------------------------------------------------------------------------------------

    def _find_slot(self, call: UpstreamRequest, member: str, digest: bytes) -> _Slot | None:
        """Return the place of a request's result in the cache; None if it is not cached."""
        params, rules = call.params or {}, call.group.find_rules("cache", CacheRules)
        name = wire.text(params.get(member)) or ""
        if rules is None or not name or len(name) > _LONGEST_NAME:
            return None
        rule = rules.for_tool(name) if digest else rules.for_resource(name)
        if rule is None or not _NOT_CACHED.isdisjoint(params):
            return None
        params_key = self._canonical_params(params)
        if params_key is None:
            return None
        store = self._stores.get(rule.key)
        if store is None:
            store = self._stores[rule.key] = KeptResults(rule.server, rule.max_bytes)
        shared = (call.method, name, digest, params_key, *self._circumstances(call, name))
        personal = (*shared, call.request.principal)
        tool, key_bytes = name if digest else "", len(name) + len(params_key)
        if self.services.shared_store is None or call.group.group.knows_sessions:
            return _Slot(rule, store, shared, personal, tool, digest, key_bytes)
        parts = (rule.key, call.method, name, digest.hex(), params_key.hex(), call.request.revision.name)
        return _Slot(rule, store, shared, personal, tool, digest, key_bytes, key(call.group.group.config), parts)

    def _circumstances(self, call: UpstreamRequest, name: str) -> tuple[Hashable, ...]:
        """Return what else a result may depend on: the server, its session, the protocol, and changes."""
        group, client = call.group.group, call.request.client
        history = self._histories.get(group)
        if history is None:
            history = self._histories[group] = _GroupHistory()
            self._has_kept = True
        session = client.id if group.knows_sessions else None
        updates = history.updates.get(name, 0) if history.updates else 0
        return history.id, history.writes, updates, group.changes, session, call.request.revision.name

    def _canonical_params(self, params: Mapping[str, Raw]) -> bytes | None:
        """Return params in a canonical form, equal for all spellings; None if there is none."""
        found = self._canonical_value(params.get("arguments", wire.ABSENT))
        if found is None or params.keys() <= _PLAIN:
            return found
        for name in sorted(params.keys() - _PLAIN):
            value = self._canonical_value(params[name])
            if value is None:
                return None
            found = b"%b,%b:%b" % (found, wire.encode(name), value)
        return found

    def _canonical_value(self, raw: Raw) -> bytes | None:
        data = bytes(raw)
        if data in _SAME:
            return data
        if len(data) > _LONGEST_ARGUMENTS:
            return None
        try:
            return self._canonical[data]
        except KeyError:
            found = _canonical(data)
            if len(data) <= _LONGEST_REMEMBERED:
                self._canonical[data] = found
            return found


def _canonical(data: bytes) -> bytes | None:
    try:
        return strict_json.canonical(data)
    except ValueError:
        return None


def _digest_of_reader(group: GroupView, name: str) -> bytes | None:
    """Return the hash of a tool's definition; None if the tool may write, or is unknown."""
    catalog, rules = group.group.catalog, group.find_rules("cache", CacheRules)
    definition = None if catalog is None else catalog.tools.get(name)
    return None if definition is None or rules is None else rules.digest_of_reader(name, definition)
