"""Holds back what servers say of themselves that has changed, or looks dangerous, until somebody approves it.

Each catalog is judged once, before anything of it is shown or called; a request costs one comparison of identities.
Everybody's groups of one name share their pins, so a server that says other things to other people is not new each
time. What was found of one update is one line of the log and one event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakSet

from msgspec import Raw

from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.errors import DefinitionHeld
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import uri_template, wire
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.policy.pins.definition import Key, PinKind
from dynamic_mcp.policy.pins.judgement import Fingerprints, PinJudgement, Reason, judge
from dynamic_mcp.policy.pins.lock_file import PinnedServer, path_for
from dynamic_mcp.proxy.definition_news import News
from dynamic_mcp.proxy.observation import Event
from dynamic_mcp.proxy.pin_book import Acceptance, PinBook
from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)

_MAX_TOLD = 10_000
_INSTRUCTIONS = (PinKind.INSTRUCTIONS, "")


class Definitions:
    """The gates of all groups whose definitions are pinned, and the pins that they share.

    `folder` is where the lock files of configs are that name none. `note` takes events, and `announce` tells clients
    of a group whose lists are others now.
    """

    def __init__(
        self, config: Config, folder: Path, *, note: Callable[[Event], None], announce: Callable[[Group], None]
    ) -> None:
        self._folder = folder
        self._note = note
        self._announce = announce
        self._gates: WeakSet[DefinitionGate] = WeakSet()  # each is kept by its group
        self._told: dict[str, set[str]] = {}
        self.fingerprints = Fingerprints()
        self.book = self._open(config)

    def attach(self, group: Group, pinning: Pinning) -> None:
        """Have a group's definitions held back as this says from now on."""
        gate = group.admission.gate
        if pinning.policy == "trust":
            group.admission.gate = None
        elif not isinstance(gate, DefinitionGate) or gate.pinning != pinning:
            group.admission.gate = new = DefinitionGate(group, pinning, self)
            self._gates.add(new)

    def apply(self, config: Config) -> None:
        """Use the lock file of another config from now on."""
        if _path(config, self._folder) != self.book.path:
            self.book.watch(is_wanted=False)
            self.book = self._open(config)
            self._renew()

    async def close(self) -> None:
        """Write what is not written yet."""
        await self.book.close()

    def names_beside(self, group: Group) -> frozenset[str]:
        """Return the names of the tools of all other servers."""
        others = (gate.group.known for gate in self._gates if gate.group.name != group.name)
        return frozenset(name for known in others if known is not None for name in known.tools)

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
        return PinBook(_path(config, self._folder), self._renew, is_own=config.lock_file is None)

    def _renew(self) -> None:
        """Judge everything once more, because the pins are others."""
        for gate in [*self._gates]:
            if gate.is_current and gate.renew():
                self._announce(gate.group)


class DefinitionGate:
    """Holds back definitions of one group."""

    def __init__(self, group: Group, pinning: Pinning, definitions: Definitions) -> None:
        self.pinning = pinning
        self.held: Mapping[Key, Reason] = {}
        self.group = group
        self._definitions = definitions
        self._whole: Catalog | None = None
        self._admitted = Catalog()
        self._lists: dict[ListKind, tuple[Listing, Listing]] = {}

    @property
    def is_current(self) -> bool:
        """Whether the group still has this gate."""
        return self.group.admission.gate is self

    # --- Gate ------------------------------------------------------------------------------------------

    def admit(self, whole: Catalog) -> Catalog:
        """Return a catalog without what is held back; as long as nothing changes, the same object."""
        if whole is not self._whole:
            self._definitions.book.refresh()
            self._judge(whole)
        return self._admitted

    def admit_hello(self, said: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return what an upstream says of itself, without instructions that are held back."""
        text = wire.text(said.get("instructions")) or ""
        title = wire.text(wire.member(said.get("serverInfo", wire.EMPTY_OBJECT), "title")) or ""
        if not text and not title:
            return said
        self._definitions.book.refresh()
        pinned = self._pinned(self._definitions.book.find(self.group.name))
        judgement = self._compare(Catalog(instructions=text, title=title), pinned)
        return _without_instructions(said) if judgement.held else said

    def check(self, method: str, params: Mapping[str, Raw] | None, *, shown: str = "") -> None:
        """Let a request pass that is sent now. Raises DefinitionHeld if it is about something that is held back."""
        known = self.group.known
        if known is not self._whole and known is not None:
            self.admit(known)
        if self.held and params:
            for key in _targets(method, params, self.held):
                self._refuse(key, shown)

    # --- the rest --------------------------------------------------------------------------------------

    def _refuse(self, key: Key, shown: str) -> None:
        reason = self.held.get(key)
        if reason is not None:
            kind, name = key
            raise DefinitionHeld(f"the {kind.noun} `{one_line(shown or name)}`", self.group.name, reason.text)

    def renew(self) -> bool:
        """Judge the same catalog by other pins; return whether something else is admitted."""
        before = self._admitted
        if self._whole is not None:
            self._judge(self._whole)
        return self._admitted is not before

    def _judge(self, whole: Catalog) -> None:
        book, name, version = self._definitions.book, self.group.name, _version_of(whole)
        stored = book.find(name)
        pinned = self._pinned(stored)
        judgement = self._compare(whole, pinned)
        is_same = whole is self._whole and judgement.held.keys() == self.held.keys()
        self.held, self._whole = judgement.held, whole
        if not is_same:
            self._admitted = self._without_held(whole)
            self.group.admission.renew()
        if judgement.accepted or (stored is not None and pinned is None):
            former = {key: _hash_of(pinned, key) for key in judgement.accepted}
            book.accept(Acceptance(name, self.pinning.source, version, judgement.accepted, former))
        if judgement.changes or judgement.additions:
            self._definitions.tell(self.group, News.of(stored, pinned, judgement, version))
        self._definitions.watch()

    def _pinned(self, stored: PinnedServer | None) -> PinnedServer | None:
        """Return what is pinned of what is run; of something else under the same name, nothing is."""
        return stored if stored is not None and stored.source == self.pinning.source else None

    def _compare(self, whole: Catalog, pinned: PinnedServer | None) -> PinJudgement:
        return judge(
            pinned,
            whole,
            self.pinning.policy,
            today=datetime.now(UTC).date().isoformat(),
            foreign=self._definitions.names_beside(self.group),
            fingerprints=self._definitions.fingerprints,
        )

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


def _path(config: Config, folder: Path) -> Path:
    return config.lock_file or path_for(config.file, folder)


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
            uri = wire.text(params.get("uri")) or ""
            for kind, name in held:
                if kind is PinKind.TEMPLATE and uri_template.matches(name, uri):
                    yield kind, name
