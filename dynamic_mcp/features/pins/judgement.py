"""What follows for the definitions of a server that are not as they were pinned. It decides, and touches nothing.

First sight is the baseline. What changes is accepted or held, as the policy says; hidden characters are always held.
A person's approval counts for the definition that was approved, whatever is found in it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.config.rules import Policy
from dynamic_mcp.features.pins.definition import (
    Key,
    PinKind,
    canonical,
    definitions,
    fingerprint,
    has_duplicates,
)
from dynamic_mcp.features.pins.lock_file import Pin, PinnedServer
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:  # loaded with the first definition that is new
    from dynamic_mcp.features.pins.changes import Change, ChangeClass
    from dynamic_mcp.features.pins.findings import Finding
    from dynamic_mcp.features.pins.look_alikes import LookAlikes

# What one server may have pinned: how many definitions, characters of their names, and bytes of them.
MAX_PINS = 20_000
MAX_NAME_CHARACTERS = 4 << 20
MAX_DEFINITION_BYTES = 256 << 10
MAX_SERVER_BYTES = 8 << 20
# In how much of an update words are looked for; what is hidden is looked for everywhere.
MAX_SEARCHED_BYTES = 4 << 20
# What is judged while everybody waits.
MAX_ENTRIES_AT_ONCE = 500
MAX_BYTES_AT_ONCE = 1 << 20
# Definitions before that may come back: a server may say other things to other people.
MAX_FORMER = 4
_MAX_FINGERPRINTS = 50_000
_NO_ROOM = "its server has more definitions than can be pinned"


class Reason(Struct, frozen=True):
    """Why something is held, in words. `change` is None at first sight, and `pin` is what to pin on approval."""

    text: str
    pin: Pin
    change: Change | None = None
    findings: tuple[Finding, ...] = ()


class PinJudgement(Struct, frozen=True):
    """What is held and why, and what else is not as it was pinned.

    `changes` has the held ones too. `additions` are first sights, held or not. `accepted` are the pins that are to be
    written: first sights, and changes that pass. `unpinned` are those of first sights that pass, but do not fit.
    """

    held: Mapping[Key, Reason] = {}
    changes: tuple[Change, ...] = ()
    additions: tuple[Key, ...] = ()
    findings: Mapping[Key, tuple[Finding, ...]] = {}
    accepted: Mapping[Key, Pin] = {}
    unpinned: Mapping[Key, Pin] = {}


class Fingerprints:
    """Makes fingerprints, and remembers those of entries that come again byte for byte."""

    def __init__(self) -> None:
        self._known: BoundedDict[bytes, str] = BoundedDict(_MAX_FINGERPRINTS)

    def find(self, entry: Raw) -> str:
        """Return the fingerprint of an entry."""
        digest = sha256(entry).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = fingerprint(entry)
        return found


def is_large(catalog: Catalog) -> bool:
    """Return whether it takes long to judge what a server offers."""
    lists = [catalog.entries(kind.listed_as) for kind in PinKind if kind.listed_as is not None]
    if sum(map(len, lists)) > MAX_ENTRIES_AT_ONCE:
        return True
    size = sum(len(entry) for entries in lists for entry in entries.values())
    return size + len(catalog.instructions) + len(catalog.title) > MAX_BYTES_AT_ONCE


def judge(
    pinned: PinnedServer | None,
    catalog: Catalog,
    policy: Policy,
    *,
    today: str,
    foreign: Sequence[Collection[str]] = (),
    fingerprints: Fingerprints | None = None,
) -> PinJudgement:
    """Compare what a server offers with what is pinned of it; None is a server that was never seen.

    `today` is a date, as `2026-11-23`, and `foreign` are the names of the tools of each other server.
    """
    if policy == "trust":
        return PinJudgement()
    find = (fingerprints or Fingerprints()).find
    pinned = pinned or PinnedServer()
    new: list[_New] = []
    for kind, name, entry in definitions(catalog):
        current = find(entry)
        pin = pinned.find(kind, name)
        if pin is None or (pin.hash != current and pin.find(current) is None):
            new.append(_New((kind, name), entry, current, pin))
    if not new:
        return PinJudgement()
    from dynamic_mcp.features.pins.findings import ForeignNames

    return _judge_new(new, pinned, policy, today, ForeignNames(foreign, catalog.tools))


class _New(Struct, frozen=True):
    """An entry that is not as it is pinned."""

    key: Key
    entry: Raw
    fingerprint: str
    pinned: Pin | None


class _Room:
    """How much more fits beside what is pinned of a server: a pin never makes room for another one.

    Else a server would free a definition by offering many others, and what a write evicts would be new again.
    """

    def __init__(self, pinned: PinnedServer) -> None:
        self._pins, self._characters = MAX_PINS, MAX_NAME_CHARACTERS
        for kind in PinKind:
            for name in pinned.pins(kind):
                self.take(name)

    def take(self, name: str) -> bool:
        """Return whether a pin of this name still fits, and take its room if so."""
        if self._pins < 1 or self._characters < len(name):
            return False
        self._pins -= 1
        self._characters -= len(name)
        return True


def _judge_new(
    new: Sequence[_New], pinned: PinnedServer, policy: Policy, today: str, foreign: Container[str]
) -> PinJudgement:
    """Judge entries that are not as they are pinned."""
    from dynamic_mcp.features.pins.findings import find_all, find_in_characters

    held: dict[Key, Reason] = {}
    changes: list[Change] = []
    findings: dict[Key, tuple[Finding, ...]] = {}
    accepted: dict[Key, Pin] = {}
    unpinned: dict[Key, Pin] = {}
    to_search, room, names = MAX_SEARCHED_BYTES, _Room(pinned), _PinnedNames(pinned)
    for each in new:
        form = Raw(canonical(each.entry))
        pin = Pin(each.fingerprint, _to_keep(form), today)
        found = find_all(form, foreign) if to_search > 0 else find_in_characters(form)
        to_search -= len(form)
        change = None if each.pinned is None else _compare(each, each.pinned, form)
        reason = _reason(change, found, policy)
        fits = True
        if change is not None:
            changes.append(change)
        else:
            if alike := names.find_alike(each.key):
                found = (*found, alike)
                reason = reason or (alike.text if policy == "hold" else "")
            fits = bool(reason) or room.take(each.key[1])
            reason = reason or (_NO_ROOM if policy == "hold" and not fits else "")
        if found:
            findings[each.key] = found
        if reason:
            held[each.key] = Reason(reason, pin, change, found)
        elif fits:
            accepted[each.key] = pin
        else:
            unpinned[each.key] = pin
    additions = tuple(each.key for each in new if each.pinned is None)
    return PinJudgement(held, tuple(changes), additions, findings, accepted, unpinned)


class _PinnedNames:
    """The names of what is pinned, to tell which others look like them."""

    def __init__(self, pinned: PinnedServer) -> None:
        self._pinned = pinned
        self._by_kind: dict[PinKind, LookAlikes] = {}

    def find_alike(self, key: Key) -> Finding | None:
        """Return that something new has a name that looks like one that is pinned; None if it does not."""
        kind, name = key
        if not self._pinned.pins(kind):
            return None
        from dynamic_mcp.features.pins.findings import Finding
        from dynamic_mcp.features.pins.look_alikes import LookAlikes

        names = self._by_kind.get(kind)
        if names is None:
            names = self._by_kind[kind] = LookAlikes(self._pinned.pins(kind))
        alike = names.find(name)
        if alike is None:
            return None
        return Finding(f"its name looks like that of the {kind.noun} `{one_line(alike)}`", "", is_hidden=False)


def _compare(new: _New, pinned: Pin, form: Raw) -> Change:
    from dynamic_mcp.features.pins.changes import Change, ChangeClass, classify

    if has_duplicates(form) or not len(pinned.definition):
        # readers differ in what it says, or it was too large to be kept: it may say anything
        classes = frozenset((ChangeClass.TEXT, ChangeClass.WIDENING, ChangeClass.EFFECTS))
    else:
        classes = classify(new.key[0], pinned.definition, form)
    return Change(*new.key, pinned, form, new.fingerprint, classes)


def _reason(change: Change | None, findings: Collection[Finding], policy: Policy) -> str:
    """Say why something is held; empty if it is not."""
    hidden = "; ".join(
        f"{each.text}{f' in `{each.where}`' if each.where else ''}" for each in findings if each.is_hidden
    )
    if hidden:
        return hidden
    if change is None:
        return ""
    from dynamic_mcp.features.pins.changes import ChangeClass

    if not len(change.before.definition):
        return "it has changed, and was too large to be kept for a comparison"
    if ChangeClass.EFFECTS in change.classes:
        return "it says another thing now about what it may change"
    if policy == "hold" and not change.classes <= {ChangeClass.COSMETIC, ChangeClass.NARROWING}:
        return f"what the server says of it has changed ({describe(change.classes)})"
    return ""


def describe(classes: Collection[ChangeClass]) -> str:
    """Say in words what a change does."""
    return ", ".join(sorted(each.value for each in classes))


def _to_keep(form: Raw) -> Raw:
    """Return a definition as it is kept; nothing if it is too large, or could not be read again."""
    if len(form) > MAX_DEFINITION_BYTES:
        return wire.ABSENT
    try:
        msgspec.json.decode(form)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return wire.ABSENT
    return form


# --- what is pinned then -----------------------------------------------------------------------------------


def pin_all(pinned: PinnedServer, pins: Mapping[Key, Pin]) -> PinnedServer:
    """Return the server with those of these pins that fit, each with those that it had before, which may come back.

    If none does, that is the same object.
    """
    room, merged = _Room(pinned), dict[Key, Pin]()
    for (kind, name), pin in pins.items():
        before = pinned.find(kind, name)
        if before is not None or room.take(name):
            merged[kind, name] = _with_former(before, pin)
    return _bounded(pinned.with_pins(merged)) if merged else pinned


def _with_former(before: Pin | None, pin: Pin) -> Pin:
    if before is None:
        return pin
    former = (structs.replace(before, former=()), *before.former)
    return structs.replace(pin, former=tuple(each for each in former if each.hash != pin.hash)[:MAX_FORMER])


def _bounded(server: PinnedServer) -> PinnedServer:
    """Return the server without its largest definitions, where they are too much in all; their fingerprints stay."""
    pins = {(kind, name): pin for kind in PinKind for name, pin in server.pins(kind).items()}
    size = sum(len(each.definition) for pin in pins.values() for each in (pin, *pin.former))
    if size <= MAX_SERVER_BYTES:
        return server
    share = MAX_SERVER_BYTES // len(pins)
    return server.with_pins({key: _cut(pin, share) for key, pin in pins.items()})


def _cut(pin: Pin, most: int) -> Pin:
    """Return a pin without definitions that are larger than this."""
    definition = pin.definition if len(pin.definition) <= most else wire.ABSENT
    return structs.replace(pin, definition=definition, former=tuple(Pin(each.hash) for each in pin.former))
