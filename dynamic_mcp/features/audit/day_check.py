"""Checks the chain of lines through the files of days: what each line says of itself and of the line before it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import Damaged, Link
from dynamic_mcp.features.audit.log import GAP
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import pluralize

# Who has to read more has seen enough.
MOST_FINDINGS = 1000

# Something that was written was changed, or is missing; a gap that the log itself says, in which nothing is missing
# that was recorded; a day that was kept long enough; something that is good to know.
Kind = Literal["changed", "missing", "gap", "removed", "note"]

_GAP = b'"event":"' + GAP.encode() + b'"'


class Finding(Struct, frozen=True):
    """Something that was found in a file, at the line of this number; 0 is the file as a whole."""

    kind: Kind
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.what}"


class CheckedDay(Struct):
    """What is known of a day's file: how many lines it has, its last number, and the hashes that were asked for."""

    count: int = 0
    last_line: int = 0
    hashes: dict[int, str] = {}


class _Gap(Struct, frozen=True):
    """What a gap line says."""

    reason: str = ""
    last: int = 0
    lines: int = 0
    sha256: str = ""


class ChainCheck:
    """Goes through the files in the order of their days; the first line may go on from the hashes in `begin`."""

    def __init__(self, findings: list[Finding], begin: frozenset[str]) -> None:
        self.lines = 0
        self.n = 0
        self.last = next(iter(begin), chain.ZERO)
        self.days: dict[str, CheckedDay] = {}
        self._findings = findings
        self._expected = begin
        self._damaged: list[tuple[int, bytes, str]] = []
        self._file = ""

    def check_day(self, file: Path, wanted: Collection[int]) -> None:
        """Check one file, and keep the hashes of the wanted lines."""
        self._file, self.n = file.name, 0
        day = self.days[days.day_of(file) or ""] = CheckedDay()
        with file.open("rb") as opened:
            for number, data in enumerate(opened, start=1):
                day.count = number
                self._check(number, data)
                if self.n in wanted:
                    day.hashes[self.n] = self.last
        day.last_line = self.n
        self._report_damaged()

    def _check(self, number: int, data: bytes) -> None:
        self.lines += 1
        try:
            if not data.endswith(b"\n"):
                raise Damaged("has no end")
            link = chain.read_link(data)
        except Damaged as exc:
            self._damaged.append((number, data.removesuffix(b"\n"), str(exc)))
            return
        gap = _read_gap(data)
        if gap is not None:
            self._explain(number, gap)
        if self._damaged:
            self._expected |= {told for _, line, _ in self._damaged for told in _possible_hashes(line)}
        if gap is None or gap.reason not in ("moved", "cut"):
            self._check_place(number, link)
        self._report_damaged()
        self.n, self.last, self._expected = link.n, link.hash, frozenset({link.hash})

    def _check_place(self, number: int, link: Link) -> None:
        """Check that a line follows the one before it."""
        nearest = self.n + 1
        if link.prev in self._expected and nearest <= link.n <= nearest + len(self._damaged):
            return
        if link.n > nearest + len(self._damaged):
            missing = pluralize(link.n - nearest, "line")
            self._find(
                "missing", number, f"{missing} before this one {'is' if missing[:2] == '1 ' else 'are'} missing"
            )
        elif link.n < nearest:
            self._find("changed", number, f"is line {link.n}, and does not belong here")
        elif number == 1:
            self._find("missing", number, "does not follow the last line of the day before")
        else:
            self._find("changed", number, "does not follow the line before it")

    def _explain(self, number: int, gap: _Gap) -> None:
        """Take what the log itself says about a gap before this line."""
        match gap.reason:
            case "torn":
                if self._damaged and hashlib.sha256(self._damaged[-1][1]).hexdigest() == gap.sha256:
                    torn = self._damaged.pop()
                    self._find("gap", torn[0], "a line that was not written whole; the log says so itself")
                else:
                    self._find("changed", number, "the half of a line that it tells of is not before it")
            case "damaged":
                if len(self._damaged) < gap.lines:
                    self._find("missing", number, "the damaged lines that it tells of are not before it")
            case "moved" | "cut":
                how = "was moved away" if gap.reason == "moved" else "was cut off"
                lines = f"what was before, up to line {gap.last}, {how}"
                self._find("missing", number, f"{lines} while the log was written; the log says so itself")
            case "lost":
                lost = (
                    f"{pluralize(gap.lines, 'line')} could not be written" if gap.lines else "lines were not written"
                )
                self._find("gap", number, f"{lost}; the log says so itself")
            case other:
                self._find("gap", number, f"the log itself tells of a gap: {other or 'it says no reason'}")

    def _report_damaged(self) -> None:
        for number, _, why in self._damaged:
            self._find("changed", number, why)
        self._damaged = []

    def _find(self, kind: Kind, line: int, what: str) -> None:
        if len(self._findings) < MOST_FINDINGS:
            self._findings.append(Finding(kind, self._file, line, what))


def _read_gap(data: bytes) -> _Gap | None:
    if _GAP not in data:
        return None
    try:
        line = chain.read_line(data)
        return decode_as(line.detail, _Gap) if line.event == GAP else None
    except (Damaged, msgspec.MsgspecError):
        return _Gap() if _GAP in data[:200] else None


def _possible_hashes(line: bytes) -> tuple[str, ...]:
    """Return what the line after a damaged one may take for its hash: what it says, or what it should say."""
    told = line[-66:-2].decode("ascii", "replace")
    return told, hashlib.sha256(line[: -len(',"hash":""}') - 64] + b"}").hexdigest()
