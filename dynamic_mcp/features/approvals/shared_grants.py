"""What users have allowed, or denied, for later calls, at all replicas that share a store.

A grant for one call is taken out of the store by the replica that uses it, so of all replicas one does. One for an
hour or a session is looked up in a copy, and none holds while that may be old: then users are asked again. A session
is the same at all replicas over HTTP, also where its client has none and is known by what it says of itself.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.features.approvals.questions import (
    MAX_GRANTS_OF_ONE_PRINCIPAL,
    SESSION_S,
    ApprovalGrant,
    ApprovalKey,
    Verdict,
    for_any_arguments,
)
from dynamic_mcp.features.approvals.store import Scope
from dynamic_mcp.groups import catalog_store
from dynamic_mcp.groups.group import Group
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.access import GroupRules
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.shared_store import SharedStore, StoredEntry, StoreSpace, StoreUnavailable, Version
from dynamic_mcp.system.store_copies import Mirror
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# All replicas list all grants, so larger ones, with new arguments or long reasons, stay at one replica.
GRANTS = StoreSpace("approval-grants", most_listed=1024)
_MOST_BYTES = 4000
_MAX_ENDED = 4096
# Messages of a replica that asks about a call: `<replica> <digest of the call's key>`.
QUESTIONS = StoreSpace("approval-questions")

OnAsked = Callable[[Callable[[ApprovalKey], bool]], object]
"""Called with a function that returns whether a key is that of a call which another replica asks about."""


class SharedGrant(Struct, frozen=True):
    """An entry. `key` is the digest of what it is for, and its name; `policy` is the digest of all rules.

    `is_single`: it is for one request. `until` is in seconds since 1970, and the store drops it then; one that is for
    a session lives on while that uses it.
    """

    key: str
    id: str
    policy: str
    principal: Principal
    group: str
    kind: str
    name: str
    is_single: bool
    outcome: Literal["allowed", "denied"]
    scope: Scope
    given: float
    until: float
    by: str = ""
    channel: str = ""
    reason: str = ""
    arguments: bytes = b""

    @property
    def verdict(self) -> Verdict:
        arguments = Raw(self.arguments) if self.arguments else None
        return Verdict(self.outcome, self.scope, self.by, self.channel, self.reason, arguments)


class SharedGrants:
    """The grants in a store; `rules` are all that decide who is asked.

    `on_change` is called when others may hold, and `on_asked` when another replica asks about a call.
    """

    def __init__(self, store: SharedStore, rules: object, on_change: Callable[[], object], on_asked: OnAsked) -> None:
        self._store = store
        self._policy = digest(rules)
        self._ended: BoundedDict[Version, None] = BoundedDict(_MAX_ENDED)
        self._known: dict[str, tuple[StoredEntry, SharedGrant]] = {}
        self._about: set[tuple[Principal, str, str]] = set()  # whom and what the known ones are for
        self._renewing: set[str] = set()
        self._on_change, self._on_asked = on_change, on_asked
        self._owner = secrets.token_hex(8)
        self._unsubscribe = store.subscribe(QUESTIONS, self._hear)
        self._tasks = TaskSet(log)
        self._mirror = Mirror(store, GRANTS)
        self._mirror.on_change(self._read)
        self._tasks.create(self._mirror.run(), name="what users have allowed at other replicas")

    def __repr__(self) -> str:
        return f"<SharedGrants, {len(self._known)}>"

    # --- use ---------------------------------------------------------------------------------------------

    def covers(self, key: ApprovalKey, session: Client) -> bool:
        """Return whether a grant holds for such requests with any arguments."""
        return any(not each.is_single for each in self._find(key, session))

    def has(self, key: ApprovalKey, session: Client) -> bool:
        """Return whether there is a grant for such a request, which another replica may be about to use."""
        return bool(self._find(key, session))

    async def use(self, key: ApprovalKey, session: Client) -> ApprovalGrant | None:
        """Return the grant for such a request, if there is one; one for one request is used up."""
        if key.state is not None:  # a retry follows at once, when the copy may not have its grant yet
            return await self._take(self._name(key))
        for found in self._find(key, session):
            if not found.is_single:
                self._keep_session(found)
                return ApprovalGrant(found.id, found.verdict, found.until, uses=math.inf)
            if grant := await self._take(found.key):
                return grant
        return None

    async def _take(self, name: str | None) -> ApprovalGrant | None:
        if name is None:
            return None
        try:
            entry = await self._store.take(GRANTS, name)
        except StoreUnavailable as exc:
            log.warning("an approval cannot be used: %s", exc)
            return None
        found = None if entry is None else _decode(entry)
        if entry is None or found is None or not found.is_single or not self._holds(entry, found):
            return None
        self._ended[entry.version] = None
        return ApprovalGrant(found.id, found.verdict, found.until)

    def _find(self, key: ApprovalKey, session: Client) -> list[SharedGrant]:
        if (key.principal, key.kind, key.name) not in self._about or not self._mirror.is_fresh:
            return []
        keys = (key, for_any_arguments(key, key.session), for_any_arguments(key, session))
        names = dict.fromkeys(map(self._name, keys))
        found = [self._known[name] for name in names if name is not None and name in self._known]
        now = time.time()
        return [grant for entry, grant in found if grant.until > now and self._holds(entry, grant)]

    def _keep_session(self, found: SharedGrant) -> None:
        """Have a grant for a session live on while it is used."""
        now = time.time()
        if found.scope == "session" and found.until - now < SESSION_S / 2 and found.key not in self._renewing:
            self._renewing.add(found.key)
            kept = structs.replace(found, until=now + SESSION_S)
            self._tasks.create(self._renew(self._known[found.key][0], kept), name="a grant for a session")

    async def _renew(self, entry: StoredEntry, kept: SharedGrant) -> None:
        try:
            await self._store.compare_and_set(
                GRANTS, entry.name, wire.encode(kept), SESSION_S, expected=entry.version
            )
        except StoreUnavailable as exc:
            log.debug("an approval for a session may end early: %s", exc)
        finally:
            self._renewing.discard(entry.name)

    # --- questions ---------------------------------------------------------------------------------------

    def announce(self, key: ApprovalKey) -> None:
        """Tell the other replicas of a new question, so that they withdraw an equal one for which nothing waits."""
        if name := self._name(key):
            self._tasks.create(self._publish(f"{self._owner} {name}"), name="a new question")

    async def _publish(self, message: str) -> None:
        try:
            await self._store.publish(QUESTIONS, message.encode())
        except StoreUnavailable as exc:
            log.debug("another replica may ask about the same call: %s", exc)

    def _hear(self, message: bytes | None) -> None:
        owner, _, name = (message or b"").decode("utf-8", "replace").partition(" ")
        if name and owner != self._owner:
            self._on_asked(lambda key: self._name(key) == name)

    # --- changes -----------------------------------------------------------------------------------------

    async def add(self, key: ApprovalKey, grant: ApprovalGrant, *, group: str, left_s: float) -> bool:
        """Have a grant hold at all replicas; False if it can only hold at this one. Raises StoreUnavailable."""
        name = self._name(key)
        if name is None:
            return False
        verdict, now, left_s = grant.verdict, time.time(), min(left_s, SESSION_S)
        shared = SharedGrant(
            key=name,
            id=grant.id,
            policy=self._policy,
            principal=key.principal,
            group=group,
            kind=key.kind,
            name=key.name,
            is_single=grant.uses == 1,
            outcome="allowed" if verdict.is_allowed else "denied",
            scope=verdict.scope,
            given=now,
            until=now + left_s,
            by=verdict.by,
            channel=verdict.channel,
            reason=verdict.reason,
            arguments=b"" if verdict.arguments is None else bytes(verdict.arguments),
        )
        value = wire.encode(shared)
        if len(value) > _MOST_BYTES:
            return False
        await self._make_room(key.principal)
        await self._store.put(GRANTS, name, value, left_s)
        if not shared.is_single:
            await self._mirror.refresh()
        return True

    async def _make_room(self, principal: Principal) -> None:
        """Delete the oldest grant of a principal that has as many as one may have. Raises StoreUnavailable."""
        earlier = [(grant.given, entry) for entry, grant in self._known.values() if grant.principal == principal]
        if len(earlier) >= MAX_GRANTS_OF_ONE_PRINCIPAL:
            oldest = min(earlier, key=lambda each: each[0])[1]
            await self._store.delete(GRANTS, oldest.name, expected=oldest.version)

    def set_rules(self, rules: object) -> None:
        """Drop the grants that other rules have asked for."""
        self._policy = digest(rules)
        for entry, grant in self._known.values():
            if grant.policy != self._policy:
                self._tasks.create(self._end(entry), name="a dropped approval")

    async def _end(self, entry: StoredEntry) -> None:
        try:
            await self._store.delete(GRANTS, entry.name, expected=entry.version)
        except StoreUnavailable as exc:  # it holds nowhere with the new rules, and expires
            log.debug("a dropped approval stays in the shared store: %s", exc)

    async def close(self) -> None:
        self._unsubscribe()
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _read(self) -> None:
        """Called when entries have changed. One that was gone does not come back with a store that lost writes."""
        before, entries = self._known, {each.name: each for each in self._mirror.entries}
        for name, (entry, _) in before.items():
            if name not in entries or entries[name].version != entry.version:
                self._ended[entry.version] = None
        for entry in entries.values():
            if entry.version in self._ended:
                self._tasks.create(self._end(entry), name="an approval that has ended")
        self._known = {}
        for name, entry in entries.items():
            is_same = name in before and before[name][0].version == entry.version
            grant = before[name][1] if is_same else _decode(entry)
            if grant is not None and entry.version not in self._ended:
                self._known[name] = entry, grant
        self._about = {(each.principal, each.kind, each.name) for _, each in self._known.values()}
        self._on_change()

    def _holds(self, entry: StoredEntry, grant: SharedGrant) -> bool:
        return grant.policy == self._policy and entry.version not in self._ended

    def _name(self, key: ApprovalKey) -> str | None:
        """Return the digest of a key that is the same at all replicas; None for one of a session of this one."""
        session = None if key.session is None else _session_name(key.session)
        if session is None and key.session is not None:
            return None
        return digest(
            [
                self._policy,
                key.principal,
                key.server,
                key.kind,
                key.name,
                key.definition,
                key.rules,
                key.rule,
                key.arguments,
                session,
                key.state,
            ]
        )


def _decode(entry: StoredEntry) -> SharedGrant | None:
    found = entry.read(SharedGrant)
    return found if found is not None and found.key == entry.name else None


def _session_name(session: Hashable) -> str | None:
    """Return what a session is at all replicas; None if it is one of this replica."""
    client: Any = session  # Any: only clients are sessions
    shared_id: str = client.shared_id
    return shared_id or None


def digest(value: object) -> str:
    """Return a digest that is the same in all processes with the same config."""
    return sha256(msgspec.json.encode(value, enc_hook=_encode, order="deterministic")).hexdigest()


def _encode(value: Any) -> object:  # Any: whatever rules consist of
    match value:
        case Group():
            return [value.name, catalog_store.key(value.config)]
        case GroupRules():
            return value.content
        case _:
            return [type(value).__name__, getattr(value, "pattern", None) or str(value)]
