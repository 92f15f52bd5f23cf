"""Holds back what servers say of themselves that has changed, or looks dangerous, until somebody approves it.

Each catalog is judged once, before anything of it is shown or called; a request costs one comparison of identities.
A large one is judged in a thread: until then it is not known, or stays what it was. Everybody's groups of one name
share their pins, so a server that says other things to other people is not new each time. What was found of one
update is one line of the log and one event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from weakref import WeakSet

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.errors import DefinitionHeld
from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.features.pins.judgement import Fingerprints, PinJudgement, Reason, is_large, judge
from dynamic_mcp.features.pins.lock_file import PinnedServer, find_lock_file
from dynamic_mcp.features.pins.pin_book import Acceptance, PinBook
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import uri_template, wire
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.proxy.gates import GateContext, GateService
from dynamic_mcp.proxy.request import Event
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import one_line, pluralize
from dynamic_mcp.system.workers import Workers

log = logging.getLogger(__name__)

_MAX_TOLD = 10_000
# The names that one line of the log, and one event, have at most.
_MAX_NAMED = 10
# What a definition has to be known of before it is used.
_CALLED = frozenset((PinKind.TOOL, PinKind.PROMPT))
_INSTRUCTIONS = (PinKind.INSTRUCTIONS, "")
_ABOUT_DEFINITIONS = frozenset(
    ("tools/call", "prompts/get", "completion/complete", "resources/read", "resources/subscribe")
)


def make_service(config: Config, context: GateContext) -> Definitions:
    """Return what makes the gates of a proxy."""
    return Definitions(config, context)


class Definitions(GateService):
    """The gates of all groups whose definitions are pinned, and the pins that they share."""

    def __init__(self, config: Config, context: GateContext) -> None:
        self._note = context.note
        self.announce = context.announce
        self._gates: WeakSet[DefinitionGate] = WeakSet()  # each is kept by its group
        self._told: dict[str, set[str]] = {}
        self._fingerprints, self._fingerprints_apart = Fingerprints(), Fingerprints()
        self._workers = Workers("definitions", count=1)
        self._tasks = TaskSet(log)
        self.book = self._open(config)

    def make_gate(self, group: Group, pinning: Pinning) -> DefinitionGate:
        """Return what holds back definitions of a group as this says."""
        gate = DefinitionGate(group, pinning, self)
        self._gates.add(gate)
        return gate

    def apply(self, config: Config) -> None:
        """Use the lock file of another config from now on."""
        if find_lock_file(config) != self.book.path:
            self.book.watch(is_wanted=False)
            self.book = self._open(config)
            self._renew(is_other_file=True)

    async def close(self) -> None:
        """Write what is not written yet."""
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self.book.close()

    def refresh(self) -> None:
        """Read the pins if they are others; then what is held of other servers may have been approved, too."""
        if self.book.refresh() and any(gate.is_current and gate.held for gate in self._gates):
            asyncio.get_running_loop().call_soon(self._renew)

    def compare(self, gate: DefinitionGate, whole: Catalog, pinned: PinnedServer | None) -> PinJudgement:
        """Compare what a server offers with what is pinned of it."""
        return self._comparison(gate, whole, pinned, self._fingerprints)()

    async def compare_apart(self, gate: DefinitionGate, whole: Catalog, pinned: PinnedServer | None) -> PinJudgement:
        """Do the same in a thread, which has fingerprints of its own."""
        return await self._workers.run(self._comparison(gate, whole, pinned, self._fingerprints_apart))

    def start(self, gate: DefinitionGate) -> asyncio.Task[None]:
        """Have a gate judge in a thread."""
        return self._tasks.create(gate.judge_apart(), name=f"definitions of group {gate.group.name}")

    def watch(self) -> None:
        """Look out for approvals as long as something is held."""
        self.book.watch(is_wanted=any(gate.is_current and gate.held for gate in self._gates))

    def tell(self, group: Group, news: News) -> None:
        """Log an update of a server, and note it; what was told of it before is not told again."""
        told = self._told.setdefault(group.name, set())
        news = news.without(told)
        if not news.marks:
            return
        if len(told) > _MAX_TOLD:
            told.clear()
        told |= news.marks
        severity = logging.WARNING if news.is_alarming else logging.INFO
        group_logger(log, group.name).log(severity, "%s", news.describe(group.name))
        self._note(Event("definitions.changed", {"group": group.name, **news.members()}))

    def _open(self, config: Config) -> PinBook:
        return PinBook(find_lock_file(config), self._renew, is_own=config.lock_file is None)

    def _comparison(
        self, gate: DefinitionGate, whole: Catalog, pinned: PinnedServer | None, fingerprints: Fingerprints
    ) -> Callable[[], PinJudgement]:
        return partial(
            judge,
            pinned,
            whole,
            gate.pinning.policy,
            today=datetime.now(UTC).date().isoformat(),
            foreign=self._names_beside(gate.group),
            fingerprints=fingerprints,
        )

    def _names_beside(self, group: Group) -> Sequence[Collection[str]]:
        """Return the names of the tools of each other server."""
        others = (gate.group.known for gate in self._gates if gate.group.name != group.name)
        return [known.tools for known in others if known is not None]

    def _renew(self, *, is_other_file: bool = False) -> None:
        """Judge everything once more, because the pins are others."""
        for gate in [*self._gates]:
            if gate.is_current and gate.renew(is_other_file=is_other_file):
                self.announce(gate.group)


class DefinitionGate:
    """Holds back definitions of one group."""

    def __init__(self, group: Group, pinning: Pinning, definitions: Definitions) -> None:
        self.pinning = pinning
        self.held: Mapping[Key, Reason] = {}
        self.group = group
        self._definitions = definitions
        self._whole: Catalog | None = None
        self._admitted: Catalog | None = None
        self._unread: frozenset[PinKind] = frozenset()
        self._lists: dict[ListKind, tuple[Listing, Listing]] = {}
        self._apart: tuple[Catalog, bool] | None = None  # the last that a thread is to judge
        self._judging: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the group still has this gate."""
        return self.group.admission.gate is self

    # --- Gate ------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back of what the group is known to offer: `check` lets every request pass."""
        return not self.held and not self._unread and self.group.known is self._whole

    @property
    def is_behind(self) -> bool:
        """Whether the group is known to offer something that is not judged yet."""
        known = self.group.known
        return known is not self._whole and known is not None

    async def catch_up(self) -> None:
        """Judge what the group is known to offer now, unless it changes faster than that goes."""
        for _ in range(2):  # a thread may have begun with what came before
            known = self.group.known
            if known is None or known is self._whole:
                return
            self.admit(known)
            if self._judging is not None:
                await asyncio.wait([self._judging])

    def admit(self, whole: Catalog) -> Catalog | None:
        """Return a catalog without what is held back; as long as nothing changes, the same object."""
        if whole is not self._whole and (self._apart is None or whole is not self._apart[0]):
            self._judge(whole, accepts=True)
        return self._admitted

    async def admit_hello(self, said: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return what an upstream says of itself, without instructions that are held back."""
        text = wire.text(said.get("instructions")) or ""
        title = wire.text(wire.member(said.get("serverInfo", wire.EMPTY_OBJECT), "title")) or ""
        if not text and not title:
            return said
        self._definitions.refresh()
        pinned = self._pinned(self._definitions.book.find(self.group.name))
        whole = Catalog(instructions=text, title=title)
        compare = self._definitions.compare
        judgement = (
            await self._definitions.compare_apart(self, whole, pinned)
            if is_large(whole)
            else compare(self, whole, pinned)
        )
        return _without_instructions(said) if judgement.held else said

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Let a request pass that is sent now. Raises DefinitionHeld if it is about something that is held back."""
        known = self.group.known
        if known is not self._whole and known is not None:
            self.admit(known)
            if known is not self._whole and method in _ABOUT_DEFINITIONS:
                reason = "what the server says has changed, and is still being compared"
                raise self._refusal(f"`{one_line(shown or method)}`", reason)
        if self.held and params:
            for key in _targets(method, params, self.held):
                self._refuse(key, shown)
        if self._unread and params:
            for key in _targets(method, params, ()):
                self._refuse_unread(key, shown)

    # --- the rest --------------------------------------------------------------------------------------

    def _refuse(self, key: Key, shown: str) -> None:
        reason = self.held.get(key)
        if reason is not None:
            kind, name = key
            raise self._refusal(f"the {kind.noun} `{one_line(shown or name)}`", reason.text)

    def _refuse_unread(self, key: Key, shown: str) -> None:
        """Refuse what the server has not described: without its definition, it cannot be judged."""
        kind, name = key
        if self._whole is None or kind.listed_as is None or kind not in self._unread:
            return
        if name not in self._whole.entries(kind.listed_as):
            why = self._whole.complaint([kind.listed_as]) or f"{kind.listed_as.method} is not answered yet"
            raise self._refusal(
                f"the {kind.noun} `{one_line(shown or name)}`",
                f"its definition is not known: {why}",
                hint="try again once the server lists it",
            )

    def _refusal(self, what: str, reason: str, *, hint: str = "") -> DefinitionHeld:
        name = self.group.name
        hint = hint or f"ask the user to run `dynamic-mcp pins diff {name}`, and to approve it there"
        return DefinitionHeld(what, name, reason, hint=hint)

    def renew(self, *, is_other_file: bool) -> bool:
        """Judge the same catalog by other pins; return whether something else is admitted already.

        Nothing is accepted by that, unless nothing is pinned of the server: what is not pinned then was refused by
        what others have pinned, or did not fit, and would be accepted and refused again without end.
        """
        before = self._admitted
        if self._whole is not None:
            accepts = is_other_file or self._definitions.book.find(self.group.name) is None
            if self._apart is None:
                self._judge(self._whole, accepts=accepts)
            else:  # by the pins of before
                self._apart = self._apart[0], self._apart[1] or accepts
        return self._admitted is not before

    def _judge(self, whole: Catalog, *, accepts: bool) -> None:
        """Judge a catalog, or have a thread do that."""
        if not is_large(whole):
            self._apart = None
            self._definitions.refresh()
            stored = self._definitions.book.find(self.group.name)
            judgement = self._definitions.compare(self, whole, self._pinned(stored))
            self._settle(whole, judgement, stored, accepts=accepts)
            return
        self._apart = whole, accepts
        if self._judging is None:
            self._judging = self._definitions.start(self)

    async def judge_apart(self) -> None:
        """Judge the last catalog that waits for that, without keeping anything else waiting."""
        assert self._apart is not None
        apart = whole, accepts = self._apart
        try:
            self._definitions.refresh()
            stored = self._definitions.book.find(self.group.name)
            judgement = await self._definitions.compare_apart(self, whole, self._pinned(stored))
            if self._apart is not None and self.is_current:  # else something small has come since
                before = self._admitted
                self._settle(whole, judgement, stored, accepts=accepts)
                if self._admitted is not before:
                    self._definitions.announce(self.group)
        except BaseException:
            self._judging = self._apart = None
            raise
        if self._apart is apart:
            self._judging = self._apart = None
        else:
            self._judging = self._definitions.start(self) if self._apart is not None else None

    def _settle(self, whole: Catalog, judgement: PinJudgement, stored: PinnedServer | None, *, accepts: bool) -> None:
        """Go by what was found about a catalog."""
        name, version, pinned = self.group.name, _version_of(whole), self._pinned(stored)
        is_same = whole is self._whole and judgement.held.keys() == self.held.keys()
        self.held, self._whole = judgement.held, whole
        self._unread = _find_unread(whole) if self.pinning.policy == "hold" else frozenset()
        if not is_same:
            self._admitted = self._without_held(whole)
            self.group.admission.renew()
        if accepts and (judgement.accepted or (stored is not None and pinned is None)):
            former = {key: _hash_of(pinned, key) for key in judgement.accepted}
            self._definitions.book.accept(Acceptance(name, self.pinning.source, version, judgement.accepted, former))
        if judgement.changes or judgement.additions:
            self._definitions.tell(self.group, News.of(stored, pinned, judgement, version))
        self._definitions.watch()

    def _pinned(self, stored: PinnedServer | None) -> PinnedServer | None:
        """Return what is pinned of what is run; of something else under the same name, nothing is."""
        return stored if stored is not None and stored.source == self.pinning.source else None

    # --- what is admitted ------------------------------------------------------------------------------

    def _without_held(self, whole: Catalog) -> Catalog:
        lists = {kind: self._without_held_entries(kind, listing) for kind, listing in whole.lists.items()}
        changed = {kind: listing for kind, listing in lists.items() if listing is not whole.lists[kind]}
        if _INSTRUCTIONS in self.held:
            hello = None if whole.hello is None else _without_instructions(whole.hello)
            whole = replace(whole, instructions="", title="", hello=hello)
        return whole.with_lists(changed) if changed else whole

    def _without_held_entries(self, kind: ListKind, listing: Listing) -> Listing:
        """Return a list without what is held; the same object, as long as it and what is held of it are the same."""
        held = {name for each, name in self.held if each.listed_as is kind}
        if held.isdisjoint(listing.entries):
            self._lists.pop(kind, None)
            return listing
        entries = {name: entry for name, entry in listing.entries.items() if name not in held}
        source, filtered = self._lists.get(kind, (None, None))
        if source is not listing or filtered is None or filtered.entries.keys() != entries.keys():
            filtered = replace(listing, entries=entries)
            self._lists[kind] = listing, filtered
        return filtered


def _find_unread(whole: Catalog) -> frozenset[PinKind]:
    """Return what a server may have of which it has not said, or could not say, how it is defined."""
    lists = {kind: whole.lists.get(kind.listed_as) for kind in PinKind if kind.listed_as and kind in _CALLED}
    return frozenset(kind for kind, listing in lists.items() if listing is None or listing.has_failed)


def _hash_of(pinned: PinnedServer | None, key: Key) -> str | None:
    pin = None if pinned is None else pinned.find(*key)
    return None if pin is None else pin.hash


def _without_instructions(said: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """Return what a server says of itself without instructions, and without a title, which is pinned with them."""
    kept = {name: value for name, value in said.items() if name != "instructions"}
    info = said.get("serverInfo", wire.EMPTY_OBJECT)
    if len(wire.member(info, "title")):
        members = {name: value for name, value in wire.members(info).items() if name != "title"}
        kept["serverInfo"] = Raw(wire.encode(members))
    return kept


def _version_of(whole: Catalog) -> str:
    """Return the version that a server says it has."""
    said = (whole.hello or {}).get("serverInfo", wire.EMPTY_OBJECT)
    return one_line(wire.text(wire.member(said, "version")) or "")


def _targets(method: str, params: Mapping[str, Raw], held: Iterable[Key]) -> Iterator[Key]:
    """Yield what a request is about."""
    match method:
        case "tools/call":
            yield PinKind.TOOL, wire.text(params.get("name")) or ""
        case "prompts/get":
            yield PinKind.PROMPT, wire.text(params.get("name")) or ""
        case "completion/complete":
            reference = params.get("ref", wire.EMPTY_OBJECT)
            yield PinKind.PROMPT, wire.text(wire.member(reference, "name")) or ""
            yield PinKind.TEMPLATE, wire.text(wire.member(reference, "uri")) or ""
        case "resources/read" | "resources/subscribe":
            templates = [key for key in held if key[0] is PinKind.TEMPLATE]
            if templates:
                yield from _find_templates(templates, wire.text(params.get("uri")) or "")


def _find_templates(templates: Iterable[Key], uri: str) -> Iterator[Key]:
    """Yield the templates that a reading of a URI may come from: all for one that cannot be judged."""
    from dynamic_mcp.policy.arguments import ConditionError
    from dynamic_mcp.policy.uris import variants

    try:
        readings = variants(uri)
    except ConditionError:
        yield from templates
        return
    for key in templates:
        if any(uri_template.matches(key[1], reading) for reading in readings):
            yield key


# --- what is told of it -------------------------------------------------------------------------------------


class NewsItem(Struct, frozen=True):
    """One definition that there is news of: its name in words, and what happened to it.

    `mark` tells this news from all other.
    """

    name: str
    mark: str
    is_change: bool = False
    is_cosmetic: bool = False
    is_held: bool = False
    is_unpinned: bool = False
    finding: str = ""


class News(Struct, frozen=True):
    """What a judgement says that is new.

    `is_baseline` tells that something else is run under the name than before. What is seen for the first time of its
    kind is no news by itself.
    """

    versions: str
    is_baseline: bool
    items: tuple[NewsItem, ...]

    @classmethod
    def of(
        cls, stored: PinnedServer | None, pinned: PinnedServer | None, judgement: PinJudgement, version: str
    ) -> News:
        """Return the news of a server, of which `pinned` counts and `stored` is in the lock file."""
        is_baseline = stored is not None and pinned is None
        before = "" if pinned is None else pinned.version
        versions = f" {before} -> {version}" if before and version and before != version else ""
        added = [key for key in judgement.additions if _is_news(key, pinned, judgement)]
        changes = {(each.kind, each.name): each for each in judgement.changes}
        items: list[NewsItem] = []
        for key in (*changes, *added):
            change, findings = changes.get(key), judgement.findings.get(key, ())
            item = NewsItem(
                _name(key),
                f"{key[0].name} {key[1]} {'' if change is None else change.hash}",
                is_change=change is not None,
                is_cosmetic=change is not None and change.is_cosmetic,
                is_held=key in judgement.held,
                is_unpinned=key in judgement.unpinned,
                finding=findings[0].text if findings else "",
            )
            items.append(item)
        return cls(versions, is_baseline, tuple(items))

    @property
    def marks(self) -> frozenset[str]:
        """What tells this news from all other."""
        return frozenset((*(item.mark for item in self.items), *(("baseline",) if self.is_baseline else ())))

    def without(self, told: Collection[str]) -> News:
        """Return the news without what was told before."""
        items = tuple(item for item in self.items if item.mark not in told)
        return News(self.versions, self.is_baseline and "baseline" not in told, items)

    @property
    def is_alarming(self) -> bool:
        """Whether somebody should look at it."""
        return self.is_baseline or any(
            item.is_held or item.finding or (item.is_change and not item.is_cosmetic) for item in self.items
        )

    def describe(self, group: str) -> str:
        """Return it as one line of a log."""
        changed = sum(item.is_change for item in self.items)
        added = len(self.items) - changed
        counts = [f"{pluralize(changed, 'definition')} changed"] if changed else []
        counts += [f"{added} new"] if added else []
        parts = ["something else is run under this name now, and its definitions are the new baseline"]
        parts = [*(parts if self.is_baseline else []), *([", ".join(counts)] if counts else [])]
        unpinned = sum(item.is_unpinned for item in self.items)
        parts += [f"{unpinned} not pinned, as there are too many"] if unpinned else []
        held = [item.name for item in self.items if item.is_held]
        suspicious = [f"{item.name} ({item.finding})" for item in self.items if item.finding and not item.is_held]
        parts += [f"held: {_join(held)}"] if held else []
        parts += [f"suspicious: {_join(suspicious)}"] if suspicious else []
        command = "diff" if changed or held else "status"
        return f"group {group}{self.versions}: {'; '.join(parts)}; run `dynamic-mcp pins {command} {group}`"

    def members(self) -> Mapping[str, object]:
        """Return it as the details of an event."""
        named = {
            "changed": [item.name for item in self.items if item.is_change],
            "added": [item.name for item in self.items if not item.is_change],
            "held": [item.name for item in self.items if item.is_held],
            "suspicious": [item.name for item in self.items if item.finding],
        }
        found: dict[str, object] = {name: each[:_MAX_NAMED] for name, each in named.items() if each}
        return {**found, "baseline": "new"} if self.is_baseline else found


def _is_news(key: Key, pinned: PinnedServer | None, judgement: PinJudgement) -> bool:
    """Tell whether an addition is worth a word: one beside what was known, or one that looks dangerous."""
    is_beside = pinned is not None and bool(pinned.pins(key[0]))
    return is_beside or key in judgement.held or key in judgement.findings


def _name(key: Key) -> str:
    kind, name = key
    match kind:
        case PinKind.TOOL:
            return f"`{one_line(name)}`"
        case PinKind.INSTRUCTIONS:
            return kind.noun
    return f"{kind.noun} `{one_line(name)}`"


def _join(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
