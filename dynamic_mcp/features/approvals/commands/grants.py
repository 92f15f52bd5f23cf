"""Implements `approve grants` and `approve revoke`: what users have allowed for later calls at all replicas."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.features.approvals.commands.view import format_seconds
from dynamic_mcp.features.approvals.shared_grants import GRANTS, SharedGrant
from dynamic_mcp.features.approvals.store import parse_id
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.proxy.shared_store import has_shared_store, using_shared_store
from dynamic_mcp.system.blank import reveal
from dynamic_mcp.system.shared_store import SharedStore, StoredEntry, StoreUnavailable

_COLUMNS = ("ID", "WHO", "GROUP", "TOOL", "DECISION", "FOR", "BY", "EXPIRES IN")
_Listed = list[tuple[StoredEntry, SharedGrant]]

T = TypeVar("T")


def list_grants(context: Invocation) -> None:
    """Print what waits for later calls. Raises DynamicMcpError."""
    found = _with_store(context, _list)
    now = time.time()
    facts = [_to_json(each, now) for _, each in found]
    rows = [_to_row(each, now) for _, each in found]
    context.out.print_rows(facts, _COLUMNS, rows, if_none="nothing is allowed for later calls")


def revoke_grants(context: Invocation, typed: str | None) -> None:
    """End one grant, or all without an id. Raises DynamicMcpError."""

    async def revoke(store: SharedStore) -> list[SharedGrant]:
        found = await _list(store)
        if typed is not None:
            found = _choose(found, typed)
        return [each for entry, each in found if await store.delete(GRANTS, entry.name)]

    ended = _with_store(context, revoke)
    for each in ended:
        about = {"id": each.id, "group": each.group, "kind": each.kind, "name": each.name}
        who = {"issuer": each.principal.issuer, "subject": each.principal.subject}
        record(context, context.config_path(), "approval.revoked", {**about, **who})
    revoked = sorted({each.id for each in ended})
    if context.out.is_json_requested:
        context.out.print_json({"revoked": revoked})
    context.out.say(f"{', '.join(revoked) or 'nothing'} was revoked" + (" at all replicas" if revoked else ""))


def _choose(found: _Listed, typed: str) -> _Listed:
    """Return the grants of the one question with this id, or its beginning. Raises NotFound and InvalidArguments."""
    id = parse_id(typed)
    chosen = [(entry, each) for entry, each in found if id and each.id.startswith(id)]
    ids = sorted({each.id for _, each in chosen})
    if not chosen:
        raise NotFound("approval", typed, hint="`dynamic-mcp approve grants` lists them")
    if len(ids) > 1:
        raise InvalidArguments(f"several approvals begin with `{id}`: {', '.join(ids)}")
    return chosen


async def _list(store: SharedStore) -> _Listed:
    found = [(entry, entry.read(SharedGrant)) for entry in await store.list_entries(GRANTS)]
    known = [(entry, each) for entry, each in found if each is not None]
    return sorted(known, key=lambda each: (each[1].given, each[1].id))


def _with_store(context: Invocation, work: Callable[[SharedStore], Awaitable[T]]) -> T:
    """Use the store of the config. Raises DynamicMcpError."""
    config = context.read_config()
    if not has_shared_store(config):
        raise DynamicMcpError(
            f"`{config.file}` has no `settings.cluster.store`",
            hint="without one, each proxy keeps what was allowed, until it ends or its rules change",
        )
    return run(_use_store(config, work))


async def _use_store(config: Config, work: Callable[[SharedStore], Awaitable[T]]) -> T:
    try:
        async with using_shared_store(config) as store:
            return await work(store)
    except StoreUnavailable as exc:
        raise DynamicMcpError(str(exc), hint="`dynamic-mcp cluster check` says more") from exc


def _to_json(grant: SharedGrant, now: float) -> dict[str, object]:
    return {
        "id": grant.id,
        "subject": grant.principal.subject,
        "issuer": grant.principal.issuer,
        "group": grant.group,
        "kind": grant.kind,
        "name": grant.name,
        "verdict": "allow" if grant.verdict.is_allowed else "deny",
        "scope": grant.scope,
        "by": grant.by,
        "edited": bool(grant.arguments),
        "given": grant.given,
        "expires_in_s": round(grant.until - now, 1),
    }


def _to_row(grant: SharedGrant, now: float) -> list[str]:
    who = "you" if grant.principal == LOCAL else grant.principal.subject
    decision = "allowed" if grant.verdict.is_allowed else "denied"
    how_long = "one call" if grant.is_single else grant.scope
    left = format_seconds(max(grant.until - now, 0.0))
    return [
        grant.id,
        reveal(who),
        reveal(grant.group),
        reveal(grant.name),
        decision,
        how_long,
        reveal(grant.by),
        left,
    ]
