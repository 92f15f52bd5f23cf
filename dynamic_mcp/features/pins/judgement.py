"""Compares a server's definitions with its pins, and decides which are held. It has no I/O.

The first sight is the baseline. Hidden characters and withdrawn hints about effects are always held, other changes
only with `hold`. A user's approval covers exactly the approved definition, whatever it contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.config.rules import Policy
from dynamic_mcp.features.pins.definition import (
    Key,
    PinKind,
    canonical,
    definitions,
    digest,
    has_duplicates,
    is_plain,
)
from dynamic_mcp.features.pins.lock_file import Pin, PinnedServer
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:  # imported with the first new definition
    from dynamic_mcp.system.look_alikes import LookAlikes

# The limits on a server's pins: the number of definitions, the characters of their names, and their bytes.
MAX_PINS = 20_000
MAX_NAME_CHARACTERS = 4 << 20
MAX_DEFINITION_BYTES = 256 << 10
MAX_SERVER_BYTES = 8 << 20
# Larger catalogs are judged in a thread.
MAX_ENTRIES_AT_ONCE = 500
MAX_BYTES_AT_ONCE = 1 << 20
# The number of former definitions: a server may describe a tool differently to each user.
MAX_FORMER = 4


class Difference(Struct, frozen=True):
    """A definition that differs from its pin.

    `form` is its canonical JSON, `pin` its new pin, and `before` its current one; None at first sight. `held`
    says why clients do not get it, `note` what else there is to know; both may be empty. If not `fits`, there is no
    room for its pin.
    """

    key: Key
    form: Raw
    pin: Pin
    before: Pin | None = None
    held: str = ""
    note: str = ""
    fits: bool = True

    @property
    def name(self) -> str:
        """The name to type; that of instructions is their kind."""
        return self.key[1] or self.key[0].noun

    @property
    def title(self) -> str:
        return title_of(self.key)


class PinJudgement(Struct, frozen=True):
    """The differences between the definitions of a server and its pins, changed ones first."""

    differences: tuple[Difference, ...] = ()

    @property
    def held(self) -> Mapping[Key, str]:
        """The definitions that are held back, with reasons."""
        return {each.key: each.held for each in self.differences if each.held}

    @property
    def accepted(self) -> Mapping[Key, Pin]:
        """The pins to write: of first sights, and of accepted changes."""
        return {each.key: each.pin for each in self.differences if each.fits and not each.held}


def title_of(key: Key) -> str:
    """Return the kind and the name of a definition."""
    kind, name = key
    return f"{kind.noun} {name}" if name else kind.noun


def is_large(catalog: Catalog) -> bool:
    """Return whether a catalog takes long to judge."""
    kinds = {kind.listed_as for kind in PinKind if kind.listed_as is not None}
    lists = [catalog.entries(kind) for kind in kinds]
    if sum(map(len, lists)) > MAX_ENTRIES_AT_ONCE:
        return True
    size = sum(len(entry) for entries in lists for entry in entries.values())
    return size + len(catalog.instructions) + len(catalog.title) > MAX_BYTES_AT_ONCE


def judge(pinned: PinnedServer | None, catalog: Catalog, policy: Policy, *, today: str = "") -> PinJudgement:
    """Compare a server's definitions with its pins; None stands for a server seen for the first time.

    `today` is the date for new pins, as `2026-11-23`. Default: that of the clock.
    """
    if policy == "trust":
        return PinJudgement()
    pinned = pinned or PinnedServer()
    today = today or datetime.now(UTC).date().isoformat()
    changed: list[Difference] = []
    new: list[Difference] = []
    for kind, name, entry in definitions(catalog):
        form = Raw(canonical(entry))
        fingerprint, before = digest(form), pinned.find(kind, name)
        if before is None or before.find(fingerprint) is None:
            difference = Difference((kind, name), form, _pin(fingerprint, form, today), before)
            (new if before is None else changed).append(difference)
    if not changed and not new:
        return PinJudgement()
    room = _Room(pinned)
    names: dict[PinKind, LookAlikes] = {}
    return PinJudgement(
        (
            *(structs.replace(each, held=_why_held(each, policy)) for each in changed),
            *(_judge_new(each, policy, room, _describe_alike(pinned, each.key, names)) for each in new),
        )
    )


def _why_held(changed: Difference, policy: Policy) -> str:
    assert changed.before is not None
    reason = _describe_hidden(changed.form) or _find_danger(changed.before, changed.form)
    return reason or ("its definition has changed" if policy == "hold" else "")


def _describe_hidden(form: Raw) -> str:
    """Return a description of the hidden characters in a definition; empty if there are none, as in most."""
    if is_plain(form):
        return ""
    from dynamic_mcp.features.pins.hidden import describe_hidden

    return describe_hidden(form)


def _find_danger(before: Pin, form: Raw) -> str:
    """Return why a change is held under every policy; empty if it is not."""
    if not len(before.definition):
        return "it has changed, and was too large to be kept for a comparison"
    if has_duplicates(form) or has_duplicates(before.definition):
        return "it has changed, and has a member twice, of which readers take one or the other"
    old, new = wire.member(before.definition, "annotations"), wire.member(form, "annotations")
    had, has = wire.value(wire.member(old, "destructiveHint")), wire.value(wire.member(new, "destructiveHint"))
    only_read, only_reads = (wire.value(wire.member(each, "readOnlyHint")) is True for each in (old, new))
    # a destructive hint is a warning, a non-destructive one a promise: neither is withdrawn without a review
    if (only_read and not only_reads) or (isinstance(had, bool) and has is not had):
        return "it takes back what it said about its effects"
    return ""


def _judge_new(new: Difference, policy: Policy, room: _Room, alike: str) -> Difference:
    notes = ["it has a member twice"] if has_duplicates(new.form) else []
    held = _describe_hidden(new.form)
    if alike:
        notes.append(alike)
        held = held or (alike if policy == "hold" else "")
    fits = bool(held) or room.take(new.key[1])
    if not fits and policy == "hold":
        held = "its server has more definitions than can be pinned"
    return structs.replace(new, held=held, note="; ".join(notes), fits=fits)


def _pin(fingerprint: str, form: Raw, today: str) -> Pin:
    """Return a pin, with its definition unless that is too large or could not be read back."""
    if len(form) <= MAX_DEFINITION_BYTES:
        try:
            msgspec.json.decode(form)
            return Pin(fingerprint, form, today)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    return Pin(fingerprint, wire.ABSENT, today)


def _describe_alike(pinned: PinnedServer, key: Key, names: dict[PinKind, LookAlikes]) -> str:
    """Return a description of the pinned name that a new name looks like; empty if there is none."""
    kind, name = key
    if kind is PinKind.UI or not pinned.pins(kind):  # the tool itself has that name
        return ""
    if kind not in names:
        from dynamic_mcp.system.look_alikes import LookAlikes

        names[kind] = LookAlikes(pinned.pins(kind))
    alike = names[kind].find(name)
    return "" if alike is None else f"its name looks like that of the {kind.noun} `{one_line(alike)}`"


# --- new pins -----------------------------------------------------------------------------------------------


class _Room:
    """The remaining room for pins of a server: a new pin never evicts another one.

    Otherwise a server could release a definition by offering many others, and an evicted one would count as new.
    """

    def __init__(self, pinned: PinnedServer) -> None:
        self._pins, self._characters = MAX_PINS, MAX_NAME_CHARACTERS
        for kind in PinKind:
            for name in pinned.pins(kind):
                self.take(name)

    def take(self, name: str) -> bool:
        """Return whether a pin of this name still fits, and reserve its room if so."""
        if self._pins < 1 or self._characters < len(name):
            return False
        self._pins -= 1
        self._characters -= len(name)
        return True


def pin_all(pinned: PinnedServer, pins: Mapping[Key, Pin]) -> PinnedServer:
    """Return the server with those of these pins that fit, each with its former ones, which may come back.

    If none fits, it is the same object.
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
    """Return the server without its largest definitions, if the total is too large; their fingerprints stay."""
    pins = {(kind, name): pin for kind in PinKind for name, pin in server.pins(kind).items()}
    if sum(map(_size, pins.values())) <= MAX_SERVER_BYTES:
        return server
    share = MAX_SERVER_BYTES // len(pins)
    return server.with_pins({key: _cut(pin, share) for key, pin in pins.items()})


def _size(pin: Pin) -> int:
    return sum(len(each.definition) for each in (pin, *pin.former))


def _cut(pin: Pin, most: int) -> Pin:
    """Return a pin without definitions over this size."""
    definition = pin.definition if len(pin.definition) <= most else wire.ABSENT
    return structs.replace(pin, definition=definition, former=tuple(Pin(each.hash) for each in pin.former))
