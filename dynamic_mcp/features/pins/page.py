"""The section of the page with definitions that are held back, and what has changed in them.

Exactly what was shown is approved: each form has the fingerprints of its definitions, and others are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from dynamic_mcp.config.resolved import Pinning
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.features.pins.approval import CHANGED, ApprovalOutcome, approve, event_of_approval
from dynamic_mcp.features.pins.comparison import ServerComparison, compare_all, read_lock
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.differences import MOVED, diff_of, is_plain
from dynamic_mcp.features.pins.judgement import Difference, title_of
from dynamic_mcp.features.pins.lock_file import PinSet, find_lock_file
from dynamic_mcp.features.pins.service import DefinitionGate
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.system.blank import reveal
from dynamic_mcp.system.file_store import stamp_of
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.system.text import one_line, pluralize
from dynamic_mcp.ui.memo import Memo
from dynamic_mcp.ui.section import Need, PageRedirect, PageSection, PageView, Reply, UiContext, Visit, find_page

_PER_PAGE, _SERVERS_PER_PAGE = 10, 50
# The bytes of HTML for the lines of all differences of a page, of one of them, and of one with a page of its own.
_MOST_BYTES, _MOST_OF_ONE, _MOST_ALONE = 30_000, 8_000, 36_000
_BYTES_AROUND_LINE = 75
_LONGEST_LINE = 1500
_MOST_NEEDS = 8
_LINE_KINDS = {"+": ("add", "added"), "-": ("del", "removed"), "@": ("at", "at")}


class DiffLine(Struct, frozen=True):
    """A line of a difference: its sign, the class that colours it, what a screen reader says of it, and its text."""

    sign: str
    kind: str
    spoken: str
    text: str


class ShownDifference(Struct, frozen=True):
    """A difference as the page shows it. `more` is the number of lines that are left out here."""

    title: str
    digest: str
    is_new: bool
    held: str
    note: str
    lines: tuple[DiffLine, ...]
    more: int


class ServerRow(Struct, frozen=True):
    """A server in the list: its counts of differences, and whether it runs something else than what was pinned."""

    name: str
    policy: str
    version: str
    held: int
    changed: int
    new: int
    gone: int
    is_known: bool
    is_moved: bool


def list_sections() -> list[type[PageSection]]:
    """Return the sections of this feature."""
    return [PinsSection]


class PinsSection(PageSection):
    """What servers say that is not approved. It is for operators, where the config pins definitions."""

    name = "pins"
    title = "Pins"
    icon = "pins"
    rank = 70

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._lock: Memo[PinSet] = Memo()
        self._compared: dict[str, Memo[Sequence[ServerComparison]]] = {}

    def is_for(self, visit: Visit) -> bool:
        presentations = self.context.config.presentations.values()
        return visit.is_operator and any(each.pinning.policy != "trust" for each in presentations)

    def count(self, visit: Visit) -> int:
        return len({(group, key) for group, held in self._list_held() for key in held})

    def stamp(self, visit: Visit) -> Hashable:
        return frozenset((group, frozenset(held.items())) for group, held in self._list_held() if held)

    async def find_needs(self, visit: Visit) -> Sequence[Need]:
        held: dict[tuple[str, Key], str] = {}
        for group, found in self._list_held():
            held |= {(group, key): reason for key, reason in found.items()}
        if not held:
            return ()
        rows = [
            {"group": group, "title": reveal(title_of(key)), "reason": reveal(reason)}
            for (group, key), reason in [*held.items()][:_MOST_NEEDS]
        ]
        values = {"rows": rows, "count": len(held), "more": len(held) - len(rows)}
        return [Need(80, "need_held.html", values)]

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        match rest:
            case ():
                return await self._show_servers(visit)
            case (server,):
                return await self._show_server(server, visit)
            case (server, digest):
                return await self._show_one(server, digest)
            case (server, digest, "text"):
                return await self._send_text(server, digest)
        return None

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        """Approve what has this `digest`, one definition of a server or all: `approve/SERVER`."""
        if len(rest) != 2 or rest[0] != "approve":
            return None
        server, back = rest[1], f"pins/{quote(rest[1], safe='')}"
        chosen = _find(await self._compare_one(server), visit.form.get("digest", ""))
        if not chosen:
            return PageRedirect(
                back, f"Nothing was approved: it {CHANGED}. This is what there is now.", is_error=True
            )
        return PageRedirect(back, *await self._approve(visit, server, chosen))

    async def _approve(
        self, visit: Visit, server: str, chosen: Sequence[tuple[ServerComparison, Difference]]
    ) -> tuple[str, bool]:
        """Approve definitions; return what to say of that, and whether something was refused."""
        by = os_user() if visit.authentication.is_local else visit.authentication.principal.subject
        by_comparison: dict[int, tuple[ServerComparison, list[Difference]]] = {}
        for comparison, difference in chosen:
            by_comparison.setdefault(id(comparison), (comparison, []))[1].append(difference)
        file = find_lock_file(self.context.config)
        outcome = await asyncio.to_thread(approve, file, [*by_comparison.values()], by=by, offered={})
        for comparison, differences in outcome.approved:
            self.note(visit, "definitions.approved", event_of_approval(comparison, differences))
        for gate in self._gates():
            if gate.group.name == server:
                gate.take_up_approvals()
        await asyncio.sleep(0)
        return _describe(outcome, server)

    # --- pages -----------------------------------------------------------------------------------------

    async def _show_servers(self, visit: Visit) -> PageView:
        found, wanted = await self._compare(None), visit.query.get("q", "")
        rows = [_row(name, each) for name, each in found.items() if wanted.lower() in name.lower()]
        rows.sort(key=lambda row: (not row.held, not (row.changed or row.new), row.name))
        pages = max(-(-len(rows) // _SERVERS_PER_PAGE), 1)
        page = find_page(visit, pages)
        values = {
            "rows": rows[(page - 1) * _SERVERS_PER_PAGE : page * _SERVERS_PER_PAGE],
            "page": page,
            "pages": pages,
            "q": wanted,
            "is_long": len(found) > _SERVERS_PER_PAGE,
            "lock_file": str(find_lock_file(self.context.config)),
        }
        return PageView("pins.html", "Pins", values)

    async def _show_server(self, server: str, visit: Visit) -> PageView:
        found = await self._compare_one(server)
        differences = [each for _, each in _differences_of(found)]
        pages = max(-(-len(differences) // _PER_PAGE), 1)
        page = find_page(visit, pages)
        shown = differences[(page - 1) * _PER_PAGE : page * _PER_PAGE]
        entries = await self.context.turns.run_apart(_show_differences, shown, _MOST_BYTES, _MOST_OF_ONE)
        values = {
            "row": _row(server, found),
            "entries": entries,
            "total": len(differences),
            "page": page,
            "pages": pages,
            "digest": _digest_of(differences),
            "moved": MOVED,
            "gone": [reveal(title_of(key)) for each in found for key in each.gone][:50],
            "error": next((str(each.error) for each in found if each.error is not None), ""),
        }
        return PageView("pins_server.html", server, values)

    async def _show_one(self, server: str, digest: str) -> PageView | None:
        difference = await self._find_one(server, digest)
        (entry,) = await self.context.turns.run_apart(_show_differences, [difference], _MOST_ALONE, _MOST_ALONE)
        return PageView("pins_one.html", entry.title, {"server": server, "entry": entry})

    async def _send_text(self, server: str, digest: str) -> Response:
        """Send a whole difference as a file."""
        difference = await self._find_one(server, digest)
        lines = await self.context.turns.run_apart(diff_of, difference)
        text = "\n".join(f"{line[:1]} {line[1:]}" for line in lines)
        kind = (b"content-type", b"text/plain; charset=utf-8")
        name = (b"content-disposition", f'attachment; filename="definition-{digest[:12]}.txt"'.encode())
        return Response(200, (kind, name), text.encode("utf-8", "replace"))

    async def _find_one(self, server: str, digest: str) -> Difference:
        chosen = _find(await self._compare_one(server), digest)
        if len(chosen) != 1:
            hint = "it was approved or has changed meanwhile; the page of its server has what there is now"
            raise DynamicMcpError(f"`{server}` has no such difference any more", hint=hint)
        return chosen[0][1]

    # --- what there is ---------------------------------------------------------------------------------

    def _gates(self) -> Iterator[DefinitionGate]:
        for group in self.context.proxy.groups:
            gate = group.admission.gate
            if isinstance(gate, DefinitionGate):
                yield gate

    def _list_held(self) -> Iterator[tuple[str, Mapping[Key, str]]]:
        for gate in self._gates():
            yield gate.group.name, gate.held

    async def _compare_one(self, server: str) -> Sequence[ServerComparison]:
        found = await self._compare(server)
        if server not in found:
            raise NotFound("server with pins", server, found)
        return found[server]

    async def _compare(self, server: str | None) -> Mapping[str, Sequence[ServerComparison]]:
        """Compare one server, or all that are pinned: each as it is for each of those who have one of their own."""
        config = self.context.config
        catalogs: dict[str, list[Catalog]] = {
            name: []
            for name, each in config.presentations.items()
            if each.pinning.policy != "trust" and server in (None, name)
        }
        for group in self.context.proxy.groups:
            if group.name in catalogs and group.catalog is not None:
                catalogs[group.name].append(group.catalog)
        pinnings = {name: config.presentations[name].pinning for name in catalogs}
        self._compared = {name: memo for name, memo in self._compared.items() if name in config.presentations}
        return await self.context.turns.run_apart(self._compare_all, find_lock_file(config), pinnings, catalogs)

    def _compare_all(
        self, file: Path, pinnings: Mapping[str, Pinning], catalogs: Mapping[str, Sequence[Catalog]]
    ) -> Mapping[str, Sequence[ServerComparison]]:
        """Compare servers with their pins, each once for each catalog that it has. Raises DynamicMcpError."""
        stamp = stamp_of(file)
        lock = self._lock.find((), (file, stamp), lambda: read_lock(file))
        found: dict[str, Sequence[ServerComparison]] = {}
        for name, pinning in pinnings.items():
            memo = self._compared.setdefault(name, Memo())
            compare = partial(_compare_one, name, pinning, lock, catalogs[name])
            found[name] = memo.find((lock.servers.get(name), *catalogs[name]), (file, pinning), compare)
        return found


def _differences_of(found: Sequence[ServerComparison]) -> list[tuple[ServerComparison, Difference]]:
    """Return the differences of a server, the held ones first, and each once."""
    seen = dict[tuple[Key, str], tuple[ServerComparison, Difference]]()
    for comparison in found:
        for each in comparison.differences:
            seen.setdefault((each.key, each.pin.hash), (comparison, each))
    return sorted(seen.values(), key=lambda each: (not each[1].held, is_plain(each[1])))


def _row(name: str, found: Sequence[ServerComparison]) -> ServerRow:
    differences = [each for _, each in _differences_of(found)]
    return ServerRow(
        name,
        found[0].pinning.policy,
        one_line(reveal(found[0].version)),
        held=sum(bool(each.held) for each in differences),
        changed=sum(each.before is not None for each in differences),
        new=sum(each.before is None for each in differences),
        gone=len({key for each in found for key in each.gone}),
        is_known=any(each.catalog is not None for each in found),
        is_moved=any(each.is_moved for each in found),
    )


def _show_differences(
    differences: Sequence[Difference], most_bytes: int, most_of_one: int
) -> Sequence[ShownDifference]:
    """Show differences, each with as many lines as there is room for."""
    entries = list[ShownDifference]()
    for each in differences:
        left = before = min(most_bytes, most_of_one)
        lines, shown = diff_of(each), list[DiffLine]()
        for line in lines:
            text = line[1:] if len(line) <= _LONGEST_LINE else f"{line[1:_LONGEST_LINE]}…"
            size = len(escape(text).encode("utf-8", "replace")) + _BYTES_AROUND_LINE
            if size > left:
                break
            left -= size
            shown.append(DiffLine(line[0], *_LINE_KINDS.get(line[0], ("same", "")), text))
        most_bytes -= before - left
        entries.append(_describe_difference(each, tuple(shown), len(lines) - len(shown)))
    return entries


def _describe_difference(difference: Difference, lines: tuple[DiffLine, ...], more: int) -> ShownDifference:
    return ShownDifference(
        reveal(difference.title),
        _digest_of([difference]),
        difference.before is None,
        reveal(difference.held),
        reveal(difference.note) if difference.note != difference.held else "",
        lines,
        more,
    )


def _compare_one(
    name: str, pinning: Pinning, lock: PinSet, catalogs: Sequence[Catalog]
) -> Sequence[ServerComparison]:
    """Compare one server with its pins, once for each catalog that it has."""
    different = list[Catalog]()
    for each in catalogs:
        if each not in different:
            different.append(each)
    offered: list[Mapping[str, Catalog]] = [{name: each} for each in different] or [{}]
    return [each for one in offered for each in compare_all({name: pinning}, lock, one)]


def _find(found: Sequence[ServerComparison], digest: str) -> list[tuple[ServerComparison, Difference]]:
    """Return all differences of a server if the digest is theirs, or the one that it is of."""
    differences = _differences_of(found)
    if digest == _digest_of([each for _, each in differences]):
        return differences
    return [each for each in differences if digest == _digest_of([each[1]])]


def _digest_of(differences: Sequence[Difference]) -> str:
    """Return what identifies exactly these definitions."""
    texts = sorted(f"{each.key[0].name} {each.pin.hash} {each.key[1]}" for each in differences)
    return sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _describe(outcome: ApprovalOutcome, server: str) -> tuple[str, bool]:
    """Return in words what was approved, and whether something was refused."""
    approved = sum(len(differences) for _, differences in outcome.approved)
    text = f"Approved: {pluralize(approved, 'definition')} of {server}." if approved else "Nothing was approved."
    refused = [f"{one_line(reveal(each.title))} {reason}" for _, each, reason in outcome.refused]
    more = f" and {len(refused) - _MOST_NEEDS} more" if len(refused) > _MOST_NEEDS else ""
    return (f"{text} Not approved: {'; '.join(refused[:_MOST_NEEDS])}{more}." if refused else text), bool(refused)
