"""Checks seals: their own hashes, their chain and their signatures."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import Damaged
from dynamic_mcp.features.audit.day_check import Finding, Kind
from dynamic_mcp.features.audit.seals import Seal, read_seal

# Nothing may stand behind the signature, which covers what is before it.
_SIGNED = re.compile(rb'(\{.*),"signature":"([A-Za-z0-9+/]+=*)","hash":"[0-9a-f]{64}"\}', re.DOTALL)


class PublicKey(Protocol):
    """A key that checks signatures; `fingerprint` names it."""

    fingerprint: str

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Tell whether this is the signature of these bytes."""
        ...


class FoundSeal(Struct, frozen=True):
    """A seal, and where it is: in which line of a file; a seal that was kept elsewhere has no file."""

    seal: Seal
    file: str
    line: int

    @property
    def what(self) -> tuple[int, str, str]:
        """What it says of the day. The same may be sealed twice."""
        return self.seal.lines, self.seal.first, self.seal.last

    @property
    def is_early(self) -> bool:
        """Tell whether the day had not ended when it was sealed."""
        return self.seal.at[:10] <= self.seal.day


def parse_seals(
    lines: Sequence[bytes], file: str, keys: Sequence[PublicKey], findings: list[Finding]
) -> list[FoundSeal]:
    """Return the seals in these lines, and report those that are none or not signed with one of the keys."""
    found = []
    for number, line in enumerate(lines, start=1):
        data = line if file else line[max(line.find(b"{"), 0) :].rstrip()  # a system log adds a time
        if not file and not data:
            continue
        name = file or "the seals that were kept elsewhere"
        try:
            if file and not data.endswith(b"\n"):
                raise Damaged("has no end")
            chain.check(data)
            seal = read_seal(data)
        except Damaged as exc:
            findings.append(Finding("changed", name, number, str(exc)))
            continue
        if keys and (problem := _check_signature(seal, data.rstrip(), keys)):
            findings.append(Finding("changed", name, number, problem))
        found.append(FoundSeal(seal, file, number))
    return found


def check_own(seals: Sequence[FoundSeal], findings: list[Finding]) -> None:
    """Report seals that do not follow each other."""
    prev, day = chain.ZERO, ""

    def report(kind: Kind, line: int, what: str) -> None:
        findings.append(Finding(kind, days.SEALS, line, what))

    for each in seals:
        if each.seal.prev != prev:
            report("changed", each.line, "does not follow the seal before it")
        elif each.seal.day <= day:
            report("changed", each.line, f"the seal of {each.seal.day} comes after that of {day}")
        prev, day = each.seal.hash, each.seal.day


def _check_signature(seal: Seal, data: bytes, keys: Sequence[PublicKey]) -> str:
    """Return what is wrong with a signature; empty if nothing is."""
    signed = _SIGNED.fullmatch(data)
    if signed is None:
        return "is not signed"
    key = next((key for key in keys if key.fingerprint == seal.key), None)
    if key is None:
        return f"is signed with another key, {seal.key[:16]}…"
    is_good = key.has_signed(signed[1] + b"}", base64.b64decode(signed[2] + b"=="))
    return "" if is_good else "has a wrong signature"
