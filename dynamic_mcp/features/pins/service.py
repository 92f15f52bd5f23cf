"""Holds back definitions of servers that have changed or look dangerous, until a user approves them.

Each catalog is judged once, before any of it is shown or called; a request costs one comparison of identities.
A large catalog is judged in a thread: until then it is unknown, or the previous one is used. All groups of one name
share their pins, so a server that describes a tool differently to each user is not new each time. The findings of
one update are one log line and one event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.errors import DefinitionHeld
from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.features.pins.judgement import Difference, PinJudgement, is_large, judge
from dynamic_mcp.features.pins.lock_file import PinnedServer, find_lock_file, pins_of_source
from dynamic_mcp.features.pins.pin_book import Acceptance, PinBook
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.proxy.gates import GateContext, GateService
from dynamic_mcp.proxy.request import Event
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import one_line, pluralize

if TYPE_CHECKING:  # loaded with a store, and with a large catalog
    from dynamic_mcp.features.pins.shared import SharedPins
    from dynamic_mcp.system.shared_store import SharedStore
    from dynamic_mcp.system.workers import Workers

log = logging.getLogger(__name__)

_MAX_REPORTED = 10_000
# The most names in one log line and in one event.
_MAX_NAMED = 10
# The kinds whose definitions must be known before they are used.
_CALLED = frozenset((PinKind.TOOL, PinKind.PROMPT))
_INSTRUCTIONS = (PinKind.INSTRUCTIONS, "")
_ABOUT_DEFINITIONS = frozenset(
    (
        *("tools/call", "prompts/get", "completion/complete"),
        *("resources/read", "resources/subscribe", "resources/directory/read", "skills/get"),
    )
)


def make_service(config: Config, context: GateContext) -> PinService:
    """Return the service that makes the gates of a proxy."""
    return PinService(config, context)


class PinService(GateService):
    """The gates of all groups whose definitions are pinned, and the pins that they share."""

    def __init__(self, config: Config, context: GateContext) -> None:
        self._note = context.note
        self.announce = context.announce
        self._gates: WeakSet[DefinitionGate] = WeakSet()  # each gate is owned by its group
        self._reported: dict[str, set[str]] = {}
        self._tasks = TaskSet(log)
        self.book = self._open(config)
        self._is_own = config.lock_file is None
        self._store: SharedStore | None = None
        self._shared: SharedPins | None = None

    def make_gate(self, group: Group, pinning: Pinning) -> DefinitionGate:
        gate = DefinitionGate(group, pinning, self)
        self._gates.add(gate)
        return gate

    def apply(self, config: Config) -> None:
        """Use the lock file of another config from now on."""
        if find_lock_file(config) != self.book.path:
            self.book.watch(is_wanted=False)
            self.book = self._open(config)
            self._is_own = config.lock_file is None
            self._share()
            self._renew(is_other_file=True)

    def share(self, store: SharedStore | None) -> None:
        self._store = store
        self._share()

    async def wait_for_shared(self, within_s: float) -> None:
        if self._shared is not None:
            await self._shared.wait(within_s)

    def _share(self) -> None:
        """Share the pins with other replicas; those in a file that the config names are the same for all anyway."""
        store = self._store if self._is_own else None
        if self._shared is not None and self._shared.store is not store:
            self._tasks.create(self._shared.close(), name="end of shared pins")
            self._shared = None
        if self._shared is None and store is not None:
            from dynamic_mcp.features.pins.shared import SharedPins

            self._shared = SharedPins(store, partial(self._renew, is_other_file=True))

    def find(self, server: str, source: str) -> PinnedServer | None:
        """Return the pins of a server, with those of other replicas if they are of this source."""
        own = self.book.find(server)
        if self._shared is None:
            return own
        pinned = self._shared.combine(server, source, own)
        if pinned is None and (own is None or own.source != source):
            return own
        if pinned != own:
            self.book.adopt(server, pinned)
        return pinned

    def complete(self, judgement: PinJudgement, pinned: PinnedServer | None) -> PinJudgement:
        """Return a judgement in which all is held while it is not known what other replicas have pinned."""
        if self._shared is None or self._shared.is_known or pinned is not None:
            return judgement
        held = "what is pinned of it is not known: the shared store does not answer"
        return PinJudgement(tuple(replace(each, held=each.held or held) for each in judgement.differences))

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self.book.close()

    def refresh(self) -> None:
        """Reread the pins if they have changed; definitions of other servers may then be approved, too."""
        if self.book.refresh() and (self._shared is not None or self._holds_any()):
            asyncio.get_running_loop().call_soon(self._renew)

    def _forget(self, forgotten: Mapping[str, PinnedServer]) -> None:
        """Forget at all replicas what was taken out of the file."""
        if self._shared is not None:
            for name, pinned in forgotten.items():
                self._shared.forget(name, pinned.source)

    async def judge_apart(self, pinned: PinnedServer | None, whole: Catalog, pinning: Pinning) -> PinJudgement:
        """Compare a server's definitions with its pins, in a thread."""
        return await self._thread.run(partial(judge, pinned, whole, pinning.policy))

    @cached_property
    def _thread(self) -> Workers:
        from dynamic_mcp.system.workers import Workers

        return Workers("definitions", count=1)

    def start(self, gate: DefinitionGate) -> asyncio.Task[None]:
        return self._tasks.create(gate.judge_apart(), name=f"definitions of group {gate.group.name}")

    def watch(self) -> None:
        self.book.watch(is_wanted=self._shared is not None or self._holds_any())

    def report(self, group: Group, report: PinReport) -> None:
        """Log and record an update of a server, without what was reported before."""
        reported = self._reported.setdefault(group.name, set())
        report = report.without(reported)
        if not report.marks:
            return
        if len(reported) > _MAX_REPORTED:
            reported.clear()
        reported |= report.marks
        severity = logging.WARNING if report.is_alarming else logging.INFO
        group_logger(log, group.name).log(severity, "%s", report.describe(group.name))
        self._note(Event("definitions.changed", {"group": group.name, **report.members()}))

    def _holds_any(self) -> bool:
        return any(gate.is_current and gate.held for gate in self._gates)

    def _open(self, config: Config) -> PinBook:
        path, is_own = find_lock_file(config), config.lock_file is None
        return PinBook(path, self._renew, is_own=is_own, on_forget=self._forget)

    def _renew(self, *, is_other_file: bool = False) -> None:
        """Judge all catalogs again, because the pins have changed."""
        for gate in [*self._gates]:
            if gate.is_current and gate.renew(is_other_file=is_other_file):
                self.announce(gate.group)


class DefinitionGate:
    """Holds back definitions of one group."""

    def __init__(self, group: Group, pinning: Pinning, service: PinService) -> None:
        self.group = group
        self.held: Mapping[Key, str] = {}
        self._pinning = pinning
        self._service = service
        self._whole: Catalog | None = None
        self._admitted: Catalog | None = None
        self._judged_by: PinnedServer | None = None
        self._unread: frozenset[PinKind] = frozenset()
        self._lists: dict[ListKind, tuple[Listing, Listing]] = {}
        self._apart: tuple[Catalog, bool] | None = None  # the latest catalog for a thread to judge
        self._judging: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        return self.group.admission.gate is self

    # --- Gate ------------------------------------------------------------------------------------------

    def holds_none(self, catalog: Catalog | None) -> bool:
        """Return whether nothing of the group's known catalog is held back: `check` lets every request pass."""
        return catalog is self._whole and not self.held and not self._unread

    @property
    def is_behind(self) -> bool:
        """True if the group has a catalog that is not judged yet."""
        catalog = self.group.catalog
        return catalog is not self._whole and catalog is not None

    async def catch_up(self) -> None:
        """Judge the group's current catalog, unless it changes faster than it can be judged."""
        for _ in range(2):  # a thread may have started with an earlier catalog
            catalog = self.group.catalog
            if catalog is None or catalog is self._whole:
                return
            self.admit(catalog)
            if self._judging is not None:
                await asyncio.wait([self._judging])

    def admit(self, whole: Catalog) -> Catalog | None:
        """Return a catalog without held definitions; while nothing changes, the same object."""
        if whole is not self._whole and (self._apart is None or whole is not self._apart[0]):
            self._judge(whole, accepts=True)
        return self._admitted

    async def admit_hello(self, hello: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return an upstream's answer to `initialize`, without held instructions."""
        text = wire.text(hello.get("instructions")) or ""
        title = wire.text(wire.member(hello.get("serverInfo", wire.EMPTY_OBJECT), "title")) or ""
        if not text and not title:
            return hello
        self._service.refresh()
        pinned, whole = self._pinned(self._stored), Catalog(instructions=text, title=title)
        if is_large(whole):
            judgement = await self._service.judge_apart(pinned, whole, self._pinning)
        else:
            judgement = judge(pinned, whole, self._pinning.policy)
        judgement = self._complete(judgement, pinned)
        return _without_instructions(hello) if judgement.held else hello

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Check a request before it is sent. Raises DefinitionHeld if its target is held back."""
        catalog = self.group.catalog
        if catalog is not self._whole and catalog is not None:
            self.admit(catalog)
            if catalog is not self._whole and method in _ABOUT_DEFINITIONS:
                raise self._refusal(f"`{one_line(shown or method)}`", "the server has changed, and is being compared")
        if self.held and params:
            for key in _targets(method, params, self.held):
                self._refuse(key, shown)
        if self._unread and params:
            for key in _targets(method, params, ()):
                self._refuse_unread(key, shown)

    # --- the rest --------------------------------------------------------------------------------------

    def take_up_approvals(self) -> None:
        """Read the pins if they have changed, instead of at the next look at their file."""
        self._service.refresh()

    def _refuse(self, key: Key, shown: str) -> None:
        reason = self.held.get(key)
        if reason is not None:
            kind, name = key
            raise self._refusal(f"the {kind.noun} `{one_line(shown or name)}`", reason)

    def _refuse_unread(self, key: Key, shown: str) -> None:
        """Refuse a target without a definition from the server, since it cannot be judged."""
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
        """Judge the same catalog by the current pins, if they have changed; return whether the result differs.

        This accepts nothing, unless the server has no pins: other definitions were refused because of others' pins or
        for lack of room, and would be accepted and refused again forever.
        """
        before, stored = self._admitted, self._stored
        if self._whole is not None and (is_other_file or stored != self._judged_by):
            accepts = is_other_file or stored is None
            if self._apart is None:
                self._judge(self._whole, accepts=accepts)
            else:  # by the previous pins
                self._apart = self._apart[0], self._apart[1] or accepts
        return self._admitted is not before

    def _judge(self, whole: Catalog, *, accepts: bool) -> None:
        """Judge a catalog, or start a thread that does."""
        if not is_large(whole):
            self._apart = None
            self._service.refresh()
            stored = self._stored
            judgement = judge(self._pinned(stored), whole, self._pinning.policy)
            self._apply(whole, judgement, stored, accepts=accepts)
            return
        self._apart = whole, accepts
        if self._judging is None:
            self._judging = self._service.start(self)

    async def judge_apart(self) -> None:
        """Judge the latest large catalog in a thread."""
        assert self._apart is not None
        apart = whole, accepts = self._apart
        try:
            self._service.refresh()
            stored = self._stored
            judgement = await self._service.judge_apart(self._pinned(stored), whole, self._pinning)
            if self._apart is not None and self.is_current:  # otherwise, a small catalog has come since
                before = self._admitted
                self._apply(whole, judgement, stored, accepts=accepts)
                if self._admitted is not before:
                    self._service.announce(self.group)
        except BaseException:
            self._judging = self._apart = None
            raise
        if self._apart is apart:
            self._judging = self._apart = None
        else:
            self._judging = self._service.start(self) if self._apart is not None else None

    def _apply(self, whole: Catalog, judgement: PinJudgement, stored: PinnedServer | None, *, accepts: bool) -> None:
        """Hold, accept and report definitions according to a judgement."""
        version, pinned = _version_of(whole), self._pinned(stored)
        judgement = self._complete(judgement, pinned)
        held, accepted = judgement.held, judgement.accepted
        is_same = whole is self._whole and held.keys() == self.held.keys()
        self.held, self._whole, self._judged_by = held, whole, stored
        self._unread = _find_unread(whole) if self._pinning.policy == "hold" else frozenset()
        if not is_same:
            self._admitted = self._without_held(whole)
            self.group.admission.renew()
        if accepts and (accepted or (stored is not None and pinned is None)):
            before = {each.key: each.before for each in judgement.differences}
            former = {key: None if (pin := before[key]) is None else pin.hash for key in accepted}
            self._service.book.accept(Acceptance(self.group.name, self._pinning.source, version, accepted, former))
        if judgement.differences:
            self._service.report(self.group, PinReport.of(stored, pinned, judgement, version))
        self._service.watch()

    def _complete(self, judgement: PinJudgement, pinned: PinnedServer | None) -> PinJudgement:
        return self._service.complete(judgement, pinned) if self._pinning.policy == "hold" else judgement

    @property
    def _stored(self) -> PinnedServer | None:
        return self._service.find(self.group.name, self._pinning.source)

    def _pinned(self, stored: PinnedServer | None) -> PinnedServer | None:
        return pins_of_source(stored, self._pinning.source)

    # --- admitted entries ------------------------------------------------------------------------------

    def _without_held(self, whole: Catalog) -> Catalog:
        lists = {kind: self._without_held_entries(kind, listing) for kind, listing in whole.lists.items()}
        changed = {kind: listing for kind, listing in lists.items() if listing is not whole.lists[kind]}
        if _INSTRUCTIONS in self.held:
            hello = None if whole.hello is None else _without_instructions(whole.hello)
            whole = replace(whole, instructions="", title="", hello=hello)
        return whole.with_lists(changed) if changed else whole

    def _without_held_entries(self, kind: ListKind, listing: Listing) -> Listing:
        """Return a list without held entries; the same object while the list and its held entries are the same."""
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
    """Return the kinds whose definitions the server has not listed, or could not list."""
    lists = {kind: whole.lists.get(kind.listed_as) for kind in PinKind if kind.listed_as and kind in _CALLED}
    return frozenset(kind for kind, listing in lists.items() if listing is None or listing.has_failed)


def _without_instructions(hello: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """Return an answer to `initialize` without instructions, and without the title, which is pinned with them."""
    kept = {name: value for name, value in hello.items() if name != "instructions"}
    info = hello.get("serverInfo", wire.EMPTY_OBJECT)
    if len(wire.member(info, "title")):
        members = {name: value for name, value in wire.members(info).items() if name != "title"}
        kept["serverInfo"] = Raw(wire.encode(members))
    return kept


def _version_of(whole: Catalog) -> str:
    info = (whole.hello or {}).get("serverInfo", wire.EMPTY_OBJECT)
    return one_line(wire.text(wire.member(info, "version")) or "")


def _targets(method: str, params: Mapping[str, Raw], held: Iterable[Key]) -> Iterator[Key]:
    """Yield the definitions that a request targets."""
    match method:
        case "tools/call":
            name = wire.text(params.get("name")) or ""
            yield PinKind.TOOL, name
            yield PinKind.UI, name
        case "prompts/get":
            yield PinKind.PROMPT, wire.text(params.get("name")) or ""
        case "completion/complete":
            reference = params.get("ref", wire.EMPTY_OBJECT)
            yield PinKind.PROMPT, wire.text(wire.member(reference, "name")) or ""
            yield PinKind.TEMPLATE, wire.text(wire.member(reference, "uri")) or ""
        case "skills/get" | "resources/directory/read":
            yield from _find_skills(held, wire.text(params.get("uri")) or "")
        case "resources/read" | "resources/subscribe":
            yield from _find_skills(held, wire.text(params.get("uri")) or "")
            templates = [key for key in held if key[0] is PinKind.TEMPLATE]
            if templates:
                yield from _find_templates(templates, wire.text(params.get("uri")) or "")


def _find_skills(held: Iterable[Key], uri: str) -> Iterator[Key]:
    """Yield the skills whose directory a URI is in, or is: all of them for a URI that cannot be judged."""
    skills = [key for key in held if key[0] is PinKind.SKILL]
    if not skills:
        return
    from dynamic_mcp.policy.arguments import ConditionError
    from dynamic_mcp.policy.uris import variants

    try:
        readings = [f"{reading}/" for reading in variants(uri)]
    except ConditionError:
        yield from skills
        return
    for key in skills:
        root = key[1].removesuffix("SKILL.md")
        if any(reading.startswith(root) for reading in readings):
            yield key


def _find_templates(templates: Iterable[Key], uri: str) -> Iterator[Key]:
    """Yield the templates that may match a URI: all of them for a URI that cannot be judged."""
    from dynamic_mcp.mcp import uri_template
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


# --- reports ------------------------------------------------------------------------------------------------


class PinReport(Struct, frozen=True):
    """A report on a server: `is_baseline` if something else runs under its name than before.

    The first definitions of a kind are left out, unless they have warnings.
    """

    versions: str
    differences: tuple[Difference, ...]
    is_baseline: bool

    @classmethod
    def of(
        cls, stored: PinnedServer | None, pinned: PinnedServer | None, judgement: PinJudgement, version: str
    ) -> PinReport:
        """Return the report of a judgement; `pinned` counts, and `stored` is in the lock file."""
        before = "" if pinned is None else pinned.version
        versions = f" {before} -> {version}" if before and version and before != version else ""
        differences = tuple(
            each
            for each in judgement.differences
            if _is_alarming(each) or (pinned is not None and pinned.pins(each.key[0]))
        )
        return cls(versions, differences, stored is not None and pinned is None)

    @property
    def marks(self) -> frozenset[str]:
        """The identity of this report among others."""
        return frozenset((*map(_mark, self.differences), *(("baseline",) if self.is_baseline else ())))

    def without(self, reported: set[str]) -> PinReport:
        differences = tuple(each for each in self.differences if _mark(each) not in reported)
        return PinReport(self.versions, differences, self.is_baseline and "baseline" not in reported)

    @property
    def is_alarming(self) -> bool:
        """True if a user should look at it."""
        return self.is_baseline or any(map(_is_alarming, self.differences))

    def describe(self, group: str) -> str:
        names = self._names()
        changed, added, held = len(names["changed"]), len(names["added"]), names["held"]
        unpinned = sum(not each.fits and not each.held for each in self.differences)
        notes = [f"{_name(each)} ({each.note})" for each in self.differences if each.note and not each.held]
        counts = [f"{pluralize(changed, 'definition')} changed"] * bool(changed) + [f"{added} new"] * bool(added)
        parts = [
            "something else is run under this name now, and its definitions are the new baseline" * self.is_baseline,
            ", ".join(counts),
            f"{unpinned} not pinned, as there are too many" if unpinned else "",
            f"held: {_join(held)}" if held else "",
            f"suspicious: {_join(notes)}" if notes else "",
        ]
        command = f"dynamic-mcp pins {'diff' if changed or held else 'status'} {group}"
        return f"group {group}{self.versions}: {'; '.join(filter(None, parts))}; run `{command}`"

    def members(self) -> Mapping[str, object]:
        found: dict[str, object] = {member: names[:_MAX_NAMED] for member, names in self._names().items() if names}
        return {**found, "baseline": "new"} if self.is_baseline else found

    def _names(self) -> Mapping[str, Sequence[str]]:
        return {
            "changed": [_name(each) for each in self.differences if each.before],
            "added": [_name(each) for each in self.differences if not each.before],
            "held": [_name(each) for each in self.differences if each.held],
            "suspicious": [_name(each) for each in self.differences if each.note],
        }


def _is_alarming(difference: Difference) -> bool:
    return bool(difference.before or difference.held or difference.note)


def _mark(difference: Difference) -> str:
    kind, name = difference.key
    return f"{kind.name} {name} {difference.pin.hash if difference.before else ''}"


def _name(difference: Difference) -> str:
    kind, name = difference.key
    if kind is PinKind.INSTRUCTIONS:
        return kind.noun
    return f"`{one_line(name)}`" if kind is PinKind.TOOL else f"{kind.noun} `{one_line(name)}`"


def _join(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
