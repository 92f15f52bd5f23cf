"""Approves definitions: pins exactly those that a user has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from dynamic_mcp.features.pins.comparison import ServerComparison, update_lock
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.differences import key_to_json
from dynamic_mcp.features.pins.judgement import Difference, pin_all
from dynamic_mcp.features.pins.lock_file import PinnedServer, PinSet, pins_of_source

Chosen = Sequence[tuple[ServerComparison, Sequence[Difference]]]
# Why a definition was not approved.
CHANGED = "has changed since it was shown"
NO_ROOM = "does not fit beside what is pinned of its server"


@dataclass
class ApprovalOutcome:
    """The approved definitions, and the others with reasons."""

    approved: list[tuple[ServerComparison, list[Difference]]] = field(default_factory=list)
    refused: list[tuple[ServerComparison, Difference, str]] = field(default_factory=list)


def approve(file: Path, chosen: Chosen, *, by: str, offered: Mapping[str, Mapping[Key, str]]) -> ApprovalOutcome:
    """Pin what was shown, unless `offered` now differs, or another process has changed the pin.

    `offered` has fingerprints of definitions by the names of servers; those that it lacks are as they were shown.
    Raises DynamicMcpError.
    """
    outcome = ApprovalOutcome()

    def change(lock: PinSet) -> PinSet:
        for server, differences in chosen:
            now = offered.get(server.name, {})
            same = [each for each in differences if now.get(each.key, each.pin.hash) == each.pin.hash]
            pinned, approved = _pin(lock.servers.get(server.name), server, same, by)
            outcome.refused += [
                (server, each, NO_ROOM if each in same and _is_unpinned(pinned, each) else CHANGED)
                for each in differences
                if each not in approved
            ]
            if approved:
                lock = lock.with_server(server.name, pinned)
                outcome.approved.append((server, approved))
        return lock

    update_lock(file, change)
    return outcome


def event_of_approval(server: ServerComparison, differences: Sequence[Difference]) -> dict[str, object]:
    """Return what is recorded of the event `definitions.approved`."""
    approved = [{**key_to_json(each.key), "hash": each.pin.hash} for each in differences]
    return {"group": server.name, "version": server.version, "approved": approved}


def _pin(
    now: PinnedServer | None, server: ServerComparison, differences: Sequence[Difference], by: str
) -> tuple[PinnedServer, list[Difference]]:
    """Return the server's pins with the approved differences, and those; skip definitions changed meanwhile."""
    source = server.pinning.source
    pinned = pins_of_source(now, source) or PinnedServer(source)
    pins = {
        each.key: replace(each.pin, approved_by=by)
        for each in differences
        if (pin := pinned.find(*each.key)) is None
        or pin.hash == each.pin.hash
        or (each.before is not None and pin.hash == each.before.hash)
    }
    after = pin_all(pinned, pins)
    approved = [each for each in differences if each.key in pins and not _is_unpinned(after, each)]
    is_all = len(approved) == len(server.differences)
    return replace(after, version=server.version if is_all else pinned.version), approved


def _is_unpinned(pinned: PinnedServer, difference: Difference) -> bool:
    return pinned.find(*difference.key) is None
