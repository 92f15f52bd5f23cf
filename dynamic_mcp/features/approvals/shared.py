"""Calls that wait at any replica are shown at all that share a store, and one decision about each counts.

Each replica shows the calls of the others in its own folder, so commands need no other way to them. A decision goes
to the replica whose call it is, by a compare-and-set of its entry; that replica alone judges it, and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from dynamic_mcp.features.approvals.questions import MAX_OPEN_OF_ALL
from dynamic_mcp.features.approvals.queue import ApprovalServer
from dynamic_mcp.features.approvals.store import ApprovalAnswer, ApprovalDecision, QueuedApproval
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.shared_store import (
    ABSENT,
    SharedStore,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
    Version,
)
from dynamic_mcp.system.store_copies import Mirror, Refill
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

CALLS = StoreSpace("approvals", most_listed=MAX_OPEN_OF_ALL)
# A larger call is shown at its own replica alone.
_MOST_BYTES = 64 << 10
# How long the replica of a call may take to answer a decision, and how long its answer is kept.
_ANSWER_WITHIN_S = 5.0
_ANSWER_KEPT_S = 60.0
_GONE = ApprovalAnswer(outcome="gone", reason="it was decided elsewhere, or has expired")
_CLAIMED = ApprovalAnswer(outcome="refused", reason="the replica whose call it is has it, and does not answer")
_SILENT = ApprovalAnswer(outcome="refused", reason="the replica whose call it is does not answer")


class SharedCall(Struct, frozen=True):
    """An entry: a call of the replica `owner`, the decision about it with its nonce, and the owner's answer.

    `is_claimed`: the owner has read the decision, which can no longer be withdrawn.
    """

    pending: QueuedApproval
    owner: str
    decision: ApprovalDecision | None = None
    nonce: str = ""
    is_claimed: bool = False
    answer: ApprovalAnswer | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None or self.answer.outcome == "refused"

    def left_s(self, now: float) -> float:
        return max(self.pending.expires - now, 1.0)


class SharedCalls:
    """The calls of this replica, which wait in `server`, for the others, and those of the others in its folder."""

    def __init__(self, store: SharedStore, server: ApprovalServer, folder: Path, config: str) -> None:
        self.store = store
        self._server = server
        self._others = _OtherCalls(folder, self)
        self._config = config
        self._owner = secrets.token_hex(8)
        self._own: dict[str, QueuedApproval] = {}
        self._deciding: set[str] = set()  # of these
        self._shown: dict[str, asyncio.Task[None]] = {}  # those of others
        self._changed = asyncio.Event()
        self._tasks = TaskSet(log)
        self._mirror = Mirror(store, CALLS)
        self._mirror.on_change(self._read)
        self._tasks.create(self._mirror.run(), name="calls that wait at other replicas")
        self._refill = Refill(store, self._fill, what="calls that wait for approval")

    def __repr__(self) -> str:
        return f"<SharedCalls, {len(self._shown)} of other replicas>"

    # --- calls of this replica ---------------------------------------------------------------------------

    async def add(self, pending: QueuedApproval) -> None:
        """Show a call at the other replicas; without the store, it waits here alone."""
        value = wire.encode(SharedCall(pending, self._owner))
        if pending.id in self._own:
            return
        if len(value) > _MOST_BYTES:
            log.warning("the call that waits as %s is too large to be shown at other replicas", pending.id)
            return
        self._own[pending.id] = pending
        try:
            is_written = await self._write(pending, value)
        except StoreUnavailable as exc:
            log.warning("the call that waits as %s is not shown at other replicas: %s", pending.id, exc)
            return
        if not is_written:
            self._own.pop(pending.id, None)
            log.warning("another call waits as %s at another replica", pending.id)
        elif pending.id not in self._own:  # it has ended meanwhile
            await self._delete(pending.id)

    async def _write(self, pending: QueuedApproval, value: bytes) -> bool:
        """Write a new entry, unless there is one, which may have a decision; return False then."""
        left_s = max(pending.expires - time.time(), 1.0)
        version = await self.store.compare_and_set(CALLS, pending.id, value, left_s, expected=ABSENT)
        return version is not None

    def remove(self, id: str) -> None:
        """Stop showing a call of this replica."""
        is_shown = self._own.pop(id, None) is not None
        if is_shown and id not in self._deciding:  # else its answer follows
            self._tasks.create(self._delete(id), name="end of an approval")

    async def _fill(self) -> None:
        """Write the calls that wait here. Raises StoreUnavailable."""
        for each in [*self._own.values()]:
            try:
                await self._write(each, wire.encode(SharedCall(each, self._owner)))
            except StoreUnavailable as exc:
                if exc.failure is not StoreFailure.FULL:
                    raise
                log.warning("the call that waits as %s is not shown at other replicas: %s", each.id, exc)

    async def _delete(self, id: str) -> None:
        try:
            await self.store.delete(CALLS, id)
        except StoreUnavailable as exc:  # it expires
            log.debug("the approval %s stays in the shared store: %s", id, exc)

    async def _take(self, entry: StoredEntry, call: SharedCall, decision: ApprovalDecision) -> None:
        """Judge another replica's decision about a call of this one, and answer it; not one that was withdrawn."""
        try:
            version = entry.version if call.is_claimed else await self._claim(entry.name, call, entry.version)
            if version is None:
                return
            answer = await self._server.decide(entry.name, decision)
            judged = structs.replace(call, decision=None, is_claimed=False, answer=answer)
            ttl_s = call.left_s(time.time()) if judged.is_open else _ANSWER_KEPT_S
            await self.store.compare_and_set(CALLS, entry.name, wire.encode(judged), ttl_s, expected=version)
        except StoreUnavailable as exc:
            log.warning("the decision about the call that waits as %s is not answered: %s", entry.name, exc)
        finally:
            self._deciding.discard(entry.name)

    async def _claim(self, id: str, call: SharedCall, version: Version) -> Version | None:
        """Keep a decision from being withdrawn; None if it has changed meanwhile. Raises StoreUnavailable."""
        value = wire.encode(structs.replace(call, is_claimed=True))
        return await self.store.compare_and_set(CALLS, id, value, call.left_s(time.time()), expected=version)

    # --- calls of other replicas -------------------------------------------------------------------------

    async def pass_on(self, decision: ApprovalDecision) -> ApprovalAnswer:
        """Send a decision to the replica whose call it is about, and return that one's answer."""
        try:
            entry = await self.store.get(CALLS, decision.id)
            call = None if entry is None else _decode(entry)
            if entry is None or call is None or not call.is_open:
                return _GONE
            if call.decision is not None:
                return ApprovalAnswer(outcome="refused", reason="another decision about it is on its way")
            return await self._send(entry, call, decision)
        except StoreUnavailable as exc:
            return ApprovalAnswer(outcome="refused", reason=f"{exc}; see whether the call still waits")
        except ValueError:
            return ApprovalAnswer(outcome="refused", reason="its arguments are too large for the shared store")

    async def _send(self, entry: StoredEntry, call: SharedCall, decision: ApprovalDecision) -> ApprovalAnswer:
        nonce = secrets.token_hex(8)
        decided = structs.replace(call, decision=decision, nonce=nonce, is_claimed=False, answer=None)
        left_s = call.left_s(time.time())
        version = await self.store.compare_and_set(
            CALLS, entry.name, wire.encode(decided), left_s, expected=entry.version
        )
        if version is None:
            return ApprovalAnswer(outcome="refused", reason="another decision about it came first")
        answer = await self._wait_for_answer(entry.name, nonce)
        if answer is not None:
            return answer
        withdrawn = await self.store.compare_and_set(CALLS, entry.name, wire.encode(call), left_s, expected=version)
        if withdrawn is not None:
            return _SILENT
        return await self._wait_for_answer(entry.name, nonce) or _CLAIMED  # it is about to answer

    async def _wait_for_answer(self, id: str, nonce: str) -> ApprovalAnswer | None:
        """Return the answer of the replica whose call it is; None if there is none in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                while True:
                    changed = self._changed
                    entry = await self.store.get(CALLS, id)
                    call = None if entry is None else _decode(entry)
                    if call is None or call.nonce != nonce:
                        return _GONE
                    if call.answer is not None:
                        return call.answer
                    await changed.wait()
        return None

    async def _show(self, pending: QueuedApproval) -> None:
        """Show a call in the folder of this replica, as one of this process."""
        here = structs.replace(pending, pid=os.getpid(), config=self._config)
        try:
            await self._others.put(here)
        except FileExistsError:  # replicas of one user have one folder; tried again, since it may be left by another
            log.debug("the call that waits as %s is shown already", pending.id)
            self._shown.pop(pending.id, None)
        except OSError as exc:
            log.warning("`dynamic-mcp approve` cannot show a call of another replica: %s", exc)

    # --- both --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Called when entries have changed."""
        calls = {entry.name: (entry, call) for entry in self._mirror.entries if (call := _decode(entry)) is not None}
        for entry, call in calls.values():
            is_new = call.decision is not None and call.answer is None and entry.name not in self._deciding
            if call.owner == self._owner and call.decision is not None and is_new:
                self._deciding.add(entry.name)
                self._tasks.create(self._take(entry, call, call.decision), name="a decision of another replica")
        self._show_others({id: call for id, (_, call) in calls.items() if call.owner != self._owner and call.is_open})
        self._changed.set()
        self._changed = asyncio.Event()

    def _show_others(self, calls: Mapping[str, SharedCall]) -> None:
        for id in self._shown.keys() - calls.keys():
            self._shown.pop(id).add_done_callback(partial(self._hide, id))
        for id in calls.keys() - self._shown.keys():
            self._shown[id] = self._tasks.create(self._show(calls[id].pending), name="a call of another replica")

    def _hide(self, id: str, shown: asyncio.Task[None]) -> None:
        self._others.remove(id)

    async def close(self) -> None:
        """Show no call of another replica any more, and none of this one there."""
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self._refill.close()
        for id in self._own.keys() - self._deciding:
            await self._delete(id)
        await self._others.close()


class _OtherCalls(ApprovalServer):
    """Calls of other replicas in this one's folder, whose decisions are passed on."""

    def __init__(self, folder: Path, calls: SharedCalls) -> None:
        super().__init__(folder, lambda decision: None)
        self._calls = calls

    async def judge(self, decision: ApprovalDecision) -> ApprovalAnswer:
        return await self._calls.pass_on(decision)


def _decode(entry: StoredEntry) -> SharedCall | None:
    call = entry.read(SharedCall)
    return call if call is not None and call.pending.id == entry.name else None
