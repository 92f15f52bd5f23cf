"""Lists of all groups as one: in config order, paged, never emptied by one group, and saying what is missing."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View

# A list waits for groups that are about to tell what they have, but not for long.
WAIT_S = 2.0
PAGE_ENTRIES = 1000
# How many entries of a page are renamed before others have their turn.
_RENAMED_AT_ONCE = 100
MISSING = "dynamic-mcp/missing"

# A group's entry under its key there.
Item = tuple[GroupView, str, Raw]
# Gives entries their place in the common list: what is listed for each.
Rename = Callable[[list[Item]], list[Raw]]


async def answer_list(request: Request, kind: ListKind, rename: Rename, *, by_page: bool = False) -> Frame:
    """Answer a list request: one group's entries where `group` names one, else those of all.

    `by_page`: only the entries of the page are given to `rename`, which needs no others.
    """
    params = wire.members(request.params) if len(request.params) else {}
    chosen = _choose(request.view, kind, wire.text(params.get("group")))
    start = offset(params.get("cursor", wire.NULL))
    await learn(request.client, chosen, [kind], WAIT_S)
    items = [(group, key, entry) for group in chosen for key, entry in _entries(group, kind)]
    result = page(kind, items if by_page else rename(items), start, _rest(chosen, kind))
    if by_page:
        result[kind.member] = await _rename_in_turns(rename, items[start : start + PAGE_ENTRIES])
    return wire.result_frame(result)


async def _rename_in_turns(rename: Rename, items: list[Item]) -> list[Raw]:
    renamed: list[Raw] = []
    for at in range(0, len(items), _RENAMED_AT_ONCE):
        if at:
            await asyncio.sleep(0)
        renamed += rename(items[at : at + _RENAMED_AT_ONCE])
    return renamed


def page(kind: ListKind, entries: Sequence[object], start: int, rest: Mapping[str, object]) -> dict[str, object]:
    """Return the page of a list that begins at `start`. Raises Malformed."""
    return page_of(kind.member, entries, start, rest)


def page_of(member: str, entries: Sequence[object], start: int, rest: Mapping[str, object]) -> dict[str, object]:
    """Return the page of a result's member that begins at `start`. Raises Malformed."""
    if start > len(entries):
        raise wire.Malformed("the cursor is not one of this list, or the list has changed: begin again")
    result: dict[str, object] = {member: entries[start : start + PAGE_ENTRIES], **rest}
    if start + PAGE_ENTRIES < len(entries):
        result["nextCursor"] = cursor_after(start)
    return result


def cursor_after(start: int) -> str:
    """Return the cursor of the page after the one that begins at `start`."""
    return urlsafe_b64encode(b"%d" % (start + PAGE_ENTRIES)).decode()


async def learn(client: Client, groups: Iterable[GroupView], kinds: Iterable[ListKind], within_s: float) -> None:
    """Wait until these lists of the groups are known, but not for groups that are down, nor longer than this.

    A group that has been asked for them that long already is not waited for again.
    """
    patience_s = {
        group: within_s - group.group.wanted_for_s()
        for group in groups
        if not group.is_down and not (group.catalog and group.catalog.knows(kinds))
    }
    waiting = [
        asyncio.ensure_future(group.learn_catalog(client, kinds))
        for group, left_s in patience_s.items()
        if left_s > 0
    ]
    if waiting:
        try:
            done, _ = await asyncio.wait(waiting, timeout=max(patience_s.values()))
        finally:
            for task in waiting:
                task.cancel()
        for task in done:
            if not isinstance(task.exception(), DynamicMcpError | None):
                task.result()


def _choose(view: View, kind: ListKind, name: str | None) -> list[GroupView]:
    if name is not None:
        return [view.group(name, kind.capability)]
    groups = view.offering(kind.capability)
    if not kind.extension:
        return groups
    return [group for group in groups if group.catalog is None or group.catalog.declares(kind)]


def _entries(group: GroupView, kind: ListKind) -> Iterator[tuple[str, Raw]]:
    return iter(group.catalog.entries(kind).items() if group.catalog else ())


def with_missing(rest: Mapping[str, Raw], missing: Mapping[str, str]) -> dict[str, object]:
    """Return a list's other members, and in their `_meta` which groups are missing and why."""
    if not missing:
        return dict(rest)
    meta = wire.members(rest["_meta"]) if "_meta" in rest and _is_object(rest["_meta"]) else {}
    return {**rest, "_meta": {**meta, MISSING: missing}}


def _rest(groups: list[GroupView], kind: ListKind) -> dict[str, object]:
    """Return the lists' other members, the first group's where two have one, and what is missing."""
    rest: dict[str, Raw] = {}
    for group in reversed(groups):
        listing = group.catalog.lists.get(kind) if group.catalog else None
        rest |= listing.rest if listing else {}
    missing = {group.name: complaint for group in groups if (complaint := group.complaint([kind]))}
    return with_missing(rest, missing)


def _is_object(data: Raw) -> bool:
    return bytes(data).startswith(b"{")


def offset(cursor: Raw) -> int:
    """Return where the page of a cursor begins. Raises InvalidArguments."""
    if bytes(cursor) == b"null":
        return 0
    try:
        found = int(urlsafe_b64decode((wire.text(cursor) or "").encode()))
    except ValueError:
        found = -1
    if found < 0:
        raise InvalidArguments("the cursor is not one of this list", hint="begin again without one")
    return found
